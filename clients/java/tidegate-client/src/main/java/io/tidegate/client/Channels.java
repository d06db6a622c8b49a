package io.tidegate.client;

import io.grpc.ClientInterceptor;
import io.grpc.ConnectivityState;
import io.grpc.Grpc;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * The addresses of a client, each with its own breaker and its own channel, which verifies the
 * server by the name of its address. Calls take turns among connected addresses whose breaker is
 * closed. Thread-safe.
 */
final class Channels {
  /** A scheme of gRPC: {@code dns:///name}, {@code unix:/path}. */
  private static final Pattern TARGET = Pattern.compile("[a-z][a-z0-9+.-]*:(//.*|/.*)|dns:.*");

  /**
   * Connections to all addresses of a name. An address that accepts connections but fails most
   * calls is left out for a minute. That takes three calls in half a second, half of which fail.
   */
  private static final Map<String, ?> SERVICE_CONFIG =
      Map.of(
          "loadBalancingConfig",
          List.of(
              Map.of(
                  "outlier_detection_experimental",
                  Map.of(
                      "interval",
                      "0.5s",
                      "baseEjectionTime",
                      "60s",
                      "maxEjectionTime",
                      "60s",
                      "maxEjectionPercent",
                      50.0,
                      "failurePercentageEjection",
                      Map.of(
                          "threshold", 50.0,
                          "enforcementPercentage", 100.0,
                          "minimumHosts", 2.0,
                          "requestVolume", 3.0),
                      "childPolicy",
                      List.of(Map.of("round_robin", Map.of()))))));

  /** A target with one address. */
  private static final Pattern ONE_ADDRESS =
      Pattern.compile("\\d+(\\.\\d+){3}:\\d+|\\[[^]]*]:\\d+|unix:.*");

  private static final Pattern PORT = Pattern.compile("(\\[[^]]+]|[^:]+):\\d{1,5}");

  /** One address. */
  static final class Address {
    final RateLimitCalls calls;
    final Breaker breaker;

    Address(RateLimitCalls calls, Breaker breaker) {
      this.calls = calls;
      this.breaker = breaker;
    }
  }

  /**
   * The address of a call.
   *
   * @param address the address
   * @param permit the permission of its breaker
   * @param due an address whose breaker permits a probe, which is made beside the call; or null
   */
  record Choice(Address address, Breaker.Permit permit, @Nullable Address due) {}

  private final List<Address> addresses = new ArrayList<>();
  private final AtomicInteger next = new AtomicInteger();

  Channels(TidegateBuilder builder, List<ClientInterceptor> interceptors) {
    builder.addresses.forEach(Channels::check);
    long openNanos = LocalDenials.saturatedNanos(builder.breakerOpen);
    for (String address : builder.addresses) {
      addresses.add(
          new Address(
              new RateLimitCalls(
                  () -> open(address, builder, interceptors),
                  !ONE_ADDRESS.matcher(address).matches()),
              new Breaker(builder.breakerFailures, openNanos)));
    }
  }

  private static ManagedChannel open(
      String address, TidegateBuilder settings, List<ClientInterceptor> interceptors) {
    ManagedChannelBuilder<?> builder =
        configured(Grpc.newChannelBuilder(address, settings.credentials)).intercept(interceptors);
    if (settings.authority != null) {
      builder.overrideAuthority(settings.authority);
    }
    return builder.build();
  }

  /** Sets how a channel connects, and keeps its connections. */
  static ManagedChannelBuilder<?> configured(ManagedChannelBuilder<?> builder) {
    return builder
        .defaultServiceConfig(SERVICE_CONFIG)
        .keepAliveTime(30, TimeUnit.SECONDS)
        .keepAliveTimeout(5, TimeUnit.SECONDS)
        .keepAliveWithoutCalls(true)
        // By default a channel without calls closes its connections after 30 minutes, and the next
        // call has to connect within its timeout. More than 30 days switch that off.
        .idleTimeout(365, TimeUnit.DAYS)
        // A call is not idempotent. Without a retry policy gRPC repeats only calls that the
        // server provably did not process, such as those behind a GOAWAY.
        .disableServiceConfigLookUp();
  }

  /** Refuses an address without a port. Targets of gRPC with a scheme have their own syntax. */
  private static void check(String address) {
    if (!TARGET.matcher(address).matches() && !PORT.matcher(address).matches()) {
      throw new IllegalArgumentException(
          "the address " + address + " has no port; write host:port, such as 127.0.0.1:8081");
    }
  }

  int size() {
    return addresses.size();
  }

  void close() {
    addresses.forEach(address -> address.calls.close());
  }

  /** Whether another address is in use. */
  boolean hasOther(Address than) {
    return addresses.stream()
        .anyMatch(
            other ->
                other != than
                    && !other.breaker.isOpen()
                    && other.calls.state() == ConnectivityState.READY);
  }

  /** Chooses an address; null if no breaker permits a call. */
  @Nullable Choice choose(long nowNanos) {
    int count = addresses.size();
    if (count == 1) {
      Address only = addresses.get(0);
      Breaker.Permit permit = only.breaker.enter(nowNanos);
      return permit == Breaker.Permit.NONE ? null : new Choice(only, permit, null);
    }
    int start = Math.floorMod(next.getAndIncrement(), count);
    int[] ranks = new int[count];
    for (int offset = 0; offset < count; offset++) {
      ranks[offset] = rank(addresses.get((start + offset) % count).calls.state());
    }
    Address due = null;
    for (int rank = 0; rank <= 2; rank++) {
      for (int offset = 0; offset < count; offset++) {
        if (ranks[offset] != rank) {
          continue;
        }
        Address address = addresses.get((start + offset) % count);
        Breaker.Permit permit = address.breaker.enter(nowNanos);
        if (permit == Breaker.Permit.CALL) {
          return new Choice(address, permit, due);
        }
        if (permit == Breaker.Permit.PROBE) {
          if (due == null) {
            due = address;
          } else {
            address.breaker.cancelled(permit);
          }
        }
      }
    }
    return due == null ? null : new Choice(due, Breaker.Permit.PROBE, null);
  }

  /** Connected addresses are used first, those that could not be connected last. */
  private static int rank(ConnectivityState state) {
    return switch (state) {
      case READY -> 0;
      case TRANSIENT_FAILURE, SHUTDOWN -> 2;
      default -> 1;
    };
  }
}
