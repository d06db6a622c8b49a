package io.tidegate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.ForwardingChannelBuilder2;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannelBuilder;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Several addresses, servers that hang, and functions of the caller that throw. */
class AddressesTest {
  private static final String HUNDRED =
      "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100000}}]}";
  private static final Descriptor USER = Descriptor.of("user", "a");

  private final Servers servers = new Servers();

  @AfterEach
  void close() throws Exception {
    servers.close();
  }

  private static TidegateBuilder builder(String... addresses) {
    return Tidegate.builder(addresses).domain("d").localDenials(0);
  }

  /** Records the time after which a channel without calls closes its connections. */
  private static final class IdleRecorder extends ForwardingChannelBuilder2<IdleRecorder> {
    Duration idle = Duration.ofMinutes(30);

    @Override
    protected ManagedChannelBuilder<?> delegate() {
      return Grpc.newChannelBuilder("127.0.0.1:1", InsecureChannelCredentials.create());
    }

    @Override
    public IdleRecorder idleTimeout(long time, TimeUnit unit) {
      idle = Duration.of(time, unit.toChronoUnit());
      return this;
    }
  }

  @Test
  void connectionsWithoutCallsAreKept() {
    IdleRecorder recorder = new IdleRecorder();
    Channels.configured(recorder);
    assertTrue(recorder.idle.compareTo(Duration.ofDays(30)) > 0, recorder.idle.toString());
  }

  @Test
  void oneFrozenServerOfTwoFailsAtMostFiveDecisions() throws Exception {
    Servers.Server frozen = servers.serve(HUNDRED);
    Tidegate client =
        servers.client(
            builder(frozen.address(), servers.serve(HUNDRED).address())
                .timeout(Duration.ofSeconds(1))
                .breaker(5, Duration.ofMillis(50)));
    for (int call = 0; call < 200; call++) {
      client.limit(USER);
    }
    frozen.signal("STOP");
    int failures = 0;
    long firstNanos = 0;
    long lastNanos = 0;
    long startedNanos = System.nanoTime();
    // Long enough for several probes, each of which takes a deadline.
    while (System.nanoTime() - startedNanos < 5_000_000_000L) {
      if (client.limit(USER).reason() != Reason.DECIDED) {
        lastNanos = System.nanoTime();
        firstNanos = failures++ == 0 ? lastNanos : firstNanos;
      }
    }
    // The breaker's failures, and one for a call that a loaded machine delays.
    assertTrue(failures >= 1 && failures <= 6, failures + " decisions failed");
    assertTrue(lastNanos - firstNanos < 2_000_000_000L, lastNanos - firstNanos + " ns");
    // Each server counts for itself: the restarted server has counted less.
    long before = client.limit(USER).remaining().orElseThrow();
    frozen.signal("CONT");
    long continuedNanos = System.nanoTime();
    while (client.limit(USER).remaining().orElse(0) <= before) {
      assertTrue(System.nanoTime() - continuedNanos < 20_000_000_000L, "it is not used again");
    }
  }

  @Test
  void concurrentFailuresOfOneStallAreOne() {
    Tidegate client =
        servers.client(builder(servers.misbehaving("slow=60s")).timeout(Duration.ofMillis(300)));
    client.limit(USER);
    List<CompletableFuture<Decision>> calls =
        IntStream.range(0, 8).mapToObj(call -> client.limitAsync(USER)).toList();
    calls.forEach(call -> assertEquals("DEADLINE_EXCEEDED", call.join().error().orElse("")));
    assertEquals("DEADLINE_EXCEEDED", client.limit(USER).error().orElse(""));
  }

  @Test
  void anAddressThatRefusesConnectionsCostsNoCall() {
    String refused = servers.misbehaving("refused");
    Tidegate client =
        servers.client(
            builder(refused, servers.serve(HUNDRED).address()).timeout(Duration.ofSeconds(10)));
    for (int call = 1; call <= 6; call++) {
      Decision decision = call % 2 == 0 ? client.limit(USER) : client.limitAsync(USER).join();
      assertEquals(100_000 - call, decision.remaining().orElse(0), decision.toString());
    }
  }

