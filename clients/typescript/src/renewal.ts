/** Time within which a new connection has to be established. */
export const OPENED_MAX_MS = 5_000;

const LEAST_MS = 1_000;
const MOST_MS = 60_000;

/**
 * Permits one renewal of a connection at a time. The next is permitted after a second, which doubles up to a minute.
 *
 * A server that hangs costs one renewal. Servers that answer late on new connections too get no further load.
 */
export class Renewals {
  #isRunning = false;
  #nextMs = 0;
  #waitMs = LEAST_MS;

  /** Returns whether a renewal begins. */
  begin(nowMs: number): boolean {
    if (this.#isRunning || nowMs < this.#nextMs) {
      return false;
    }
    this.#isRunning = true;
    return true;
  }

  /** Records the end of a renewal, and whether the connection was replaced. */
  ended(isReplaced: boolean, nowMs: number): void {
    this.#isRunning = false;
    if (!isReplaced) {
      this.#nextMs = nowMs + LEAST_MS;
      return;
    }
    if (nowMs - this.#nextMs >= MOST_MS) {
      this.#waitMs = LEAST_MS;
    }
    this.#nextMs = nowMs + this.#waitMs;
    this.#waitMs = Math.min(2 * this.#waitMs, MOST_MS);
  }
}
