/** Permission to call: none, as usual, or as the one call that tests whether the server answers again. */
export type Permit = "none" | "call" | "probe";

/** Time without an answer after which one failure opens the breaker, if another server is in use. */
const SILENT_NS = 250_000_000n;

/**
 * Opens after the maximum number of failures in a row. Once it has been open for the set time, it lets one call through.
 *
 * Failures of calls that were in flight together count as one, for instance when the process was stopped. While another server is in use,
 * one failure is enough if no call was answered for a quarter of a second: otherwise few calls would take long to find a server that hangs.
 */
export class Breaker {
  readonly #failuresMax: number;
  readonly #openNs: bigint;
  #failures = 0;
  /** When the last failure was counted. A call that was sent before counts as part of it. */
  #failedNs = 0n;
  /** When the last answered call was sent; undefined before the first. */
  #answeredNs: bigint | undefined;
  /** When a probe may be made; undefined while closed. */
  #probeAtNs: bigint | undefined;
  #isProbing = false;

  constructor(failuresMax: number, openNs: bigint) {
    this.#failuresMax = failuresMax;
    this.#openNs = openNs;
  }

  /** Whether calls fail at once. */
  get isOpen(): boolean {
    return this.#probeAtNs !== undefined;
  }

  enter(nowNs: bigint): Permit {
    if (this.#probeAtNs === undefined) {
      return "call";
    }
    if (this.#isProbing || nowNs < this.#probeAtNs) {
      return "none";
    }
    this.#isProbing = true;
    return "probe";
  }

  succeeded(permit: Permit, sentNs: bigint): void {
    this.#answeredNs = sentNs;
    if (permit === "probe") {
      this.#isProbing = false;
      this.#probeAtNs = undefined;
    }
    if (this.#probeAtNs === undefined) {
      this.#failures = 0;
    }
  }

  failed(permit: Permit, sentNs: bigint, nowNs: bigint, hasOther: boolean): void {
    if (this.#failuresMax === 0) {
      return;
    }
    if (permit === "probe") {
      this.#isProbing = false;
      this.#probeAtNs = nowNs + this.#openNs;
    } else if (this.#probeAtNs === undefined && (this.#failures === 0 || sentNs >= this.#failedNs)) {
      this.#failures += 1;
      this.#failedNs = nowNs;
      const isSilent = this.#answeredNs === undefined || nowNs - this.#answeredNs >= SILENT_NS;
      if (this.#failures >= this.#failuresMax || (hasOther && isSilent)) {
        this.#probeAtNs = nowNs + this.#openNs;
      }
    }
  }

  /** Records that the caller cancelled the call: neither a success nor a failure. */
  abandoned(permit: Permit): void {
    if (permit === "probe") {
      this.#isProbing = false;
    }
  }
}
