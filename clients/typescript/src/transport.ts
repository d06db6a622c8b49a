import type { RateLimitRequest, RateLimitResponse } from "./proto/rls_pb.js";

/** The reason why a call has no answer. */
export class CallError extends Error {
  /** The name of the gRPC status code. */
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/** Settings of a call beside its message. */
export interface CallSettings {
  readonly timeoutMs: number;
  readonly metadata: Readonly<Record<string, string>> | undefined;
  readonly signal: AbortSignal | undefined;
}

/** A way to send `ShouldRateLimit`. */
export interface Transport {
  /** Rejects with {@link CallError} if there is no answer. */
  call(message: RateLimitRequest, settings: CallSettings): Promise<RateLimitResponse>;
  /** Whether the connection is established; if not, it is being opened. */
  isConnected(): boolean;
  close(): void;
}

/** The longest timer of runtimes, 24.8 days: longer timers fire at once. */
export const TIMER_MAX_MS = 2_147_483_647;
