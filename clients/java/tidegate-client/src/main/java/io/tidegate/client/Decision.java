package io.tidegate.client;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;

/**
 * Whether a request may proceed, and what is left of its limits. Immutable.
 *
 * <p>The governing status of a denial is the one over its limit with the longest reset; that of an
 * admission is the one with the least hits left.
 */
public final class Decision {
  private final boolean allowed;
  private final Reason reason;
  private final List<Status> statuses;
  private final Additions additions;
  private final Duration elapsed;
  private final @Nullable Status governing;
  private final @Nullable Duration retryAfter;

  /** Headers, body and error of a decision. */
  record Additions(
      List<Header> requestHeaders,
      List<Header> responseHeaders,
      byte[] body,
      @Nullable String error,
      @Nullable String errorMessage,
      @Nullable String ticket,
      long ticketCost) {
    static final Additions NONE =
        new Additions(List.of(), List.of(), new byte[0], null, null, null, 1);
  }

  Decision(boolean allowed, Reason reason, List<Status> statuses, Additions additions) {
    this(allowed, reason, statuses, additions, Duration.ZERO);
  }

  /** A decision whose statuses were true {@code elapsed} ago. */
  private Decision(
      boolean allowed,
      Reason reason,
      List<Status> statuses,
      Additions additions,
      Duration elapsed) {
    this.allowed = allowed;
    this.reason = reason;
    this.statuses = statuses;
    this.additions = additions;
    this.elapsed = elapsed;
    Status governs = allowed ? leastRemaining(statuses) : longestDenial(denying(statuses));
    this.governing = governs == null || governs.limit() == null ? null : governs;
    this.retryAfter = allowed || governs == null ? null : less(governs.resetAfter());
  }

  /**
   * Creates the decision of a server that admits a request, for tests of applications.
   *
   * @param statuses one for each descriptor; none if no limit applies
   * @return the decision
   */
  public static Decision admitted(Status... statuses) {
    return new Decision(true, Reason.DECIDED, List.of(statuses), Additions.NONE);
  }

  /**
   * Creates the decision of a server that denies a request by an unnamed limit of one request per
   * second, for tests of applications.
   *
   * @param retryAfter time until it would be admitted; null if no wait helps
   * @return the decision
   */
  public static Decision denied(@Nullable Duration retryAfter) {
    return denied(List.of(new Status(true, new Limit(1, "second", ""), 0, retryAfter)));
  }

  /**
   * Creates the decision of a server that denies a request, for tests of applications.
   *
   * @param statuses one for each descriptor
   * @return the decision
   */
  public static Decision denied(List<Status> statuses) {
    return new Decision(false, Reason.DECIDED, List.copyOf(statuses), Additions.NONE);
  }

  /**
   * Creates the decision of a policy on a request without an answer, for tests of applications.
   *
   * @param policy the policy
   * @param error the name of a gRPC status code, such as {@code DEADLINE_EXCEEDED}
   * @return the decision
   */
  public static Decision failed(OnFailure policy, String error) {
    return failed(policy, error, "a fake client has no server");
  }

  static Decision failed(OnFailure policy, String error, String message) {
    return failed(policy == OnFailure.OPEN, List.of(), error, message);
  }

  /** The decision of the fallback on a request without an answer, which counted it. */
  static Decision counted(Decision counted, String error, String message) {
    return failed(counted.allowed(), counted.statuses(), error, message);
  }

  private static Decision failed(
      boolean isOpen, List<Status> statuses, String error, String message) {
    return new Decision(
        isOpen,
        isOpen ? Reason.FAILED_OPEN : Reason.FAILED_CLOSED,
        statuses,
        new Additions(List.of(), List.of(), new byte[0], error, message, null, 1));
  }

  /**
   * Returns the decision with headers and a body of a rule, for tests of applications.
   *
   * @param ofRequest headers that the rules add to the request
   * @param ofResponse headers that the rules or the server add to the response
   * @param body the body of a denial; empty for the application's own
   * @return the decision
   */
  public Decision with(List<Header> ofRequest, List<Header> ofResponse, byte[] body) {
    Additions more =
        new Additions(
            List.copyOf(ofRequest),
            List.copyOf(ofResponse),
            body.clone(),
            additions.error(),
            additions.errorMessage(),
            additions.ticket(),
            additions.ticketCost());
    return new Decision(allowed, reason, statuses, more, elapsed);
  }

  /**
   * Returns the decision on a request that holds slots, for tests of applications.
   *
   * @param ticket what names them
   * @return the decision
   */
  public Decision withTicket(String ticket) {
    return withTicket(ticket, 1);
  }

  /**
   * Returns the decision on a request that holds slots or estimates, for tests of applications.
   *
   * @param ticket what names them
   * @param cost hits of the largest of them
   * @return the decision
   */
  public Decision withTicket(String ticket, long cost) {
    Additions more =
        new Additions(
            additions.requestHeaders(),
            additions.responseHeaders(),
            additions.body(),
            additions.error(),
            additions.errorMessage(),
            ticket,
            cost);
    return new Decision(allowed, reason, statuses, more, elapsed);
  }

  /** Returns the same denial as of a later time, as decided locally. */
  Decision after(Duration time) {
    return new Decision(false, Reason.DENIED_LOCALLY, statuses, additions, time);
  }

  /** {@return whether the request may proceed} */
  public boolean allowed() {
    return allowed;
  }

  /** {@return the origin of the decision} */
  public Reason reason() {
    return reason;
  }

  /** {@return requests per unit of the governing limit; empty if no limit applies} */
  public OptionalLong limit() {
    return governing == null || governing.limit() == null
        ? OptionalLong.empty()
        : OptionalLong.of(governing.limit().requests());
  }

