import type { Decision } from "./decision.js";
import type { Request } from "./request.js";

interface Kept {
  readonly costs: readonly bigint[];
  readonly decision: Decision;
  readonly sentNs: bigint;
  readonly untilNs: bigint;
}

/**
 * Keeps denials until their reset, for a bounded time. When it is full, the least recently used denial is dropped.
 *
 * A kept denial decides only requests that the server would deny too, unless the limit was reset, replaced or raised since the denial, or
 * another process gave hits back. The bound limits how long that goes unnoticed.
 */
export class LocalDenials {
  readonly #max: number;
  readonly #keptNsMax: bigint;
  /** In the order of use, the least recent first. */
  readonly #kept = new Map<string, Kept>();
  /** Domains and keys for which hits were given back. */
  readonly #givenBack = new Set<string>();

  constructor(max: number, keptNsMax: bigint) {
    this.#max = keptNsMax > 0n ? max : 0;
    this.#keptNsMax = keptNsMax;
  }

  /** Whether any denial is ever kept. */
  get isOn(): boolean {
    return this.#max > 0;
  }

  /** Returns the denial of the request as of now, if it is kept. */
  find(request: Request, nowNs: bigint): Decision | undefined {
    const identity = request.identity;
    const kept = this.#kept.get(identity);
    if (kept === undefined) {
      return undefined;
    }
    if (nowNs >= kept.untilNs) {
      this.#kept.delete(identity);
      return undefined;
    }
    // A smaller request may fit where a larger request does not.
    if (request.givesBack || request.costs.some((cost, index) => cost < (kept.costs[index] ?? 0n))) {
      return undefined;
    }
    this.#kept.delete(identity);
    this.#kept.set(identity, kept);
    return kept.decision.after(nowNs - kept.sentNs);
  }

  /** Keeps a denial until its reset or the bound, counted from the moment its call was sent. */
  keep(request: Request, decision: Decision, sentNs: bigint): void {
    const wait = decision.retryAfterNs;
    // A request of 0 hits is denied if one hit does not fit: the denial does not apply to 0 hits themselves.
    if (!this.isOn || wait === undefined || wait === 0n || request.givesBack || request.costs.includes(0n)) {
      return;
    }
    if (!decision.mayBeKept) {
      return;
    }
    const keptNs = wait < this.#keptNsMax ? wait : this.#keptNsMax;
    if (this.#givenBack.size > 0 && request.shapes(false).some((shape) => this.#givenBack.has(shape))) {
      return;
    }
    this.#kept.delete(request.identity);
    this.#kept.set(request.identity, { costs: request.costs, decision, sentNs, untilNs: sentNs + keptNs });
    if (this.#kept.size > this.#max) {
      for (const oldest of this.#kept.keys()) {
        this.#kept.delete(oldest);
        break;
      }
    }
  }

  /** Stops keeping denials for the keys of the descriptors that give back. */
  endFor(request: Request): void {
    for (const shape of request.shapes(true)) {
      if (!this.#givenBack.has(shape)) {
        this.#givenBack.add(shape);
        // Rare: once for each combination of keys.
        this.#kept.clear();
      }
    }
  }
}
