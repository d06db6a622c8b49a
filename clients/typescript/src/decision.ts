import { numbersOf, policy, quoted, type Limit } from "./limit.js";

export type { Limit } from "./limit.js";

const NANOS_PER_SECOND = 1_000_000_000n;
const NANOS_PER_MILLISECOND = 1e6;

/** The least number of a header that is a Unix time (`--response-headers x-unix`), of 2001. As a wait it would be 31 years. */
const UNIX_MIN = 1_000_000_000n;

/**
 * The origin of a decision: the server (`decided`), an earlier denial whose reset has not passed (`denied_locally`), or the
 * policy, since no answer arrived (`failed_open`, `failed_closed`).
 */
export type Reason = "decided" | "denied_locally" | "failed_open" | "failed_closed";

/**
 * How a status over its limit counts: a `quota` denies only if all quotas are over; with `queued`, the same request may be admitted before
 * the reset.
 */
export type Mode = "quota" | "queued";

/** The result for one descriptor. */
export interface Status {
  /** Whether the descriptor is over its limit. */
  readonly overLimit: boolean;
  /** The tightest limit that applies; undefined if no limit applies. */
  readonly limit: Limit | undefined;
  /** Hits that are left. */
  readonly remaining: number;
  /** Nanoseconds until the limit resets; undefined if no wait helps. */
  readonly resetAfterNs: bigint | undefined;
  /** Undefined for a limit that denies by itself. */
  readonly mode?: Mode | undefined;
}

/** A header that the rules or the server add. */
export type Header = readonly [name: string, value: string];

/** Parts of a decision beside its statuses. */
export interface Extras {
  readonly error?: string | undefined;
  readonly errorMessage?: string | undefined;
  readonly requestHeaders?: readonly Header[];
  readonly responseHeaders?: readonly Header[];
  readonly body?: Uint8Array;
  readonly ticket?: string | undefined;
  readonly ticketCost?: bigint | undefined;
}

/** Whether a request may proceed, and what is left of its limits. */
export class Decision {
  /** Whether the request may proceed. */
  readonly allowed: boolean;
  /** The origin of the decision. */
  readonly reason: Reason;
  /** Requests per unit of the governing limit; undefined if no limit applies. */
  readonly limit: number | undefined;
  /** Hits left of the governing limit. */
  readonly remaining: number | undefined;
  /** The name of the governing limit; empty if it has none. */
  readonly rule: string;
  /** Nanoseconds until the governing limit resets; undefined if no wait helps. */
  readonly resetAfterNs: bigint | undefined;
  /** Nanoseconds after which a denied request would be admitted; undefined if allowed, or if no wait helps. */
  readonly retryAfterNs: bigint | undefined;
  /** Cause of a missing answer: the name of a gRPC status code, or `BREAKER_OPEN`; undefined if an answer arrived. */
  readonly error: string | undefined;
  /** The same in words, such as a refused connection; undefined if an answer arrived. */
  readonly errorMessage: string | undefined;
  /** Headers that the rules add to the request. */
  readonly requestHeaders: readonly Header[];
  /** Headers that the rules or the server add to the response. */
  readonly responseHeaders: readonly Header[];
  /** The body that the rules give a denial; empty if they give none. */
  readonly body: Uint8Array;
  /** Names the slots and estimates that the request holds; undefined if it holds none. */
  readonly ticket: string | undefined;
  /** Hits of the largest slot or estimate; 1 without a ticket. */
  readonly ticketCost: bigint;
  readonly #statuses: readonly Status[];
  readonly #elapsedNs: bigint;

