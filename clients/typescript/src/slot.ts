/// <reference lib="esnext.disposable" preserve="true" />
import type { Decision } from "./decision.js";

/**
 * The slots of limits of requests in flight that a request holds until it is over: `await using slot = await client.acquire(…)`
 * releases them at the end of the scope. A request that is not allowed holds none.
 */
export class Slot {
  /** The decision on the request. */
  readonly decision: Decision;
  readonly #send: (ticket: string, cost: bigint | number | undefined) => Promise<void>;
  #isReleased = false;

  /** Creates the slots of a decision; `send` sends the release of their ticket: of so many hits, or of all. */
  constructor(decision: Decision, send: (ticket: string, cost: bigint | number | undefined) => Promise<void>) {
    this.decision = decision;
    this.#send = send;
  }

  /** Whether the request may proceed. */
  get allowed(): boolean {
    return this.decision.allowed;
  }

  /** Names the slots; undefined if the request holds none. */
  get ticket(): string | undefined {
    return this.decision.ticket;
  }

  /**
   * Releases the slots, or so many hits of each. A second release of all does nothing. What fails is logged, and the server
   * frees them after `max_hold`.
   */
  async release(cost?: bigint | number): Promise<void> {
    const { ticket } = this.decision;
    if (ticket === undefined || this.#isReleased) {
      return;
    }
    this.#isReleased = cost === undefined;
    await this.#send(ticket, cost);
  }

  /** Releases the slots at the end of a scope. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }
}
