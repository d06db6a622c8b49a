/**
 * A client for tests of applications: it connects to nothing, and the test makes the decisions.
 *
 * @packageDocumentation
 */
import { Decision, type Limit } from "./decision.js";
import { RateLimiter, type CallOptions } from "./engine.js";
import { unitNs } from "./limit.js";
import { LocalLimits, type LocalLimit } from "./local.js";
import { Request, textOf, type DescriptorLike } from "./request.js";

/** A call of a client. */
export interface FakeCall {
  readonly operation: "limit" | "peek" | "giveBack";
  readonly domain: string;
  /** The entries of each descriptor. */
  readonly entries: readonly Readonly<Record<string, string>>[];
  /** Hits of each descriptor; 0 of a peek. */
  readonly costs: readonly bigint[];
  /** Whether hits are given back. */
  readonly givesBack: boolean;
}

/** The decision on each call, or a function that makes it. */
export type Decide = Decision | ((call: FakeCall) => Decision);

/** A client that connects to nothing: `new FakeTidegate(denied({ retryAfterMs: 30_000 }))`. */
export class FakeTidegate extends RateLimiter {
  /** The calls so far. */
  readonly calls: FakeCall[] = [];
  readonly #decide: Decide;
  readonly #domain: string;

  constructor(decide: Decide = admitted(), domain = "test") {
    super([], {});
    this.#decide = decide;
    this.#domain = domain;
  }

  override limit(given: DescriptorLike | readonly DescriptorLike[], options: CallOptions = {}): Promise<Decision> {
    return this.#called("limit", given, options);
  }

  override peek(given: DescriptorLike | readonly DescriptorLike[], options: CallOptions = {}): Promise<Decision> {
    return this.#called("peek", given, { ...options, cost: 0 });
  }

  override giveBack(given: DescriptorLike | readonly DescriptorLike[], options: CallOptions = {}): Promise<Decision> {
    return this.#called("giveBack", given, options);
  }

  // eslint-disable-next-line @typescript-eslint/require-await -- errors of the caller reject, as those of a client do.
  async #called(
    operation: FakeCall["operation"],
    given: DescriptorLike | readonly DescriptorLike[],
    options: CallOptions,
  ): Promise<Decision> {
    const domain = options.domain ?? this.#domain;
    const request = new Request(domain, given, options.cost ?? 1, operation === "giveBack");
    const entries = request.message().descriptors.map((descriptor) => {
      return Object.fromEntries(descriptor.entries.map(({ key, value }) => [key, textOf(value)]));
    });
    const call = { operation, domain, entries, costs: request.costs, givesBack: request.givesBack };
    this.calls.push(call);
    return typeof this.#decide === "function" ? this.#decide(call) : this.#decide;
  }
}

/**
 * Counts as a server with these limits does: `new FakeTidegate(counting([{ keys: ["user"], requests: 5, perMs: 60_000 }]))`. The clock
 * returns Unix nanoseconds, which a test may set.
 */
export function counting(
  limits: readonly LocalLimit[],
  options: { readonly clock?: () => bigint } = {},
): (call: FakeCall) => Decision {
  const local = new LocalLimits(limits, { clock: () => BigInt(Date.now()) * 1_000_000n, ...options });
  return ({ entries, costs, givesBack }) =>
    local.decide(entries.map((one, index) => ({ entries: Object.entries(one), givesBack, cost: costs[index] ?? 1n })));
}

const minute = (requests: number, name: string): Limit => ({
  requests,
  unit: "minute",
  name,
  windowNs: unitNs("minute"),
});

/** An admission by a limit of 100 requests a minute, unless another limit is given; with a `ticket` it holds slots or estimates. */
export function admitted(
  given: {
    readonly limit?: number;
    readonly remaining?: number;
    readonly rule?: string;
    readonly ticket?: string;
    readonly ticketCost?: bigint;
  } = {},
): Decision {
  const { limit = 100, remaining = 99, rule = "", ticket, ticketCost } = given;
  const status = { overLimit: false, limit: minute(limit, rule), remaining, resetAfterNs: 60_000_000_000n };
  return new Decision(true, "decided", [status], { ticket, ticketCost });
}

/** A denial by a limit of 100 requests a minute, unless another limit is given. */
export function denied(
  given: { readonly limit?: number; readonly retryAfterMs?: number; readonly rule?: string } = {},
): Decision {
  const { limit = 100, retryAfterMs = 60_000, rule = "" } = given;
  const resetAfterNs = BigInt(Math.round(retryAfterMs * 1e6));
  return new Decision(false, "decided", [{ overLimit: true, limit: minute(limit, rule), remaining: 0, resetAfterNs }]);
}

/** The decision without an answer, of the policy `open` or `closed`. */
export function failed(policy: "open" | "closed" = "open", error = "UNAVAILABLE"): Decision {
  const isOpen = policy === "open";
  return new Decision(isOpen, isOpen ? "failed_open" : "failed_closed", [], { error, errorMessage: "a test" });
}
