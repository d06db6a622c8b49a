import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { Client, credentials, Metadata, status, type ChannelCredentials, type ServiceError } from "@grpc/grpc-js";
import {
  RateLimitRequestSchema,
  RateLimitResponseSchema,
  type RateLimitRequest,
  type RateLimitResponse,
} from "./proto/rls_pb.js";
import { CallError, type CallSettings, type Transport } from "./transport.js";

const METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/** Calls over gRPC: one connection for each address, kept alive while idle, and reconnected within a second. */
export class GrpcTransport implements Transport {
  readonly #client: Client;

  constructor(
    address: string | readonly string[],
    channelCredentials: ChannelCredentials | undefined,
    options: Readonly<Record<string, string | number>>,
  ) {
    this.#client = new Client(target(address), channelCredentials ?? credentials.createInsecure(), {
      "grpc.service_config": '{"loadBalancingConfig": [{"round_robin": {}}]}',
      "grpc.keepalive_time_ms": 30_000,
      "grpc.keepalive_timeout_ms": 5_000,
      "grpc.keepalive_permit_without_calls": 1,
      "grpc.initial_reconnect_backoff_ms": 100,
      "grpc.max_reconnect_backoff_ms": 1_000,
      "grpc.use_local_subchannel_pool": 1,
      ...options,
    });
  }

  call(message: RateLimitRequest, settings: CallSettings): Promise<RateLimitResponse> {
    const metadata = new Metadata();
    metadata.set("tidegate-precision", "exact");
    for (const [key, value] of Object.entries(settings.metadata ?? {})) {
      metadata.set(key, value);
    }
    return new Promise((resolve, reject) => {
      const { signal } = settings;
      const abort = (): void => {
        call.cancel();
      };
      const call = this.#client.makeUnaryRequest(
        METHOD,
        serialize,
        deserialize,
        message,
        metadata,
        { deadline: Date.now() + settings.timeoutMs },
        (error: ServiceError | null, response?: RateLimitResponse) => {
          signal?.removeEventListener("abort", abort);
          if (response !== undefined && error === null) {
            resolve(response);
          } else {
            reject(new CallError(status[error?.code ?? status.INTERNAL], error?.details ?? "no response"));
          }
        },
      );
      signal?.addEventListener("abort", abort, { once: true });
    });
  }

  close(): void {
    this.#client.close();
  }
}

function serialize(message: RateLimitRequest): Buffer {
  return Buffer.from(toBinary(RateLimitRequestSchema, message));
}

function deserialize(bytes: Buffer): RateLimitResponse {
  return fromBinary(RateLimitResponseSchema, bytes);
}

/** The gRPC target of one address, or of several IP addresses, to which calls are distributed round-robin. */
export function target(address: string | readonly string[]): string {
  if (typeof address === "string") {
    return address;
  }
  if (address.length === 1 && address[0] !== undefined) {
    return address[0];
  }
  const isIPv4 = (one: string): boolean => /^[\d.]+:\d+$/.test(one);
  const isIPv6 = (one: string): boolean => /^\[[\da-f:.]+\]:\d+$/i.test(one);
  if (address.length > 0 && address.every(isIPv4)) {
    return `ipv4:${address.join(",")}`;
  }
  if (address.length > 0 && address.every(isIPv6)) {
    return `ipv6:${address.join(",")}`;
  }
  throw new TypeError("several addresses are IP addresses of one kind with ports; use these, or one DNS name");
}
