import type { ChannelCredentials } from "@grpc/grpc-js";
import { RateLimiter, type ClientOptions } from "./engine.js";
import { GrpcTransport } from "./grpc.js";

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
   * @param address - `host:port`, `unix:/path/of/socket`, any other gRPC target, or several IP addresses with ports, to which
   * calls are distributed round-robin.
   * @param options - The settings.
   */
  constructor(address: string | readonly string[] = "127.0.0.1:8081", options: TidegateOptions = {}) {
    super(new GrpcTransport(address, options.credentials, options.channelOptions ?? {}), {
      clock: () => process.hrtime.bigint(),
      ...options,
    });
  }
}
