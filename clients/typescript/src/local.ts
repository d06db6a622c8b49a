import { Decision, type Status } from "./decision.js";
import type { Limit } from "./limit.js";

/**
 * A limit that is counted in this process: for requests without an answer, and in tests of applications. It counts exactly, by the
 * algorithm of the server, and does not include other processes.
 */
export interface LocalLimit {
  /** The keys of a descriptor's entries, in order: each combination of values has a counter. */
  readonly keys: readonly string[];
  /** Hits that fit into a window, or into the bucket. */
  readonly requests: number;
  /** Length of the window, or time until an empty bucket is full. */
  readonly perMs: number;
  /** `token_bucket` unless set. */
  readonly algorithm?: "token_bucket" | "fixed_window";
  readonly name?: string;
}

/** Entries of a descriptor, its hits, and whether these are given back. */
export interface LocalPart {
  readonly entries: readonly (readonly [key: string, value: string])[];
  readonly cost: bigint;
  readonly givesBack: boolean;
}

/** A limit, its numbers, and how it appears in decisions. */
interface Rule {
  readonly keys: string;
  readonly requests: bigint;
  readonly perNs: bigint;
  readonly isBucket: boolean;
  readonly limit: Limit;
}

/** Hits used of a limit, in units of one hit times `perNs`, so that a bucket refills exactly. */
interface Counter {
  atNs: bigint;
  used: bigint;
}

interface Charge {
  readonly rule: Rule;
  readonly counter: Counter;
}

/** Counts requests in this process, all or nothing. The least recently used counter is dropped when there are too many. */
export class LocalLimits {
  readonly #rules: readonly Rule[];
  readonly #countersMax: number;
  readonly #clock: () => bigint;
  readonly #counters = new Map<string, Counter>();

  /** Creates the limits; `clock` returns Unix nanoseconds. */
  constructor(
    limits: readonly LocalLimit[],
    options: { readonly countersMax?: number; readonly clock?: () => bigint } = {},
  ) {
    this.#rules = limits.map(ruleOf);
    this.#countersMax = options.countersMax ?? 100_000;
    this.#clock = options.clock ?? steadyClock();
  }

  /** Decides a request, and takes or gives back its hits. */
  decide(parts: readonly LocalPart[]): Decision {
    const nowNs = this.#clock();
    const charges = parts.map((part) => ({ ...part, charge: this.#charge(part, nowNs) }));
    const isOver = charges.map(({ charge, cost, givesBack }) => {
      return !givesBack && charge !== undefined && !fits(charge, cost === 0n ? 1n : cost);
    });
    const allowed = !isOver.includes(true);
    const statuses = charges.map(({ charge, cost, givesBack }, index): Status => {
      if (charge === undefined) {
        return { overLimit: false, limit: undefined, remaining: 0, resetAfterNs: undefined };
      }
      const hits = cost * charge.rule.perNs;
      if (givesBack) {
        charge.counter.used = atLeastZero(charge.counter.used - hits);
      } else if (allowed) {
        charge.counter.used += hits;
      }
      return statusOf(charge, cost === 0n ? 1n : cost, isOver[index] === true);
    });
    for (const identity of this.#counters.keys()) {
      if (this.#counters.size <= this.#countersMax) {
        break;
      }
      this.#counters.delete(identity);
    }
    return new Decision(allowed, "decided", statuses);
  }

  #charge({ entries }: LocalPart, nowNs: bigint): Charge | undefined {
    const keys = JSON.stringify(entries.map(([key]) => key));
    const index = this.#rules.findIndex((rule) => rule.keys === keys);
    const rule = this.#rules[index];
    if (rule === undefined) {
      return undefined;
    }
    const identity = JSON.stringify([index, ...entries.map(([, value]) => value)]);
    const counter = this.#counters.get(identity) ?? { atNs: nowNs, used: 0n };
    // The map is in the order of use.
    this.#counters.delete(identity);
    this.#counters.set(identity, counter);
    // No time passes if a clock steps back.
    const atNs = nowNs > counter.atNs ? nowNs : counter.atNs;
    if (rule.isBucket) {
      counter.used = atLeastZero(counter.used - (atNs - counter.atNs) * rule.requests);
    } else if (atNs / rule.perNs !== counter.atNs / rule.perNs) {
      counter.used = 0n;
    }
    counter.atNs = atNs;
    return { rule, counter };
  }
}

/** A clock of Unix nanoseconds, set once. A wall clock that steps back would stop the refill of buckets. */
function steadyClock(): () => bigint {
  const startedMs = Date.now() - performance.now();
  return () => BigInt(Math.round((startedMs + performance.now()) * 1e6));
}

function ruleOf(given: LocalLimit): Rule {
  const { keys, requests, perMs, algorithm = "token_bucket", name = "" } = given;
  if (keys.length === 0 || !Number.isSafeInteger(requests) || requests < 1 || !(perMs >= 0.000_001)) {
    throw new RangeError(
      `a local limit is ${JSON.stringify(given)}; use at least one key, and whole requests and perMs above 0`,
    );
  }
  const perNs = BigInt(Math.round(perMs * 1e6));
  return {
    keys: JSON.stringify(keys),
    requests: BigInt(requests),
    perNs,
    isBucket: algorithm === "token_bucket",
    limit: { requests, unit: "", name, windowNs: perNs },
  };
}

function fits({ rule, counter }: Charge, cost: bigint): boolean {
  return counter.used + cost * rule.perNs <= rule.requests * rule.perNs;
}

/** The wait of such a request over the limit, or the time until the whole limit is free. */
function statusOf({ rule, counter }: Charge, cost: bigint, overLimit: boolean): Status {
  const { requests, perNs, isBucket, limit } = rule;
  const remaining = Number((requests * perNs - counter.used) / perNs);
  const excess = overLimit ? counter.used + (cost - requests) * perNs : counter.used;
  let resetAfterNs = (excess + requests - 1n) / requests;
  if (!isBucket) {
    resetAfterNs = counter.used > 0n || overLimit ? perNs - (counter.atNs % perNs) : 0n;
  }
  return { overLimit, limit, remaining, resetAfterNs: overLimit && cost > requests ? undefined : resetAfterNs };
}

function atLeastZero(value: bigint): bigint {
  return value > 0n ? value : 0n;
}
