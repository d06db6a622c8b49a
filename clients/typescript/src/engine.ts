/// <reference lib="esnext.disposable" preserve="true" />
import type { Duration } from "@bufbuild/protobuf/wkt";
import type { Permit } from "./breaker.js";
import { Decision, type Extras, type Header, type Limit, type Mode, type Status } from "./decision.js";
import { LocalDenials } from "./denials.js";
import { unitNs } from "./limit.js";
import { LocalLimits, type LocalLimit } from "./local.js";
import {
  RateLimitResponse_Code as Code,
  RateLimitResponse_Mode as WireMode,
  RateLimitResponse_RateLimit_Unit as Unit,
} from "./proto/rls_pb.js";
import type {
  RateLimitRequest,
  RateLimitResponse,
  RateLimitResponse_HeaderValue as HeaderValue,
  RateLimitResponse_RateLimit as RateLimit,
} from "./proto/rls_pb.js";
import { Request, renewalOf, type Cost, type Descriptor, type DescriptorLike } from "./request.js";
import { Server, Servers } from "./servers.js";
import { Slot } from "./slot.js";
import { CallError, TIMER_MAX_MS, type Transport } from "./transport.js";

/** The decision on a request without an answer: `open` allows it, `closed` denies it. */
export type OnFailure = "open" | "closed";

/** Receives the messages of a client, like `console`. */
export interface Logger {
  info(message: string): void;
  warn(message: string, error?: unknown): void;
}

/** Settings of every client. */
export interface ClientOptions {
  /** The domain of calls that name none. */
  readonly domain?: string;
  /** Time until an answer counts as missing; 50 unless set. */
  readonly timeoutMs?: number;
  /** The same for the first call, which opens the connection; 1,000 unless set. */
  readonly connectTimeoutMs?: number;
  /** The decision about requests without an answer; `open` unless set. */
  readonly onFailure?: OnFailure;
  /** Limits that count requests without an answer in this process; `onFailure` decides requests that none of them limits. */
  readonly fallback?: readonly LocalLimit[];
  /** Denials that are kept until their reset; 10,000 unless set, 0 keeps none. */
  readonly localDenials?: number;
  /** Longest time for which a denial is kept; 1,000 unless set. */
  readonly localDenialsForMs?: number;
  /** Failures in a row after which calls to a server fail at once; 5 unless set, 0 switches this off. */
  readonly breakerFailures?: number;
  /** Time until another call is tried; 1,000 unless set. */
  readonly breakerOpenMs?: number;
  /** Called with each decision and the milliseconds it took, for metrics. */
  readonly onDecision?: (decision: Decision, tookMs: number) => void;
  /** Returns metadata (headers over HTTP) for a call, such as the trace context. */
  readonly metadata?: () => Readonly<Record<string, string>>;
  /** Receives a message when the server does not answer, at most one a minute; `console` unless set. */
  readonly logger?: Logger;
  /** Monotonic nanoseconds; of use in tests. */
  readonly clock?: () => bigint;
}

/** Settings of a call. */
export interface CallOptions {
  /** Hits to take or to give back; 1 unless set. */
  readonly cost?: Cost;
  /** The domain, instead of the client's. */
  readonly domain?: string;
  /** The policy, instead of the client's. */
  readonly onFailure?: OnFailure;
  /** The timeout, instead of the client's. */
  readonly timeoutMs?: number;
  /** Whether a kept denial may be used; true unless set. */
  readonly localDenials?: boolean;
  /** Cancels the call: it rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

/**
 * The server refused the request itself: a retry cannot help, and failing open would let an overlong key pass every limit.
 */
export class RequestError extends Error {
  /** The name of the gRPC status code. */
  readonly code: string;

