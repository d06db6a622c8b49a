import type { ChannelCredentials } from "@grpc/grpc-js";
import { RateLimiter, type ClientOptions } from "./engine.js";
import { GrpcTransport, targets } from "./grpc.js";

/** Settings of a client over gRPC. */
export interface TidegateOptions extends ClientOptions {
  /** Credentials for TLS and mTLS: `credentials.createSsl` of `@grpc/grpc-js`. */
  readonly credentials?: ChannelCredentials;
  /** Channel options of `@grpc/grpc-js`, beside those of this library. */
  readonly channelOptions?: Readonly<Record<string, string | number>>;
}

/** A client of a Tidegate server over gRPC. Calls share one HTTP/2 connection for each address, which the first call opens. */
export class Tidegate extends RateLimiter {
  /**
   * Creates a client.
   *
   * @param address - `host:port`, `unix:/path/of/socket`, any other gRPC target, or several of these, which take turns. Each has
   * a connection, a breaker and a verified name of its own.
   * @param options - The settings.
   */
  constructor(address: string | readonly string[] = "127.0.0.1:8081", options: TidegateOptions = {}) {
    const transports = targets(address).map((target) => {
      return new GrpcTransport(target, options.credentials, options.channelOptions ?? {});
    });
    super(transports, { clock: () => process.hrtime.bigint(), ...options });
  }
}
