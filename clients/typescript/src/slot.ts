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
   * Creates the slots of a decision. `send` sends the descriptor that releases them; `renew` renews all slots and estimates of a ticket,
   * and resolves to whether they are held.
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
   * Releases the slots and keeps the estimates charged, or releases `cost` hits of each. A second end does nothing. A failure is logged,
   * and the server frees them after `max_hold`.
   */
  release(cost?: bigint | number): Promise<void> {
    return cost === undefined
      ? this.#sendHeld(this.decision.ticketCost, false, true)
      : this.#sendHeld(cost, true, false);
  }

  /**
   * Extends the hold of the slots and estimates to `max_hold` of their rules from now on, and resolves to whether all are still held. If
   * not, the request must not go on. Without an answer the client's policy decides. Takes no hits. Call it each third of `max_hold`, so
   * that a failed renewal can be repeated.
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

  /** Ends the request at no cost. */
  cancel(): Promise<void> {
    return this.#sendHeld(this.decision.ticketCost, true, true);
  }

  /** Releases the slots at the end of a scope, and keeps the estimates charged unless their cost was committed before. */
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
