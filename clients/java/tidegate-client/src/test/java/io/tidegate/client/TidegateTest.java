package io.tidegate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Metadata;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.TraceFlags;
import io.opentelemetry.api.trace.TraceState;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.Scope;
import io.opentelemetry.context.propagation.ContextPropagators;
import io.tidegate.client.metrics.MicrometerObserver;
import io.tidegate.client.tracing.TraceContext;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class TidegateTest {
  private static final String HUNDRED =
      "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]}";
  private static final String FAST =
      "{domain: d, descriptors: [{key: user, rate_limit: {per: 200ms, requests_per_unit: 2,"
          + " algorithm: token_bucket}}]}";
  private static final Descriptor USER = Descriptor.of("user", "a");

  private final Servers servers = new Servers();

  @AfterEach
  void close() throws Exception {
    servers.close();
  }

  private static TidegateBuilder builder(String... addresses) {
    return Tidegate.builder(addresses).domain("d").timeout(Duration.ofSeconds(20));
  }

  @Test
  void aThousandConcurrentCallsAdmitExactlyTheLimit() {
    Tidegate client = servers.client(builder(servers.serve(HUNDRED).address()));
    List<CompletableFuture<Decision>> calls =
        IntStream.range(0, 1000).mapToObj(call -> client.limitAsync(USER)).toList();
    List<Decision> decisions = calls.stream().map(CompletableFuture::join).toList();
    assertEquals(100, decisions.stream().filter(Decision::allowed).count());
    Set<Reason> expected = Set.of(Reason.DECIDED, Reason.DENIED_LOCALLY);
    assertTrue(decisions.stream().map(Decision::reason).allMatch(expected::contains));
  }

  @Test
  void eachCallIsAnsweredWhileTheServerIsRestarted() throws Exception {
    Servers.Server server = servers.serve(HUNDRED);
    Tidegate client =
        servers.client(
            builder(server.address())
                .timeout(Duration.ofMillis(500))
                .onFailure(OnFailure.CLOSED)
                .breaker(5, Duration.ofMillis(100))
                .localDenials(0));
    Set<Reason> seen = new LinkedHashSet<>();
    callUntil(client, Reason.DECIDED, seen);
    server.kill();
    callUntil(client, Reason.FAILED_CLOSED, seen);
    servers.serveOn(server.address(), HUNDRED);
    callUntil(client, Reason.DECIDED, seen);
    assertEquals(List.of(Reason.DECIDED, Reason.FAILED_CLOSED), List.copyOf(seen));
  }

  private static void callUntil(Tidegate client, Reason reason, Set<Reason> seen)
      throws InterruptedException {
    long deadline = System.nanoTime() + Duration.ofSeconds(15).toNanos();
    while (System.nanoTime() < deadline) {
      Decision decision = client.limit(USER);
      seen.add(decision.reason());
      assertEquals(decision.reason() == Reason.DECIDED, decision.error().isEmpty());
      if (decision.reason() == reason) {
        return;
      }
      Thread.sleep(1);
    }
    throw new AssertionError("no decision is " + reason);
  }

  @Test
  void theTimeOfAResetDoesNotAge() {
    Duration elapsed = Duration.ofMillis(2_500);
    Header reset = new Header("x-ratelimit-reset", "1767225600");
    assertEquals(reset, reset.after(elapsed));
    Header wait = new Header("X-RateLimit-Reset", "60");
    assertEquals(new Header("X-RateLimit-Reset", "58"), wait.after(elapsed));
  }

  @Test
  void aTimeoutMayBeLongerThanTheClockRuns() {
    Tidegate client =
        servers.client(
            builder("127.0.0.1:" + Servers.unusedPort())
                .timeout(Duration.ofSeconds(Long.MAX_VALUE)));
    assertEquals("UNAVAILABLE", client.limit(USER).error().orElseThrow());
  }

  @Test
  void waitingEndsWhenTheHitsFitOrAtOnceIfTheyCannot() throws Exception {
    Tidegate client = servers.client(builder(servers.serve(FAST).address()));
    CallOptions two = CallOptions.DEFAULT.cost(2);
    long started = System.nanoTime();
    assertTrue(client.limit(List.of(USER), two).allowed());
    Duration patient = Duration.ofSeconds(5);
    Decision waited = client.waitUntilReady(patient, List.of(USER), two);
    assertTrue(waited.allowed());
    assertEquals(Reason.DECIDED, waited.reason());
    assertTrue(System.nanoTime() - started > 190_000_000);
    assertTrue(client.waitUntilReadyAsync(patient, List.of(USER), two).get().allowed());
    assertTrue(System.nanoTime() - started > 380_000_000);
    assertFalse(client.waitUntilReady(Duration.ofMillis(50), List.of(USER), two).allowed());
    CallOptions three = CallOptions.DEFAULT.cost(3);
    List<Descriptor> other = List.of(Descriptor.of("user", "b"));
    assertFalse(client.waitUntilReady(patient, other, three).allowed());
  }

  @Test
  void waitingFailsIfTheClientIsClosedMeanwhile() {
    Tidegate client = Tidegate.fake(call -> Decision.denied(Duration.ofMillis(1)));
    CompletableFuture<Decision> waiting =
        client.waitUntilReadyAsync(Duration.ofMinutes(1), List.of(USER), CallOptions.DEFAULT);
    client.close();
    ExecutionException failed =
        assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
    assertInstanceOf(IllegalStateException.class, failed.getCause());
  }

  @Test
  void aUnixSocketAndSeveralAddresses() throws Exception {
    Path socket = servers.folder().resolve("t.sock");
    servers.serveOn("unix:" + socket, HUNDRED);
    Tidegate overSocket = servers.client(builder("unix:" + socket));
    assertEquals(99, overSocket.limit(USER).remaining().orElseThrow());

    String one = servers.serve(HUNDRED).address();
    String other = servers.serve(HUNDRED).address();
    Tidegate client = servers.client(builder(one, other).localDenials(0));
    Set<Long> remaining = new HashSet<>();
    int calls = 0;
    // The second connection may take a moment.
    long deadline = System.nanoTime() + Duration.ofSeconds(5).toNanos();
    for (; remaining.size() == calls && System.nanoTime() < deadline; calls++) {
      remaining.add(client.limit(USER).remaining().orElseThrow());
    }
    assertTrue(remaining.size() < calls);
    assertThrows(IllegalArgumentException.class, () -> Tidegate.builder().build());
  }

  @Test
  void errorsOfTheCallerAreThrownAndNeverFailOpen() {
    Tidegate client = servers.client(builder(servers.serve(HUNDRED).address()));
    Descriptor overlong = Descriptor.of("user", "x".repeat(2_000_000));
    RequestException refused = assertThrows(RequestException.class, () -> client.limit(overlong));
    assertEquals(io.grpc.Status.Code.OUT_OF_RANGE, refused.code());
    ExecutionException later =
        assertThrows(ExecutionException.class, () -> client.limitAsync(overlong).get());
    assertInstanceOf(RequestException.class, later.getCause());
    assertThrows(IllegalArgumentException.class, () -> CallOptions.DEFAULT.cost(-1));
    assertThrows(IllegalArgumentException.class, client::limit);
    CallOptions noDomain = CallOptions.DEFAULT.domain("");
    assertThrows(IllegalArgumentException.class, () -> client.limit(List.of(USER), noDomain));
    assertThrows(IllegalArgumentException.class, () -> USER.limit(1, "fortnight"));
  }

  @Test
  void aCancelledCallIsNoFailure() throws Exception {
    Set<Reason> seen = new HashSet<>();
    Tidegate client =
        servers.client(
            builder(servers.misbehaving("slow=1s"))
                .breaker(1, Duration.ofSeconds(60))
                .observe((decision, taken) -> seen.add(decision.reason())));
    CompletableFuture<Decision> call = client.limitAsync(USER);
    call.cancel(false);
    assertThrows(CancellationException.class, call::get);
    Thread.currentThread().interrupt();
    assertThrows(CancellationException.class, () -> client.limit(USER));
    assertTrue(Thread.interrupted());
    client.limit(USER);
    assertEquals(Set.of(Reason.DECIDED), seen);
  }

  @Test
  void observersSeeEachDecision() {
    SimpleMeterRegistry registry = new SimpleMeterRegistry();
    MicrometerObserver observer = new MicrometerObserver(registry);
    Tidegate client = servers.client(builder(servers.serve(HUNDRED).address()).observe(observer));
    client.limit(List.of(USER), CallOptions.DEFAULT.cost(100));
    client.limit(USER);
    client.limit(USER);
    servers.client(builder("127.0.0.1:" + Servers.unusedPort()).observe(observer)).limit(USER);
    assertEquals(1, count(registry, "true", "decided", ""));
    assertEquals(1, count(registry, "false", "decided", ""));
    assertEquals(1, count(registry, "false", "denied_locally", ""));
    assertEquals(1, count(registry, "true", "failed_open", "UNAVAILABLE"));
    assertEquals(
        2, registry.get("tidegate.client.duration").tag("reason", "decided").timer().count());
  }

  private static double count(
      SimpleMeterRegistry registry, String allowed, String reason, String error) {
    return registry
        .get("tidegate.client.decisions")
        .tags("allowed", allowed, "reason", reason, "error", error)
        .counter()
        .count();
  }

  @Test
  void theTraceContextIsPassedOn() {
    OpenTelemetry openTelemetry =
        OpenTelemetry.propagating(
            ContextPropagators.create(W3CTraceContextPropagator.getInstance()));
    Metadata.Key<String> traceparent =
        Metadata.Key.of("traceparent", Metadata.ASCII_STRING_MARSHALLER);
    Set<String> sent = new HashSet<>();
    Tidegate client =
        servers.client(
            builder(servers.serve(HUNDRED).address())
                .metadata(new TraceContext(openTelemetry))
                .metadata(metadata -> sent.add(String.valueOf(metadata.get(traceparent)))));
    String traceId = "0af7651916cd43dd8448eb211c80319c";
    String spanId = "b7ad6b7169203331";
    SpanContext caller =
        SpanContext.create(traceId, spanId, TraceFlags.getSampled(), TraceState.getDefault());
    try (Scope scope = Span.wrap(caller).makeCurrent()) {
      client.limit(USER);
    }
    String expected = "00-" + traceId + "-" + spanId + "-01";
    assertEquals(Set.of(expected), sent);
  }

  @Test
  void aSlotIsReleasedOnceAlsoByAnInterruptedThreadAndNoneWithoutATicket() {
    List<Call> calls = new CopyOnWriteArrayList<>();
    Tidegate client =
        Tidegate.fake(
            call -> {
              calls.add(call);
              return Decision.admitted().withTicket("slot-1");
            });
    CallOptions options = CallOptions.DEFAULT.domain("other");
    try (Slot slot = client.acquire(List.of(Descriptor.of("user", "ann")), options)) {
      slot.release(2);
      Thread.currentThread().interrupt();
    }
    assertTrue(Thread.interrupted());
    assertEquals(List.of("other", "other", "other"), calls.stream().map(Call::domain).toList());
    assertEquals(List.of(false, true, false), calls.stream().map(Call::givesBack).toList());
    assertEquals(List.of(2L), calls.get(1).costs());
    for (Decision decision :
        List.of(
            Decision.denied(Duration.ofSeconds(1)),
            Decision.failed(OnFailure.OPEN, "UNAVAILABLE"),
            Decision.admitted())) {
      calls.clear();
      Tidegate other =
          Tidegate.fake(
              call -> {
                calls.add(call);
                return decision;
              });
      try (Slot slot = other.acquire(Descriptor.of("user", "ann"))) {
        assertEquals(decision.allowed(), slot.allowed());
      }
      assertEquals(1, calls.size());
    }
    Tidegate reserving =
        Tidegate.fake(
            call -> {
              calls.add(call);
              return Decision.admitted().withTicket("slot-1", 40);
            });
    Map<Consumer<Slot>, Long> ends =
        Map.of(Slot::release, 40L, slot -> slot.commit(7), 7L, slot -> slot.commit(0), -40L);
    ends.forEach(
        (end, expected) -> {
          calls.clear();
          try (Slot slot = reserving.acquire(Descriptor.of("user", "ann"))) {
            end.accept(slot);
            slot.cancel();
          }
          assertEquals(2, calls.size());
          assertEquals(List.of(Math.abs(expected)), calls.get(1).costs());
          assertEquals(expected < 0, calls.get(1).givesBack());
        });
    // A closed client: logged, and no exception of the block.
    try (Slot slot = client.acquire(Descriptor.of("user", "ann"))) {
      client.close();
      assertTrue(slot.allowed());
    }
  }
}
