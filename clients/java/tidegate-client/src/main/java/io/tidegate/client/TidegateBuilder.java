package io.tidegate.client;

import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptor;
import io.grpc.InsecureChannelCredentials;
import io.grpc.Metadata;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;

/** Settings of a client. */
public final class TidegateBuilder {
  final List<String> addresses;
  String domain = "";
  Duration timeout = Duration.ofMillis(50);
  Duration connectTimeout = Duration.ofSeconds(5);
  OnFailure onFailure = OnFailure.OPEN;
  List<LocalLimit> fallback = List.of();
  int localDenialsMax = 10_000;
  Duration localDenialsFor = Duration.ofSeconds(1);
  int breakerFailures = 5;
  Duration breakerOpen = Duration.ofSeconds(1);
  ChannelCredentials credentials = InsecureChannelCredentials.create();
  @Nullable String authority;
  final List<Consumer<Metadata>> metadata = new ArrayList<>();
  final List<ClientInterceptor> interceptors = new ArrayList<>();
  final List<DecisionObserver> observers = new ArrayList<>();
  LongSupplier clock = System::nanoTime;

  /** Decides instead of a server, in tests of applications. */
  @Nullable Function<Call, Decision> fake;

  TidegateBuilder(List<String> addresses) {
    this.addresses = addresses;
  }

  /**
   * Sets the domain of calls that name none.
   *
   * @param name the domain, as in the rules
   * @return this builder
   */
  public TidegateBuilder domain(String name) {
    this.domain = name;
    return this;
  }

  /**
   * Sets the time until an answer counts as missing; 50 ms by default.
   *
   * @param time more than zero
   * @return this builder
   */
  public TidegateBuilder timeout(Duration time) {
    this.timeout = CallOptions.checkedTimeout(time);
    return this;
  }

  /**
   * Sets the timeout of the first call, which opens the connection and loads gRPC's classes, if it
   * is longer than that of other calls; 5 s by default.
   *
   * @param time zero for the timeout of other calls
   * @return this builder
   */
  public TidegateBuilder connectTimeout(Duration time) {
    this.connectTimeout = time;
    return this;
  }

  /**
   * Sets the decision on requests without an answer; {@link OnFailure#OPEN} by default.
   *
   * @param policy the policy
   * @return this builder
   */
  public TidegateBuilder onFailure(OnFailure policy) {
    this.onFailure = policy;
    return this;
  }

  /**
   * Sets limits that count requests without an answer in this process; the policy decides requests
   * that none of them limits. With a fallback, a service of ten processes admits up to ten times as
   * much.
   *
   * @param limits the limits
   * @return this builder
   */
  public TidegateBuilder fallback(LocalLimit... limits) {
    this.fallback = List.of(limits);
    return this;
  }

  /**
   * Sets how many denials are kept; 10,000 by default.
   *
   * @param max 0 to keep none
   * @return this builder
   */
  public TidegateBuilder localDenials(int max) {
    if (max < 0) {
      throw new IllegalArgumentException("localDenials is " + max + "; use 0 or more");
    }
    this.localDenialsMax = max;
    return this;
  }

  /**
   * Sets the longest time for which a denial is kept, never beyond its reset; 1 s by default.
   *
   * @param longest zero to keep none
   * @return this builder
   */
  public TidegateBuilder localDenialsFor(Duration longest) {
    this.localDenialsFor = longest;
    return this;
  }

  /**
   * Sets after how many failures in a row calls fail at once, and for how long; 5 and 1 s by
   * default.
   *
   * @param failures 0 to switch the breaker off
   * @param open time until another call is tried
   * @return this builder
   */
  public TidegateBuilder breaker(int failures, Duration open) {
    if (failures < 0) {
      throw new IllegalArgumentException("failures is " + failures + "; use 0 or more");
    }
    this.breakerFailures = failures;
    this.breakerOpen = open;
    return this;
  }

  /**
   * Sets the credentials of connections, for TLS and mTLS: {@link io.grpc.TlsChannelCredentials}.
   *
   * @param channelCredentials the credentials
   * @return this builder
   */
  public TidegateBuilder credentials(ChannelCredentials channelCredentials) {
    this.credentials = channelCredentials;
    return this;
  }

  /**
   * Sets the name that the server's certificate has to have, if it is not that of the address.
   *
   * @param name the name
   * @return this builder
   */
  public TidegateBuilder authority(String name) {
    this.authority = name;
    return this;
  }

  /**
   * Adds a source of metadata, such as {@link io.tidegate.client.tracing.TraceContext}.
   *
   * @param source called for each call with its metadata, on the thread of the caller
   * @return this builder
   */
  public TidegateBuilder metadata(Consumer<Metadata> source) {
    this.metadata.add(source);
    return this;
  }

  /**
   * Adds an interceptor of gRPC.
   *
   * @param interceptor the interceptor
   * @return this builder
   */
  public TidegateBuilder intercept(ClientInterceptor interceptor) {
    this.interceptors.add(interceptor);
    return this;
  }

  /**
   * Adds an observer, such as {@link io.tidegate.client.metrics.MicrometerObserver}.
   *
   * @param observer called with each decision
   * @return this builder
   */
  public TidegateBuilder observe(DecisionObserver observer) {
    this.observers.add(observer);
    return this;
  }

  /**
   * Sets the clock; {@link System#nanoTime} by default.
   *
   * @param monotonicNanos returns monotonic nanoseconds
   * @return this builder
   */
  public TidegateBuilder clock(LongSupplier monotonicNanos) {
    this.clock = monotonicNanos;
    return this;
  }

  /**
   * Returns a client. It connects with its first call.
   *
   * @return the client
   */
  public Tidegate build() {
    if (addresses.isEmpty() && fake == null) {
      throw new IllegalArgumentException("no address; name one, such as 127.0.0.1:8081");
    }
    return new Tidegate(this);
  }
}