  /** {@return hits left of the governing limit; empty if no limit applies} */
  public OptionalLong remaining() {
    return governing == null ? OptionalLong.empty() : OptionalLong.of(governing.remaining());
  }

  /** {@return the name of the governing limit; empty if it has none} */
  public String rule() {
    return governing == null || governing.limit() == null ? "" : governing.limit().name();
  }

  /** {@return time until the governing limit resets, exact; empty if no wait helps} */
  public Optional<Duration> resetAfter() {
    return governing == null ? Optional.empty() : Optional.ofNullable(less(governing.resetAfter()));
  }

  /**
   * {@return time after which a denied request would be admitted, exact; empty if allowed, or if no
   * wait helps}
   */
  public Optional<Duration> retryAfter() {
    return Optional.ofNullable(retryAfter);
  }

  /** {@return one status for each descriptor, in order; empty without an answer} */
  public List<Status> statuses() {
    if (elapsed.isZero()) {
      return statuses;
    }
    return statuses.stream()
        .map(
            one ->
                new Status(
                    one.overLimit(),
                    one.limit(),
                    one.remaining(),
                    less(one.resetAfter()),
                    one.mode()))
        .toList();
  }

  /**
   * {@return why no answer arrived: the name of a gRPC status code, or {@code BREAKER_OPEN}; empty
   * if an answer arrived}
   */
  public Optional<String> error() {
    return Optional.ofNullable(additions.error());
  }

  /**
   * {@return the cause of a missing answer in words, such as a refused connection; empty if an
   * answer arrived}
   */
  public Optional<String> errorMessage() {
    return Optional.ofNullable(additions.errorMessage());
  }

  /** {@return the name of the slots and estimates of the request; empty if it holds none} */
  public Optional<String> ticket() {
    return Optional.ofNullable(additions.ticket());
  }

  /** {@return hits of the largest slot or estimate of the ticket; 1 without a ticket} */
  public long ticketCost() {
    return additions.ticketCost();
  }

  /** {@return headers that the rules add to the request} */
  public List<Header> requestHeaders() {
    return additions.requestHeaders();
  }

  /** {@return headers that the rules or the server add to the response} */
  public List<Header> responseHeaders() {
    return elapsed.isZero()
        ? additions.responseHeaders()
        : additions.responseHeaders().stream().map(one -> one.after(elapsed)).toList();
  }

  /** Whether a limit marks the request instead of denying it. The client must not learn that. */
  boolean isMarked() {
    return allowed && !additions.requestHeaders().isEmpty();
  }

  /** {@return the body that the rules give a denial; empty for the caller's own} */
  public byte[] body() {
    return additions.body().clone();
  }

  /**
   * Returns the headers for the response: {@code RateLimit}, {@code RateLimit-Policy} and {@code
   * Retry-After}. Headers of the server come last and replace those of the same name.
   *
   * @return values by name, in order
   */
  public Map<String, String> headers() {
    return ResponseHeaders.of(this, false);
  }

  /**
   * Returns {@link #headers()} with {@code X-RateLimit-Limit}, {@code X-RateLimit-Remaining} and
   * {@code X-RateLimit-Reset} of the governing limit.
   *
   * @return values by name, in order
   */
  public Map<String, String> legacyHeaders() {
    return ResponseHeaders.of(this, true);
  }

  @Override
  public String toString() {
    return "Decision[allowed=%s, reason=%s, limit=%s, remaining=%s, retryAfter=%s, rule=%s, error=%s, errorMessage=%s]"
        .formatted(
            allowed,
            reason.label(),
            limit(),
            remaining(),
            retryAfter,
            rule(),
            additions.error(),
            additions.errorMessage());
  }

  private static @Nullable Status leastRemaining(List<Status> statuses) {
    Status least = null;
    for (Status status : statuses) {
      if (status.limit() != null && (least == null || status.remaining() < least.remaining())) {
        least = status;
      }
    }
    return least;
  }

  /** The statuses that deny: those over their limits, quotas only if all of them are. */
  static List<Status> denying(List<Status> statuses) {
    boolean quotasDeny =
        statuses.stream().allMatch(one -> one.mode() != Mode.QUOTA || one.overLimit());
    return statuses.stream()
        .filter(one -> one.overLimit() && (quotasDeny || one.mode() != Mode.QUOTA))
        .toList();
  }

  /**
   * The denying status with the longest wait. Of denying quotas, only the quota with the shortest
   * wait counts: the request is admitted when the first quota resets.
   */
  private static @Nullable Status longestDenial(List<Status> denying) {
    Status quota = null;
    for (Status status : denying) {
      if (status.mode() == Mode.QUOTA
          && (quota == null || isLonger(quota.resetAfter(), status.resetAfter()))) {
        quota = status;
      }
    }
    Status longest = null;
    for (Status status : denying) {
      if (status.mode() == Mode.QUOTA && status != quota) {
        continue;
      }
      if (longest == null || isLonger(status.resetAfter(), longest.resetAfter())) {
        longest = status;
      }
    }
    return longest;
  }

  /** Compares waits; an absent wait is longer than any. */
  static boolean isLonger(@Nullable Duration wait, @Nullable Duration than) {
    return than != null && (wait == null || wait.compareTo(than) > 0);
  }

  private @Nullable Duration less(@Nullable Duration wait) {
    if (wait == null || elapsed.isZero()) {
      return wait;
    }
    return wait.compareTo(elapsed) > 0 ? wait.minus(elapsed) : Duration.ZERO;
  }
}