  /** Creates a decision from its statuses; `elapsedNs` is how long ago they were true. */
  constructor(
    allowed: boolean,
    reason: Reason,
    statuses: readonly Status[] = [],
    extras: Extras = {},
    elapsedNs: bigint = 0n,
  ) {
    this.allowed = allowed;
    this.reason = reason;
    this.error = extras.error;
    this.errorMessage = extras.errorMessage;
    this.requestHeaders = extras.requestHeaders ?? [];
    this.responseHeaders = extras.responseHeaders ?? [];
    this.body = extras.body ?? EMPTY;
    this.ticket = extras.ticket;
    this.ticketCost = extras.ticketCost ?? 1n;
    this.#statuses = statuses;
    this.#elapsedNs = elapsedNs;
    const governing = allowed ? leastRemaining(statuses) : longestWait(statuses, true);
    this.limit = governing?.limit?.requests;
    this.remaining = governing?.remaining;
    this.rule = governing?.limit?.name ?? "";
    this.resetAfterNs = less(governing?.resetAfterNs, elapsedNs);
    this.retryAfterNs = allowed ? undefined : less(longestWait(statuses, false)?.resetAfterNs, elapsedNs);
  }

  /** Returns the same denial as of a later time, as decided locally. */
  after(elapsedNs: bigint): Decision {
    const responseHeaders = this.responseHeaders.map(([name, value]): Header => [name, aged(name, value, elapsedNs)]);
    const { requestHeaders, body } = this;
    return new Decision(false, "denied_locally", this.#statuses, { requestHeaders, responseHeaders, body }, elapsedNs);
  }

  /** Whether a denial holds for the same request until its reset: not if a quota or a queue denies. */
  get mayBeKept(): boolean {
    return !this.#statuses.some(({ overLimit, mode }) => overLimit && mode !== undefined);
  }

  /** One status for each descriptor, in order; empty without an answer. */
  get statuses(): readonly Status[] {
    const elapsedNs = this.#elapsedNs;
    if (elapsedNs === 0n) {
      return this.#statuses;
    }
    return this.#statuses.map((status) => ({ ...status, resetAfterNs: less(status.resetAfterNs, elapsedNs) }));
  }

  /** Milliseconds until the governing limit resets, rounded up; undefined if no wait helps. */
  get resetAfterMs(): number | undefined {
    return milliseconds(this.resetAfterNs);
  }

  /** Milliseconds after which a denied request would be admitted, rounded up; undefined if allowed, or if no wait helps. */
  get retryAfterMs(): number | undefined {
    return milliseconds(this.retryAfterNs);
  }

  /**
   * Returns the headers for the response: `RateLimit`, `RateLimit-Policy` and `Retry-After`, with `legacy` also
   * `X-RateLimit-…`. Headers of the server come last and replace those of the same name. A request that a rule marks has
   * those of the server only.
   */
  headers(options: { readonly legacy?: boolean } = {}): Record<string, string> {
    const headers: Record<string, string> = {};
    if (this.allowed && this.requestHeaders.length > 0) {
      // The client must not learn that it is marked.
      return Object.fromEntries(this.responseHeaders);
    }
    const statuses = this.statuses;
    const applying = distinct(statuses);
    if (applying.length > 0) {
      headers["RateLimit-Policy"] = applying.map(({ limit }) => policy(limit)).join(", ");
      const shown = this.allowed ? applying : distinct(denying(statuses));
      if (shown.length > 0) {
        headers["RateLimit"] = shown.map((one) => serviceLimit(one, !this.allowed)).join(", ");
      }
    }
    if (options.legacy === true && this.limit !== undefined) {
      headers["X-RateLimit-Limit"] = String(this.limit);
      headers["X-RateLimit-Remaining"] = String(Math.min(this.remaining ?? 0, this.limit));
      if (this.resetAfterNs !== undefined && !(this.allowed && leastRemaining(statuses)?.mode === "queued")) {
        headers["X-RateLimit-Reset"] = seconds(this.resetAfterNs);
      }
    }
    if (this.retryAfterNs !== undefined) {
      headers["Retry-After"] = seconds(this.retryAfterNs);
    }
    for (const [name, value] of this.responseHeaders) {
      for (const own of Object.keys(headers)) {
        if (own.toLowerCase() === name.toLowerCase()) {
          Reflect.deleteProperty(headers, own);
        }
      }
      headers[name] = value;
    }
    return headers;
  }
}

const EMPTY = new Uint8Array();

function leastRemaining(statuses: readonly Status[]): Status | undefined {
  let least: Status | undefined;
  for (const status of statuses) {
    if (status.limit !== undefined && (least === undefined || status.remaining < least.remaining)) {
      least = status;
    }
  }
  return least;
}

/** The statuses that deny: those over their limits, quotas only if all of them are. */
function denying(statuses: readonly Status[]): readonly Status[] {
  const doQuotasDeny = !statuses.some(({ mode, overLimit }) => mode === "quota" && !overLimit);
  return statuses.filter(({ mode, overLimit }) => overLimit && (mode !== "quota" || doQuotasDeny));
}

/** The denying statuses that have to reset: of quotas the first to do so. */
function awaited(statuses: readonly Status[]): readonly Status[] {
  const all = denying(statuses);
  let first: Status | undefined;
  for (const status of all) {
    if (status.mode === "quota" && (first === undefined || isLonger(first.resetAfterNs, status.resetAfterNs))) {
      first = status;
    }
  }
  return first === undefined ? all : all.filter((status) => status.mode !== "quota" || status === first);
}

function longestWait(statuses: readonly Status[], isLimited: boolean): Status | undefined {
  let longest: Status | undefined;
  for (const status of statuses.length === 1 ? statuses : awaited(statuses)) {
    if (!status.overLimit || (isLimited && status.limit === undefined)) {
      continue;
    }
    if (longest === undefined || isLonger(status.resetAfterNs, longest.resetAfterNs)) {
      longest = status;
    }
  }
  return longest;
}

/** Compares waits; an absent wait is longer than any. */
function isLonger(wait: bigint | undefined, than: bigint | undefined): boolean {
  return than !== undefined && (wait === undefined || wait > than);
}

function less(wait: bigint | undefined, elapsed: bigint): bigint | undefined {
  if (wait === undefined || elapsed === 0n) {
    return wait;
  }
  return wait > elapsed ? wait - elapsed : 0n;
}

function milliseconds(wait: bigint | undefined): number | undefined {
  return wait === undefined ? undefined : Math.ceil(Number(wait) / NANOS_PER_MILLISECOND);
}

/** A header of the server as of a later time: its seconds, rounded up. */
function aged(name: string, value: string, elapsedNs: bigint): string {
  const later = (text: string): string => seconds(less(BigInt(text) * NANOS_PER_SECOND, elapsedNs) ?? 0n);
  const lower = name.toLowerCase();
  if (["retry-after", "ratelimit-reset", "x-ratelimit-reset"].includes(lower) && /^\d+$/.test(value)) {
    return BigInt(value) >= UNIX_MIN ? value : later(value);
  }
  return lower === "ratelimit" ? value.replace(/;t=(\d+)/g, (_, text: string) => `;t=${later(text)}`) : value;
}

/** Rounds up: waiting that long is long enough. */
function seconds(wait: bigint): string {
  return String((wait + NANOS_PER_SECOND - 1n) / NANOS_PER_SECOND);
}

interface Limited {
  readonly limit: Limit;
  readonly status: Status;
}

/** The limits of the statuses, each once with its tighter status. */
function distinct(statuses: readonly Status[]): Limited[] {
  const found = new Map<string, Limited>();
  for (const status of statuses) {
    const limit = status.limit;
    if (limit === undefined) {
      continue;
    }
    const identity = limit.name === "" ? numbersOf(limit) : `"${limit.name}`;
    const known = found.get(identity);
    if (known === undefined || isTighter(status, known.status)) {
      found.set(identity, { limit, status });
    }
  }
  return [...found.values()];
}

function isTighter(status: Status, than: Status): boolean {
  if (status.overLimit !== than.overLimit) {
    return status.overLimit;
  }
  return status.overLimit ? isLonger(status.resetAfterNs, than.resetAfterNs) : status.remaining < than.remaining;
}

/** An item of `RateLimit`. An admission has no `t`: its reset is the time until the whole limit is free. */
function serviceLimit({ limit, status }: Limited, isDenial: boolean): string {
  const reset = !isDenial || status.resetAfterNs === undefined ? "" : `;t=${seconds(status.resetAfterNs)}`;
  return `${quoted(limit)};r=${Math.min(status.remaining, limit.requests)}${reset}`;
}
