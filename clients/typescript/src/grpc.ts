import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { Channel, connectivityState, credentials, Metadata, status, type ChannelCredentials } from "@grpc/grpc-js";
import {
  RateLimitRequestSchema,
  RateLimitResponseSchema,
  type RateLimitRequest,
  type RateLimitResponse,
} from "./proto/rls_pb.js";
import { CallError, type CallSettings, type Transport } from "./transport.js";

/**
 * Connections to all addresses of a name. One that fails most of its calls is left out for a minute, until when keep-alive has found a
 * connection that hangs. It needs three calls in half a second, of which half fail.
 */
const SERVICE_CONFIG = JSON.stringify({
  loadBalancingConfig: [
    {
      outlier_detection: {
        interval: "0.5s",
        base_ejection_time: "60s",
        max_ejection_time: "60s",
        max_ejection_percent: 50,
        failure_percentage_ejection: {
          threshold: 50,
          enforcement_percentage: 100,
          minimum_hosts: 2,
          request_volume: 3,
        },
        child_policy: [{ round_robin: {} }],
      },
    },
  ],
});

const METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/**
 * Calls over gRPC to one address: a connection that is kept alive while idle, and reconnected within a second.
 *
 * Calls are made on the channel itself: a `Client` adds a stack trace, an event emitter and interceptors to each of them.
 */
export class GrpcTransport implements Transport {
  readonly #channel: Channel;

  constructor(
    target: string,
    channelCredentials: ChannelCredentials | undefined,
    options: Readonly<Record<string, string | number>>,
  ) {
    this.#channel = new Channel(target, channelCredentials ?? credentials.createInsecure(), {
      "grpc.service_config": SERVICE_CONFIG,
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

  isConnected(): boolean {
    return this.#channel.getConnectivityState(true) === connectivityState.READY;
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

/**
 * A name or an IPv4 address with a port, an IPv6 address in brackets with a port, or a target with a scheme. Of these, `dns:`
 * needs a port as well.
 */
const TARGET =
  /^(?:(?:dns:(?:\/\/[^/]*\/)?)?(?:[^[\]:/]+|\[[\da-fA-F:.%\w]+\]):\d+|(?!dns:|[\da-f]*:[\da-f:.]*$)[a-z][a-z\d+.-]*:(?!\d+$).+)$/;

/** The gRPC target of each address. */
export function targets(address: string | readonly string[]): readonly string[] {
  const addresses = typeof address === "string" ? [address] : address;
  if (addresses.length === 0) {
    throw new TypeError("no address; use at least one, such as 127.0.0.1:8081");
  }
  for (const one of addresses) {
    // gRPC takes 443 for a port that is missing.
    if (!TARGET.test(one)) {
      const host = one.includes(":") ? `[${one.replace(/[[\]]/g, "")}]` : one || "127.0.0.1";
      throw new TypeError(`the address ${JSON.stringify(one)} has no port; write host:port, such as ${host}:8081`);
    }
  }
  return addresses;
}