  constructor(code: string, message: string) {
    super(`${code}: ${message}`);
    this.name = "RequestError";
    this.code = code;
  }
}

/** Errors of the caller. Every other status is a failure of the server, or of a proxy in front of it: the policy decides. */
const REJECTED: ReadonlySet<string> = new Set(["INVALID_ARGUMENT", "OUT_OF_RANGE"]);

/** Time between two messages about a server that does not answer. */
const LOGGED_EVERY_NS = 60_000_000_000n;

const MODES: Readonly<Record<WireMode, Mode | undefined>> = {
  [WireMode.DENIES]: undefined,
  [WireMode.QUOTA]: "quota",
  [WireMode.QUEUED]: "queued",
};

/** The calls of a client, over any transport. */
export class RateLimiter {
  readonly #options: ClientOptions;
  readonly #servers: Servers;
  readonly #denials: LocalDenials;
  readonly #logger: Logger;
  readonly #clock: () => bigint;
  readonly #timeoutMs: number;
  readonly #fallback: LocalLimits | undefined;
  #isClosed = false;
  /** Decisions without an answer since the last message about them. */
  #unanswered = 0;
  /** When that message was written; undefined while the server answers. */
  #loggedNs: bigint | undefined;
  /** When a refused request was last logged. */
  #refusedNs: bigint | undefined;
  /** Warnings that are written once. */
  readonly #warned = new Set<string>();

  protected constructor(transports: readonly Transport[], options: ClientOptions) {
    const timeoutMs = options.timeoutMs ?? 50;
    if (!(timeoutMs > 0)) {
      throw new RangeError(`timeoutMs is ${timeoutMs}; use more than 0`);
    }
    this.#options = options;
    this.#timeoutMs = timeoutMs;
    this.#logger = options.logger ?? console;
    const keptNsMax = nanosOf(options.localDenialsForMs ?? 1_000);
    this.#denials = new LocalDenials(options.localDenials ?? 10_000, keptNsMax);
    const openNs = nanosOf(options.breakerOpenMs ?? 1_000);
    const failuresMax = options.breakerFailures ?? 5;
    this.#servers = new Servers(transports.map((transport) => new Server(transport, failuresMax, openNs)));
    this.#clock = options.clock ?? monotonicNs;
    this.#fallback = options.fallback === undefined ? undefined : new LocalLimits(options.fallback);
  }

  /**
   * Takes hits of every limit that the request reaches, or none at all: `limit({ api_key: id })`. Several descriptors are
   * decided as one request. Rejects with {@link RequestError} if the server refuses the request itself.
   */
  limit(descriptors: DescriptorLike | readonly DescriptorLike[], options: CallOptions = {}): Promise<Decision> {
    return this.#decide(descriptors, options.cost ?? 1, options, false, options.localDenials ?? true);
  }

  /**
   * Takes hits as `limit` does, and holds the slots of limits of requests in flight until the end of a scope:
   * `await using slot = await client.acquire({ user: id })`. For limits that reserve it holds estimates, which `slot.commit(cost)`
   * replaces. No denial is kept unless `localDenials` is set. A call that is aborted keeps no slot.
   */
  async acquire(descriptors: DescriptorLike | readonly DescriptorLike[], options: CallOptions = {}): Promise<Slot> {
    const { signal, ...others } = options;
    signal?.throwIfAborted();
    // The server may have admitted an aborted call: it continues without its caller, so that its slot is released.
    const deciding = this.limit(descriptors, { localDenials: false, ...others });
    const acquired = deciding.then((decision) => this.#slot(decision, descriptors, options.domain));
    try {
      return await untilAborted(acquired, signal);
    } catch (error) {
      if (signal?.aborted === true) {
        acquired.then((slot) => slot.release()).catch(() => undefined);
      }
      throw error;
    }
  }

  /** Writes a warning once. @internal */
  warnOnce(message: string): void {
    if (!this.#warned.has(message)) {
      this.#warned.add(message);
      this.#logger.warn(message);
    }
  }

  #slot(decision: Decision, descriptors: DescriptorLike | readonly DescriptorLike[], domain: string | undefined): Slot {
    const ofTicket = { localDenials: false, ...(domain !== undefined && { domain }) };
    const send = async (release: Descriptor): Promise<void> => {
      try {
        await this.limit(release, ofTicket);
      } catch (error) {
        this.#logger.warn("the end of a request is lost: its slots and estimates end after max_hold", error);
      }
    };
    const renew = async (ticket: string): Promise<boolean> =>
      (await this.limit(renewalOf(descriptors, ticket), ofTicket)).allowed;
    return new Slot(decision, send, renew);
  }