  @Test
  void anAddressWithoutAPortIsRefused() {
    for (String address : List.of("127.0.0.1", "localhost", "[::1]", "::1", "localhost:")) {
      IllegalArgumentException refused =
          assertThrows(IllegalArgumentException.class, () -> Tidegate.builder(address).build());
      assertTrue(String.valueOf(refused.getMessage()).contains("write host:port"), address);
    }
    for (String address : List.of("[::1]:1", "localhost:1", "unix:/a", "dns:///name:1")) {
      Tidegate.builder(address).build().close();
    }
  }

  @Test
  void aPermitIsReturnedWhenASourceOfMetadataOrAnInterceptorThrows() {
    AtomicLong nowNanos = new AtomicLong();
    String refused = servers.misbehaving("refused");
    for (boolean isSource : List.of(true, false)) {
      boolean[] throwing = {false};
      TidegateBuilder builder =
          builder(refused)
              .timeout(Duration.ofSeconds(5))
              .breaker(1, Duration.ofNanos(1))
              .clock(nowNanos::get)
              .observe(
                  (decision, taken) -> {
                    throw new IllegalStateException("of an observer");
                  });
      Runnable problem =
          () -> {
            if (throwing[0]) {
              throw new IllegalStateException("of the application");
            }
          };
      if (isSource) {
        builder.metadata(metadata -> problem.run());
      } else {
        builder.intercept(
            new io.grpc.ClientInterceptor() {
              @Override
              public <Q, R> io.grpc.ClientCall<Q, R> interceptCall(
                  io.grpc.MethodDescriptor<Q, R> method,
                  io.grpc.CallOptions options,
                  io.grpc.Channel next) {
                problem.run();
                return next.newCall(method, options);
              }
            });
      }
      Tidegate client = servers.client(builder);
      client.limit(USER);
      assertEquals("BREAKER_OPEN", client.limit(USER).error().orElse(""));
      nowNanos.incrementAndGet();
      throwing[0] = true;
      if (isSource) {
        assertEquals("UNAVAILABLE", client.limit(USER).error().orElse(""));
        nowNanos.incrementAndGet();
        assertEquals("UNAVAILABLE", client.limitAsync(USER).join().error().orElse(""));
      } else {
        assertThrows(IllegalStateException.class, () -> client.limit(USER));
        assertThrows(IllegalStateException.class, () -> client.limitAsync(USER));
      }
      throwing[0] = false;
      nowNanos.incrementAndGet();
      assertEquals("UNAVAILABLE", client.limit(USER).error().orElse(""));
    }
  }

  @Test
  void aFakeClientReturnsTheDecisionsOfATest() {
    Tidegate client =
        Tidegate.fake(
            call ->
                call.costs().get(0) == 0
                    ? Decision.admitted()
                    : call.givesBack()
                        ? Decision.failed(OnFailure.CLOSED, "DEADLINE_EXCEEDED")
                        : Decision.denied(Duration.ofSeconds(90)));
    assertTrue(client.peek(USER).allowed());
    assertEquals("90", client.limit(USER).headers().get("Retry-After"));
    assertEquals(Reason.FAILED_CLOSED, client.giveBack(USER).reason());
    client.close();
    client.close();
    assertThrows(IllegalStateException.class, () -> client.limit(USER));
    assertThrows(IllegalArgumentException.class, () -> client.limit(Descriptor.of("", "a")));
    assertThrows(
        IllegalArgumentException.class, () -> client.limit(Descriptor.of("user", "\ud800")));
  }

  @Test
  void theServersOwnHeadersOfAKeptDenialAge() {
    Decision denied =
        Decision.denied(Duration.ofSeconds(90))
            .with(
                List.of(),
                List.of(
                    new Header("retry-after", "90"),
                    new Header("RateLimit", "\"a\";r=0;t=90, \"b\";r=0"),
                    new Header("x-help", "90")),
                new byte[0]);
    assertEquals(
        List.of(
            new Header("retry-after", "88"),
            new Header("RateLimit", "\"a\";r=0;t=88, \"b\";r=0"),
            new Header("x-help", "90")),
        denied.after(Duration.ofMillis(2500)).responseHeaders());
  }
}
