package io.tidegate.client.middleware;

import io.tidegate.client.CallOptions;
import io.tidegate.client.Decision;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BiFunction;
import java.util.function.IntPredicate;
import java.util.function.Predicate;
import java.util.function.ToLongFunction;
import org.jspecify.annotations.Nullable;

/** The requests that middleware limits, and how. Immutable. */
public final class Limits {
  private final List<List<Key>> descriptors;
  private final @Nullable ToLongFunction<RequestInfo> cost;
  private final Predicate<RequestInfo> skip;
  private final boolean legacyHeaders;
  private final CallOptions options;
  private final @Nullable BiFunction<Decision, RequestInfo, DeniedBody> deniedBody;
  private final @Nullable IntPredicate counts;

  private Limits(
      List<List<Key>> descriptors,
      @Nullable ToLongFunction<RequestInfo> cost,
      Predicate<RequestInfo> skip,
      boolean legacyHeaders,
      CallOptions options,
      @Nullable BiFunction<Decision, RequestInfo, DeniedBody> deniedBody,
      @Nullable IntPredicate counts) {
    this.descriptors = descriptors;
    this.cost = cost;
    this.skip = skip;
    this.legacyHeaders = legacyHeaders;
    this.options = options;
    this.deniedBody = deniedBody;
    this.counts = counts;
  }

  /**
   * Returns limits of one descriptor, with one hit for each request.
   *
   * @param keys its entries, in order; at least one
   * @return the limits
   */
  public static Limits of(Key... keys) {
    return of(List.of(keys));
  }

  /**
   * Returns limits of one descriptor, with one hit for each request.
   *
   * @param keys its entries, in order; at least one
   * @return the limits
   */
  public static Limits of(List<Key> keys) {
    return new Limits(
        List.of(checked(keys)), null, request -> false, false, CallOptions.DEFAULT, null, null);
  }

  private static List<Key> checked(List<Key> keys) {
    if (keys.isEmpty()) {
      throw new IllegalArgumentException(
          "no key; name at least one, such as Key.constant(\"route\", \"all\")");
    }
    return List.copyOf(keys);
  }

  /**
   * Returns limits with another descriptor; all are decided as one request.
   *
   * @param keys its entries, in order; at least one
   * @return the limits
   */
  public Limits and(Key... keys) {
    List<List<Key>> more = new ArrayList<>(descriptors);
    more.add(checked(List.of(keys)));
    return new Limits(List.copyOf(more), cost, skip, legacyHeaders, options, deniedBody, counts);
  }

  /**
   * Returns limits with another number of hits.
   *
   * @param hits returns the hits of a request
   * @return the limits
   */
  public Limits cost(ToLongFunction<RequestInfo> hits) {
    return new Limits(descriptors, hits, skip, legacyHeaders, options, deniedBody, counts);
  }

  /**
   * Returns limits that leave requests out, such as health checks.
   *
   * @param skipped returns whether a request is not limited
   * @return the limits
   */
  public Limits skip(Predicate<RequestInfo> skipped) {
    return new Limits(descriptors, cost, skipped, legacyHeaders, options, deniedBody, counts);
  }

  /**
   * Returns limits that send {@code X-RateLimit-…} headers as well, or do not.
   *
   * @param sent whether they are sent
   * @return the limits
   */
  public Limits legacyHeaders(boolean sent) {
    return new Limits(descriptors, cost, skip, sent, options, deniedBody, counts);
  }

  /**
   * Returns limits with options for each call; their cost applies unless {@link
   * #cost(ToLongFunction)} is set.
   *
   * @param ofCalls the options
   * @return the limits
   */
  public Limits options(CallOptions ofCalls) {
    return new Limits(descriptors, cost, skip, legacyHeaders, ofCalls, deniedBody, counts);
  }

  /**
   * Returns limits whose denials over HTTP have a body of the application.
   *
   * @param made returns the body of a denial
   * @return the limits
   */
  public Limits deniedBody(BiFunction<Decision, RequestInfo, DeniedBody> made) {
    return new Limits(descriptors, cost, skip, legacyHeaders, options, made, counts);
  }

  /**
   * Returns limits of requests over HTTP that count by the status of their response. The hits of
   * other requests are given back at their end: for limits without {@code reserve} only.
   *
   * @param counted returns whether a request with a status counts
   * @return the limits
   */
  public Limits counts(IntPredicate counted) {
    return new Limits(descriptors, cost, skip, legacyHeaders, options, deniedBody, counted);
  }

  @Nullable BiFunction<Decision, RequestInfo, DeniedBody> deniedBody() {
    return deniedBody;
  }

  @Nullable IntPredicate counts() {
    return counts;
  }

  /** The keys of each descriptor. */
  List<List<Key>> descriptors() {
    return descriptors;
  }

  @Nullable ToLongFunction<RequestInfo> cost() {
    return cost;
  }

  boolean skips(RequestInfo request) {
    return skip.test(request);
  }

  boolean legacyHeaders() {
    return legacyHeaders;
  }

  CallOptions options() {
    return options;
  }
}