  /** Returns whether one more hit would be admitted, without taking it. */
  peek(
    descriptors: DescriptorLike | readonly DescriptorLike[],
    options: Omit<CallOptions, "cost" | "localDenials"> = {},
  ): Promise<Decision> {
    return this.#decide(descriptors, 0, options, false, false);
  }

  /** Gives back hits that were taken. From then on this client keeps no denials for descriptors with the same keys. */
  giveBack(
    descriptors: DescriptorLike | readonly DescriptorLike[],
    options: Omit<CallOptions, "localDenials"> = {},
  ): Promise<Decision> {
    return this.#decide(descriptors, options.cost ?? 1, options, true, false);
  }

  /**
   * Takes hits as soon as they fit, waiting at most `waitMaxMs`, which may be `Infinity`. Returns a denial at once if it does not end by
   * then.
   */
  async waitUntilReady(
    descriptors: DescriptorLike | readonly DescriptorLike[],
    options: CallOptions & { readonly waitMaxMs: number },
  ): Promise<Decision> {
    const untilNs = this.#clock() + nanosOf(options.waitMaxMs);
    for (;;) {
      const decision = await this.limit(descriptors, options);
      const wait = decision.retryAfterNs;
      if (decision.allowed || wait === undefined || this.#clock() + wait > untilNs) {
        return decision;
      }
      // A timer may be early by a millisecond. After the longest timer the call is made again.
      await sleep(Math.min((decision.retryAfterMs ?? 0) + 1, TIMER_MAX_MS), options.signal);
    }
  }

  /** Closes the connections. Later calls reject. */
  close(): void {
    if (!this.#isClosed) {
      this.#isClosed = true;
      for (const { transport } of this.#servers.all) {
        transport.close();
      }
    }
  }

  /** Closes the connections at the end of a scope: `await using client = new Tidegate(…)`. */
  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }

  /** The same for `using`. */
  [Symbol.dispose](): void {
    this.close();
  }

