import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { Channel, credentials, Metadata, status, type ChannelCredentials } from "@grpc/grpc-js";
import {
  RateLimitRequestSchema,
  RateLimitResponseSchema,
  type RateLimitRequest,
  type RateLimitResponse,
} from "./proto/rls_pb.js";
import { CallError, type CallSettings, type Transport } from "./transport.js";

const METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/**
 * Calls over gRPC: one connection for each address, kept alive while idle, and reconnected within a second.
 *
 * Calls are made on the channel itself: a `Client` adds a stack trace, an event emitter and interceptors to each of them.
 */
export class GrpcTransport implements Transport {
  readonly #channel: Channel;

  constructor(
    address: string | readonly string[],
    channelCredentials: ChannelCredentials | undefined,
    options: Readonly<Record<string, string | number>>,
  ) {
    this.#channel = new Channel(target(address), channelCredentials ?? credentials.createInsecure(), {
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
    const bytes = toBinary(RateLimitRequestSchema, message);
    return new Promise((resolve, reject) => {
      const { signal } = settings;
      const call = this.#channel.createCall(METHOD, Date.now() + settings.timeoutMs, null, null, null);
      const abort = (): void => {
        call.cancelWithStatus(status.CANCELLED, "aborted by the caller");
      };
      let received: Uint8Array | null = null;
      call.start(metadata, {
        onReceiveMetadata: () => undefined,
        onReceiveMessage: (one: Uint8Array | null) => {
          received = one;
        },
        onReceiveStatus: ({ code, details }) => {
          signal?.removeEventListener("abort", abort);
          if (code !== status.OK) {
            reject(new CallError(status[code], details));
          } else {
            settle(received, resolve, reject);
          }
        },
      });
      call.startRead();
      call.sendMessageWithContext({}, Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
      call.halfClose();
      signal?.addEventListener("abort", abort, { once: true });
    });
  }

  close(): void {
    this.#channel.close();
  }
}

/** Decodes the message of a call that ended with OK. */
function settle(
  received: Uint8Array | null,
  resolve: (response: RateLimitResponse) => void,
  reject: (error: CallError) => void,
): void {
  if (received === null) {
    reject(new CallError("INTERNAL", "no response"));
    return;
  }
  try {
    resolve(fromBinary(RateLimitResponseSchema, received));
  } catch (error) {
    reject(new CallError("INTERNAL", `the answer is not a RateLimitResponse: ${String(error)}`));
  }
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
