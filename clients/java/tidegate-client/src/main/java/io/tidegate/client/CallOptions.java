package io.tidegate.client;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/** Options of one call, instead of the client's. Immutable. */
public final class CallOptions {
  /** One hit, and the client's own options. */
  public static final CallOptions DEFAULT = new CallOptions(1, null, null, null, true);

  private final long cost;
  private final @Nullable String domain;
  private final @Nullable OnFailure onFailure;
  private final @Nullable Duration timeout;
  private final boolean localDenials;

  private CallOptions(
      long cost,
      @Nullable String domain,
      @Nullable OnFailure onFailure,
      @Nullable Duration timeout,
      boolean localDenials) {
    this.cost = cost;
    this.domain = domain;
    this.onFailure = onFailure;
    this.timeout = timeout;
    this.localDenials = localDenials;
  }

  /**
   * Returns options with this number of hits to take or to give back.
   *
   * @param hits 0 or more
   * @return the options
   */
  public CallOptions cost(long hits) {
    return new CallOptions(checkedCost(hits), domain, onFailure, timeout, localDenials);
  }

  /**
   * Returns options with another domain.
   *
   * @param name the domain, as in the rules
   * @return the options
   */
  public CallOptions domain(String name) {
    return new CallOptions(cost, name, onFailure, timeout, localDenials);
  }

  /**
   * Returns options with another decision for requests without an answer.
   *
   * @param policy the policy
   * @return the options
   */
  public CallOptions onFailure(OnFailure policy) {
    return new CallOptions(cost, domain, policy, timeout, localDenials);
  }

  /**
   * Returns options with another time until an answer counts as missing.
   *
   * @param time more than zero
   * @return the options
   */
  public CallOptions timeout(Duration time) {
    return new CallOptions(cost, domain, onFailure, checkedTimeout(time), localDenials);
  }

  /**
   * Returns options that use kept denials, as by default, or do not.
   *
   * @param used whether a kept denial may decide, and a denial is kept
   * @return the options
   */
  public CallOptions localDenials(boolean used) {
    return new CallOptions(cost, domain, onFailure, timeout, used);
  }

  long cost() {
    return cost;
  }

  @Nullable String domain() {
    return domain;
  }

  @Nullable OnFailure onFailure() {
    return onFailure;
  }

  @Nullable Duration timeout() {
    return timeout;
  }

  boolean localDenials() {
    return localDenials;
  }

  static long checkedCost(long hits) {
    if (hits < 0) {
      throw new IllegalArgumentException(
          "the cost is " + hits + "; use 0 or more (giveBack returns hits)");
    }
    return hits;
  }

  static Duration checkedTimeout(Duration time) {
    if (time.isNegative() || time.isZero()) {
      throw new IllegalArgumentException("the timeout is " + time + "; use more than zero");
    }
    return time;
  }
}