  async #decide(
    descriptors: DescriptorLike | readonly DescriptorLike[],
    cost: Cost,
    options: CallOptions,
    giveBack: boolean,
    isLocal: boolean,
  ): Promise<Decision> {
    if (this.#isClosed) {
      throw new Error("the client is closed; create another one");
    }
    const domain = options.domain ?? this.#options.domain ?? "";
    const request = new Request(domain, descriptors, cost, giveBack);
    options.signal?.throwIfAborted();
    const sentNs = this.#clock();
    const isKeeping = isLocal && this.#denials.isOn;
    if (isKeeping) {
      const denial = this.#denials.find(request, sentNs);
      if (denial !== undefined) {
        return this.#observed(denial, sentNs);
      }
    }
    if (request.givesBack) {
      this.#denials.endFor(request);
    }
    const policy = options.onFailure ?? this.#options.onFailure ?? "open";
    const message = request.message();
    const metadata = this.#metadata();
    const choice = this.#servers.choose(sentNs);
    if (choice === undefined) {
      const message = this.#servers.all[0]?.lastFailure ?? "";
      return this.#withoutAnswer(policy, "BREAKER_OPEN", message, sentNs, request);
    }
    const { server, permit, probed } = choice;
    if (probed !== undefined) {
      void this.#probe(probed, message, metadata, sentNs);
    }
    const timeoutMs = options.timeoutMs ?? (server.isFirst ? this.#firstTimeoutMs : this.#timeoutMs);
    let response: RateLimitResponse;
    try {
      response = await server.transport.call(message, { timeoutMs, metadata, signal: options.signal });
      if (response.overallCode === Code.UNKNOWN) {
        throw new CallError("INTERNAL", "the answer has no overall code");
      }
    } catch (error) {
      server.isFirst = false;
      return this.#failed(error, server, policy, permit, sentNs, options.signal, request);
    }
    server.isFirst = false;
    const decision = decode(response);
    if (isKeeping && !decision.allowed) {
      this.#denials.keep(request, decision, sentNs);
    }
    server.breaker.succeeded(permit, sentNs);
    if (this.#loggedNs !== undefined) {
      this.#loggedNs = undefined;
      this.#unanswered = 0;
      this.#logger.info("the rate limit server answers again");
    }
    return this.#observed(decision, sentNs);
  }

  /** The timeout of a call that opens the connection. */
  get #firstTimeoutMs(): number {
    return Math.max(this.#timeoutMs, this.#options.connectTimeoutMs ?? 1_000);
  }

  /** The metadata of a call; none if its source fails. */
  #metadata(): Readonly<Record<string, string>> | undefined {
    try {
      return this.#options.metadata?.();
    } catch (error) {
      this.#logger.warn("the source of metadata for rate limit calls failed", error);
      return undefined;
    }
  }

  /** Sends a peek of the request to a server whose breaker is open; only the breaker sees its outcome. */
  async #probe(
    server: Server,
    message: RateLimitRequest,
    metadata: Readonly<Record<string, string>> | undefined,
    sentNs: bigint,
  ): Promise<void> {
    const descriptors = message.descriptors.map((one) => ({ ...one, hitsAddend: 0n, isNegativeHits: false }));
    const settings = { timeoutMs: this.#firstTimeoutMs, metadata, signal: undefined };
    try {
      await server.transport.call({ ...message, descriptors }, settings);
      server.breaker.succeeded("probe", sentNs);
    } catch (error) {
      if (error instanceof CallError && REJECTED.has(error.code)) {
        server.breaker.succeeded("probe", sentNs);
      } else {
        server.lastFailure = error instanceof CallError ? `${error.code}: ${error.message}` : String(error);
        server.breaker.failed("probe", sentNs, this.#clock(), this.#servers.hasOther(server));
      }
    }
  }

  #failed(
    error: unknown,
    server: Server,
    policy: OnFailure,
    permit: Permit,
    sentNs: bigint,
    signal: AbortSignal | undefined,
    request: Request,
  ): Decision {
    if (signal?.aborted === true || !(error instanceof CallError)) {
      server.breaker.abandoned(permit);
      signal?.throwIfAborted();
      throw error;
    }
    if (REJECTED.has(error.code)) {
      server.breaker.succeeded(permit, sentNs);
      this.#logRefused(error);
      throw new RequestError(error.code, error.message);
    }
    server.lastFailure = `${error.code}: ${error.message}`;
    server.breaker.failed(permit, sentNs, this.#clock(), this.#servers.hasOther(server));
    return this.#withoutAnswer(policy, error.code, error.message, sentNs, request);
  }

  #withoutAnswer(policy: OnFailure, error: string, errorMessage: string, sentNs: bigint, request: Request): Decision {
    this.#logFailure(policy === "open", error, errorMessage);
    const counted = this.#fallback?.decide(request.parts()).statuses ?? [];
    const statuses = counted.some(({ limit }) => limit !== undefined) ? counted : [];
    const isAllowed = statuses.length > 0 ? !statuses.some(({ overLimit }) => overLimit) : policy === "open";
    const reason = isAllowed ? "failed_open" : "failed_closed";
    return this.#observed(new Decision(isAllowed, reason, statuses, { error, errorMessage }), sentNs);
  }

  #logRefused(error: CallError): void {
    const nowNs = this.#clock();
    if (this.#refusedNs === undefined || nowNs - this.#refusedNs >= LOGGED_EVERY_NS) {
      this.#refusedNs = nowNs;
      this.#logger.warn(
        `the rate limit server refuses a request (${error.code}: ${error.message}); middleware answers with 400`,
      );
    }
  }

  #logFailure(isOpen: boolean, error: string, errorMessage: string): void {
    const nowNs = this.#clock();
    this.#unanswered += 1;
    if (this.#loggedNs !== undefined && nowNs - this.#loggedNs < LOGGED_EVERY_NS) {
      return;
    }
    const unanswered = this.#unanswered;
    this.#unanswered = 0;
    this.#loggedNs = nowNs;
    this.#logger.warn(
      `no answer from the rate limit server (${error}: ${errorMessage}); requests are ${isOpen ? "allowed" : "denied"}, ` +
        `${unanswered} since the last message`,
    );
  }

  #observed(decision: Decision, sinceNs: bigint): Decision {
    try {
      this.#options.onDecision?.(decision, Number(this.#clock() - sinceNs) / 1e6);
    } catch (error) {
      this.#logger.warn("an observer of rate limit decisions failed", error);
    }
    return decision;
  }
}

