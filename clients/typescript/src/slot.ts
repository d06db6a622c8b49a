/// <reference lib="esnext.disposable" preserve="true" />
import type { Decision } from "./decision.js";
import { Descriptor } from "./request.js";

/**
 * The slots of limits of requests in flight that a request holds until it is over, and the estimates of limits that reserve:
 * `await using slot = await client.acquire(…)` releases them at the end of the scope. A request that is not allowed holds none.
 */
export class Slot {
  /** The decision on the request. */
  readonly decision: Decision;
  readonly #send: (release: Descriptor) => Promise<void>;
  readonly #renew: (ticket: string) => Promise<boolean>;
  #isReleased = false;

  /**
   * Creates the slots of a decision; `send` sends the descriptor that releases them, and `renew` renews all that a ticket names, and
   * resolves to whether it is held.
   */
  constructor(
    decision: Decision,
    send: (release: Descriptor) => Promise<void>,
    renew: (ticket: string) => Promise<boolean>,
  ) {
    this.decision = decision;
    this.#send = send;
    this.#renew = renew;
  }

  /** Whether the request may proceed. */
  get allowed(): boolean {
    return this.decision.allowed;
  }

  /** Names the slots and estimates; undefined if the request holds none. */
  get ticket(): string | undefined {
    return this.decision.ticket;
  }

  /**
   * Releases the slots and keeps the estimates charged, or releases so many hits of each. A second end does nothing. What fails is
   * logged, and the server frees them after `max_hold`.
   */
  release(cost?: bigint | number): Promise<void> {
    return cost === undefined
      ? this.#sendHeld(this.decision.ticketCost, false, true)
      : this.#sendHeld(cost, true, false);
  }

  /**
   * Has the slots and estimates held for `max_hold` of their rules from now on, and resolves to whether all of them are held still: if
   * not, the request may not go on. Without an answer the policy of the client decides. Nothing is taken. Call it when a third of
   * `max_hold` has passed, and again after as long, so that one that fails can be repeated.
   */
  async renew(): Promise<boolean> {
    const { ticket } = this.decision;
    if (ticket === undefined) {
      return this.allowed;
    }
    return !this.#isReleased && (await this.#renew(ticket));
  }

  /** Ends the request with its actual cost, instead of its estimates, and releases the slots. Zero gives the estimates back. */
  commit(cost: bigint | number): Promise<void> {
    // Zero hits are a peek, which releases no slot.
    return Number(cost) === 0 ? this.cancel() : this.#sendHeld(cost, false, true);
  }

  /** Ends the request as one that cost nothing. */
  cancel(): Promise<void> {
    return this.#sendHeld(this.decision.ticketCost, true, true);
  }

  /** Releases the slots at the end of a scope, and keeps the estimates charged unless their cost was named before. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }

  async #sendHeld(cost: bigint | number, giveBack: boolean, isEnd: boolean): Promise<void> {
    const { ticket } = this.decision;
    if (ticket === undefined || this.#isReleased) {
      return;
    }
    const release = new Descriptor({ slot: ticket }, { cost, giveBack });
    this.#isReleased = isEnd;
    await this.#send(release);
  }
}
