import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { Channel, connectivityState, credentials, Metadata, status, type ChannelCredentials } from "@grpc/grpc-js";
import {
  RateLimitRequestSchema,
  RateLimitResponseSchema,
  type RateLimitRequest,
  type RateLimitResponse,
} from "./proto/rls_pb.js";
import { OPENED_MAX_MS, Renewals } from "./renewal.js";
import { CallError, TIMER_MAX_MS, type CallSettings, type Transport } from "./transport.js";

/**
 * Connections to all addresses of a name. An address that accepts connections but fails most calls is left out for a minute. That takes
 * three calls in half a second, half of which fail.
 */
const SERVICE_CONFIG = JSON.stringify({
  loadBalancingConfig: [
    {
      outlier_detection: {
        interval: { seconds: 0, nanos: 500_000_000 },
        base_ejection_time: { seconds: 60, nanos: 0 },
        max_ejection_time: { seconds: 60, nanos: 0 },
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
 * If a call to a name gets no answer in time, the name is connected again: a server that hangs does not establish a connection.
 *
 * Calls are made on the channel itself: a `Client` would add a stack trace, an event emitter and interceptors to each call.
 */
export class GrpcTransport implements Transport {
  readonly #open: () => Channel;
  /** Undefined for a target with one address. */
  readonly #renewals: Renewals | undefined;
  #channel: Channel;
  /** The channel that will replace the other. */
  #opening: Channel | undefined;
  #isClosed = false;

  constructor(
    target: string,
    channelCredentials: ChannelCredentials | undefined,
    options: Readonly<Record<string, string | number>>,
  ) {
    this.#open = () =>
      new Channel(target, channelCredentials ?? credentials.createInsecure(), {
        "grpc.service_config": SERVICE_CONFIG,
        "grpc.keepalive_time_ms": 30_000,
        "grpc.keepalive_timeout_ms": 5_000,
        "grpc.keepalive_permit_without_calls": 1,
        // gRPC would disconnect after 30 minutes without a call, and the next call would have to connect within its timeout.
        "grpc.client_idle_timeout_ms": TIMER_MAX_MS,
        "grpc.initial_reconnect_backoff_ms": 100,
        "grpc.max_reconnect_backoff_ms": 1_000,
        "grpc.use_local_subchannel_pool": 1,
        ...options,
      });
    this.#renewals = ONE_ADDRESS.test(target) ? undefined : new Renewals();
    this.#channel = this.#open();
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
      const channel = this.#channel;
      const call = channel.createCall(METHOD, Date.now() + settings.timeoutMs, null, null, null);
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
            if (code === status.DEADLINE_EXCEEDED && channel === this.#channel) {
              this.#renew();
            }
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
    this.#isClosed = true;
    this.#channel.close();
    this.#opening?.close();
  }

  /** Replaces the channel as soon as another channel is connected. */
  #renew(): void {
    const renewals = this.#renewals;
    if (this.#isClosed || renewals === undefined || !renewals.begin(performance.now())) {
      return;
    }
    const opening = this.#open();
    this.#opening = opening;
    const deadline = Date.now() + OPENED_MAX_MS;
    const end = (isReplaced: boolean): void => {
      this.#opening = undefined;
      renewals.ended(isReplaced, performance.now());
      // Calls in flight continue: they may be to a server that answers.
      (isReplaced ? this.#channel : opening).close();
      this.#channel = isReplaced ? opening : this.#channel;
    };
    const watch = (): void => {
      if (this.#isClosed) {
        return;
      }
      const state = opening.getConnectivityState(true);
      if (state === connectivityState.READY) {
        end(true);
        return;
      }
      opening.watchConnectivityState(state, deadline, (error) => {
        if (error === undefined) {
          watch();
        } else if (!this.#isClosed) {
          end(false);
        }
      });
    };
    watch();
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

/** A target with one address. */
const ONE_ADDRESS = /^(?:(?:ipv4:)?\d+(?:\.\d+){3}:\d+$|(?:ipv6:)?\[[^\]]*\]:\d+$|unix(?:-abstract)?:)/;

/** The gRPC target of each address. */
export function targets(address: string | readonly string[]): readonly string[] {
  const addresses = typeof address === "string" ? [address] : address;
  if (addresses.length === 0) {
    throw new TypeError("no address; use at least one, such as 127.0.0.1:8081");
  }
  for (const one of addresses) {
    // gRPC takes 443 for a missing port.
    if (!TARGET.test(one)) {
      const host = one.includes(":") ? `[${one.replace(/[[\]]/g, "")}]` : one || "127.0.0.1";
      throw new TypeError(`the address ${JSON.stringify(one)} has no port; write host:port, such as ${host}:8081`);
    }
  }
  return addresses;
}