/** Monotonic nanoseconds, by a clock of every runtime. */
function monotonicNs(): bigint {
  return BigInt(Math.round(performance.now() * 1e6));
}

/** Nanoseconds of milliseconds, which may be infinite: then of some 285,000 years. */
function nanosOf(milliseconds: number): bigint {
  return BigInt(Math.round(Math.min(milliseconds, Number.MAX_SAFE_INTEGER) * 1e6));
}

function decode(response: RateLimitResponse): Decision {
  const statuses = response.statuses.map((status): Status => {
    const limit = status.currentLimit;
    const reset = status.durationUntilReset;
    return {
      overLimit: status.code === Code.OVER_LIMIT,
      limit: limit && decodeLimit(limit),
      remaining: status.limitRemaining,
      resetAfterNs: reset && nanos(reset),
      mode: MODES[status.mode],
    };
  });
  return new Decision(response.overallCode === Code.OK, "decided", statuses, {
    requestHeaders: response.requestHeadersToAdd.map(decodeHeader),
    responseHeaders: response.responseHeadersToAdd.map(decodeHeader),
    body: response.rawBody,
    ...ticketOf(response),
  });
}

/** The ticket of the slots and estimates that a request holds. */
function ticketOf(response: RateLimitResponse): Pick<Extras, "ticket" | "ticketCost"> {
  const slot = response.dynamicMetadata?.["slot"];
  const cost = response.dynamicMetadata?.["cost"];
  const ticketCost = typeof cost === "number" && cost >= 1 ? BigInt(Math.trunc(cost)) : 1n;
  return typeof slot === "string" ? { ticket: slot, ticketCost } : {};
}

function decodeLimit({ requestsPerUnit: requests, unit: sent, name, window }: RateLimit): Limit {
  // A unit of a later version of the API has no name here.
  const unitName = (Unit[sent] as string | undefined) ?? "UNKNOWN";
  const unit = unitName === "UNKNOWN" ? "" : unitName.toLowerCase();
  return { requests, unit, name, windowNs: window === undefined ? unitNs(unit) : nanos(window) };
}

function nanos(duration: Duration): bigint {
  return duration.seconds * 1_000_000_000n + BigInt(duration.nanos);
}

function decodeHeader(header: HeaderValue): Header {
  return [header.key, header.value || String.fromCharCode(...header.rawValue)];
}

/** Settles as a promise does, unless the signal aborts before: then it rejects with the signal's reason. */
function untilAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) {
    return promise;
  }
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      reject(signal.reason as Error);
    };
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => {
      signal.removeEventListener("abort", abort);
    });
  });
}

function sleep(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", abort, { once: true });
  });
}
