package io.tidegate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.DynamicTest.dynamicTest;

import com.fasterxml.jackson.databind.JsonNode;
import io.tidegate.client.middleware.ClientAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** The cases of {@code clients/conformance}, with the blocking and the asynchronous calls. */
class ConformanceTest {
  /** A case, run with its servers. */
  private interface Body {
    void run(JsonNode of, Servers servers) throws Exception;
  }

  private static Stream<DynamicTest> tests(String file, Body body) {
    return Servers.cases(file).stream()
        .filter(one -> one.path("needs").isEmpty())
        .map(
            one ->
                dynamicTest(
                    one.get("name").asText(),
                    () -> {
                      try (Servers servers = new Servers()) {
                        body.run(one, servers);
                      }
                    }));
  }

  @TestFactory
  Stream<DynamicTest> vectors() {
    return tests("vectors", ConformanceTest::vector);
  }

  private static void vector(JsonNode scenario, Servers servers) throws Exception {
    List<String> arguments = new ArrayList<>(List.of("--test-clock"));
    if (!scenario.get("compat").isNull()) {
      arguments.addAll(List.of("--compat", scenario.get("compat").asText()));
    }
    String address =
        servers.serve(scenario.get("rules").asText(), arguments.toArray(String[]::new)).address();
    Servers.Clock clock = servers.clock(address);
    Tidegate client = servers.client(builder(address).localDenials(0));
    int number = 0;
    for (JsonNode step : scenario.get("steps")) {
      for (int repetition = 0; repetition < step.get("times").asInt(); repetition++) {
        long millis =
            scenario.get("start_unix_ms").asLong()
                + step.get("at").get(0).asLong()
                + repetition * step.get("every_ms").asLong();
        clock.set(millis / 1000, millis % 1000 * 1_000_000 + step.get("at").get(1).asLong());
        List<Descriptor> descriptors = descriptors(step.get("descriptors"));
        // Alternates, so that both kinds of call run every scenario.
        Decision decision =
            (number + repetition) % 2 == 0
                ? client.limit(descriptors, CallOptions.DEFAULT)
                : client.limitAsync(descriptors, CallOptions.DEFAULT).get();
        check(decision, step.get("decision"), "step " + number);
      }
      number++;
    }
  }

  private static void check(Decision decision, JsonNode expected, String where) {
    assertEquals(Reason.DECIDED, decision.reason(), where);
    assertEquals(expected.get("allowed").asBoolean(), decision.allowed(), where);
    assertEquals(headers(expected.get("request_headers")), decision.requestHeaders(), where);
    assertEquals(headers(expected.get("response_headers")), decision.responseHeaders(), where);
    assertEquals(
        expected.get("body").asText(), new String(decision.body(), StandardCharsets.UTF_8), where);
    assertEquals(expected.get("statuses").size(), decision.statuses().size(), where);
    int index = 0;
    for (Status status : decision.statuses()) {
      JsonNode of = expected.get("statuses").get(index++);
      assertEquals(of.get("over_limit").asBoolean(), status.overLimit(), where);
      if (of.has("remaining")) {
        assertEquals(of.get("remaining").asLong(), status.remaining(), where);
      }
      if (of.has("reset_after")) {
        assertEquals(time(of.get("reset_after")), status.resetAfter(), where);
      }
      if (of.has("limit")) {
        assertEquals(limit(of.get("limit")), status.limit(), where);
      }
    }
  }

  @TestFactory
  Stream<DynamicTest> headers() {
    return tests("headers", (one, servers) -> header(one));
  }

  @TestFactory
  Stream<DynamicTest> quotaHeaders() {
    return tests("quota", (one, servers) -> header(one));
  }

  private static @Nullable Mode mode(String name) {
    return name.isEmpty() ? null : Mode.valueOf(name.toUpperCase(Locale.ROOT));
  }

  private static void header(JsonNode one) {
    JsonNode given = one.get("decision");
    List<Status> statuses =
        elements(given.get("statuses"))
            .map(
                status ->
                    new Status(
                        status.get("over_limit").asBoolean(),
                        limit(status.get("limit")),
                        status.get("remaining").asLong(),
                        time(status.get("reset_after")),
                        mode(status.path("mode").asText(""))))
            .toList();
    Decision decision =
        new Decision(
            given.get("allowed").asBoolean(),
            Reason.valueOf(given.get("reason").asText().toUpperCase(Locale.ROOT)),
            statuses,
            new Decision.Additions(
                List.of(),
                headers(given.get("response_headers")),
                new byte[0],
                null,
                null,
                null,
                1));
    JsonNode fields = one.get("fields");
    assertEquals(number(fields.get("limit")), boxed(decision.limit()));
    assertEquals(number(fields.get("remaining")), boxed(decision.remaining()));
    assertEquals(time(fields.get("reset_after")), decision.resetAfter().orElse(null));
    assertEquals(time(fields.get("retry_after")), decision.retryAfter().orElse(null));
    assertEquals(fields.get("rule").asText(), decision.rule());
    Map<String, String> expected = texts(one.get("headers"));
    assertEquals(lower(expected), lower(decision.headers()));
    Map<String, String> withLegacy = new LinkedHashMap<>(expected);
    withLegacy.putAll(texts(one.get("legacy")));
    assertEquals(lower(withLegacy), lower(decision.legacyHeaders()));
  }

  @TestFactory
  Stream<DynamicTest> localDenials() {
    return tests("local_denials", ConformanceTest::localDenial);
  }

  @TestFactory
  Stream<DynamicTest> localDenialsRetention() {
    return tests("retention", ConformanceTest::localDenial);
  }

  private static void localDenial(JsonNode one, Servers servers) throws Exception {
    String address = servers.serve(one.get("rules").asText(), "--test-clock").address();
    Servers.Clock serverClock = servers.clock(address);
    AtomicLong nowNanos = new AtomicLong();
    int max = one.get("client").path("local_denials_max").asInt(10_000);
    Duration keptFor =
        Duration.ofMillis(one.get("client").path("local_denials_for_ms").asLong(1000));
    Tidegate client =
        servers.client(
            builder(address).localDenials(max).localDenialsFor(keptFor).clock(nowNanos::get));
    int number = 0;
    for (JsonNode step : one.get("steps")) {
      long nanos = step.get("at").get(0).asLong() * 1_000_000 + step.get("at").get(1).asLong();
      nowNanos.set(nanos);
      serverClock.set(1_700_006_400L + nanos / 1_000_000_000, nanos % 1_000_000_000);
      List<Descriptor> descriptors = descriptors(step.get("descriptors"));
      CallOptions options =
          CallOptions.DEFAULT
              .cost(step.path("cost").asLong(1))
              .timeout(Duration.ofMillis(step.path("timeout_ms").asLong(5000)))
              .localDenials(step.path("local_denials").asBoolean(true));
      Decision decision =
          switch (step.get("op").asText()) {
            case "limit" -> client.limit(descriptors, options);
            case "peek" -> client.peek(descriptors, options);
            case "give_back" -> client.giveBack(descriptors, options);
            default -> throw new IllegalArgumentException(step.get("op").asText());
          };
      JsonNode expected = step.get("expect");
      String where = "step " + number++ + ": " + decision;
      assertEquals(expected.get("allowed").asBoolean(), decision.allowed(), where);
      assertEquals(expected.get("reason").asText(), decision.reason().label(), where);
      if (expected.has("retry_after")) {
        assertEquals(time(expected.get("retry_after")), decision.retryAfter().orElse(null), where);
      }
    }
  }

  @TestFactory
  Stream<DynamicTest> slots() {
    return tests("slots", ConformanceTest::slot);
  }

  private static void slot(JsonNode one, Servers servers) throws Exception {
    for (boolean isAsync : new boolean[] {false, true}) {
      slot(one, servers, isAsync);
    }
  }

  private static void slot(JsonNode one, Servers servers, boolean isAsync) throws Exception {
    String address = servers.serve(one.get("rules").asText(), "--test-clock").address();
    Servers.Clock clock = servers.clock(address);
    Tidegate client = servers.client(builder(address));
    Map<String, Slot> slots = new LinkedHashMap<>();
    int number = 0;
    for (JsonNode step : one.get("steps")) {
      long nanos = step.get("at").get(0).asLong() * 1_000_000 + step.get("at").get(1).asLong();
      clock.set(1_700_006_400L + nanos / 1_000_000_000, nanos % 1_000_000_000);
      JsonNode expected = step.path("expect");
      String where = "step " + number + (isAsync ? ", async" : "");
      String name = step.path("slot").asText();
      switch (step.get("op").asText()) {
        case "acquire" -> {
          List<Descriptor> descriptors = descriptors(step.get("descriptors"));
          CallOptions options = CallOptions.DEFAULT.cost(step.get("cost").asLong());
          Slot slot =
              isAsync
                  ? client.acquireAsync(descriptors, options).get()
                  : client.acquire(descriptors, options);
          assertEquals(expected.get("allowed").asBoolean(), slot.allowed(), where);
          assertEquals(expected.get("ticket").asBoolean(), slot.ticket().isPresent(), where);
          slots.put(name, slot);
        }
        case "release" -> {
          if (!step.get("cost").isNull()) {
            slots.get(name).release(step.get("cost").asLong());
          } else if (isAsync) {
            slots.get(name).releaseAsync().get();
          } else {
            slots.get(name).release();
          }
        }
        case "renew" -> {
          Slot slot = slots.get(name);
          boolean isHeld = isAsync ? slot.renewAsync().get() : slot.renew();
          assertEquals(expected.get("held").asBoolean(), isHeld, where);
        }
        case "commit" -> {
          long cost = step.get("cost").asLong();
          if (isAsync) {
            slots.get(name).commitAsync(cost).get();
          } else {
            slots.get(name).commit(cost);
          }
        }
        case "cancel" -> slots.get(name).cancel();
        case "end" -> slots.get(name).close();
        case "peek" -> {
          Decision decision =
              client.peek(descriptors(step.get("descriptors")), CallOptions.DEFAULT);
          assertEquals(expected.get("allowed").asBoolean(), decision.allowed(), where);
          assertEquals(
              expected.get("remaining").asLong(), decision.remaining().orElseThrow(), where);
        }
        default -> throw new IllegalArgumentException(step.get("op").asText());
      }
      number++;
    }
  }

  @TestFactory
  Stream<DynamicTest> failures() {
    return tests("failures", ConformanceTest::failure);
  }

  private static void failure(JsonNode one, Servers servers) {
    JsonNode settings = one.get("client");
    AtomicLong nowNanos = new AtomicLong();
    Tidegate client =
        servers.client(
            builder(servers.misbehaving(one.get("fault").asText()))
                .timeout(Duration.ofMillis(settings.get("deadline_ms").asLong()))
                .connectTimeout(Duration.ZERO)
                .onFailure(
                    OnFailure.valueOf(settings.get("on_failure").asText().toUpperCase(Locale.ROOT)))
                .breaker(
                    settings.get("breaker_failures").asInt(),
                    Duration.ofMillis(settings.get("breaker_open_ms").asLong()))
                .clock(nowNanos::get));
    long started = System.nanoTime();
    for (JsonNode expected : one.get("expect")) {
      nowNanos.addAndGet(expected.path("advance_ms").asLong() * 1_000_000);
      List<Integer> unread = new ArrayList<>();
      for (int call = 0; call < expected.path("calls").asInt(); call++) {
        Decision decision = client.limit(Descriptor.of("user", "a"));
        String where = "call " + call + ": " + decision;
        // Netty closes a connection at a failed write, with a GOAWAY unread. The next call has
        // another connection.
        boolean isUnread =
            expected.has("if_goaway_unread")
                && decision.error().isPresent()
                && !unread.contains(call - 1);
        if (isUnread) {
          unread.add(call);
        }
        JsonNode outcome = isUnread ? expected.get("if_goaway_unread") : expected;
        assertEquals(outcome.get("allowed").asBoolean(), decision.allowed(), where);
        assertEquals(outcome.get("reason").asText(), decision.reason().label(), where);
        String message = decision.errorMessage().orElse("").toLowerCase(Locale.ROOT);
        assertTrue(message.contains(outcome.path("message").asText("")), where);
        if (outcome.has("remaining")) {
          assertEquals(outcome.get("remaining").asLong(), decision.remaining().orElse(-1), where);
        }
        List<String> errors = elements(outcome.get("errors")).map(JsonNode::asText).toList();
        if (errors.isEmpty()) {
          assertTrue(decision.error().isEmpty(), where);
        } else {
          assertTrue(errors.contains(decision.error().orElse("none")), where);
        }
      }
      int unreadMax = expected.path("if_goaway_unread").path("calls_max").asInt();
      assertTrue(unread.size() <= unreadMax, "GOAWAY unread in calls " + unread);
    }
    if (!one.get("elapsed_ms_max").isNull()) {
      long elapsedMillis = (System.nanoTime() - started) / 1_000_000;
      assertTrue(elapsedMillis <= one.get("elapsed_ms_max").asLong(), elapsedMillis + " ms");
    }
  }

  @TestFactory
  Stream<DynamicTest> clientAddresses() {
    return tests(
        "client_addresses",
        (one, servers) -> {
          List<String> lines = elements(one.get("x_forwarded_for")).map(JsonNode::asText).toList();
          String peer = one.get("peer").isNull() ? null : one.get("peer").asText();
          String expected = one.get("expect").isNull() ? null : one.get("expect").asText();
          assertEquals(
              expected,
              ClientAddress.of(peer, lines, one.get("trusted_proxies").asInt()).orElse(null));
        });
  }

  @TestFactory
  Stream<DynamicTest> clientAddressesOfForwarded() {
    return tests(
        "forwarded",
        (one, servers) -> {
          List<String> lines = elements(one.get("forwarded")).map(JsonNode::asText).toList();
          String expected = one.get("expect").isNull() ? null : one.get("expect").asText();
          assertEquals(
              expected,
              ClientAddress.ofForwarded(lines, one.get("trusted_proxies").asInt()).orElse(null));
        });
  }

  private static TidegateBuilder builder(String address) {
    return Tidegate.builder(address).domain("d").timeout(Duration.ofSeconds(5));
  }

  private static List<Descriptor> descriptors(JsonNode given) {
    return elements(given).map(ConformanceTest::descriptor).toList();
  }

  private static Descriptor descriptor(JsonNode given) {
    Descriptor descriptor = null;
    for (JsonNode entry : given.get("entries")) {
      String key = entry.get(0).asText();
      String value = entry.get(1).asText();
      descriptor = descriptor == null ? Descriptor.of(key, value) : descriptor.and(key, value);
    }
    if (descriptor == null) {
      throw new IllegalArgumentException("a descriptor without entries");
    }
    if (given.has("cost")) {
      descriptor = descriptor.unsignedCost(Long.parseUnsignedLong(given.get("cost").asText()));
    }
    if (given.has("limit")) {
      JsonNode limit = given.get("limit");
      descriptor = descriptor.limit(limit.get("requests").asLong(), limit.get("unit").asText());
    }
    return given.path("give_back").asBoolean() ? descriptor.givingBack() : descriptor;
  }

  private static @Nullable Limit limit(JsonNode limit) {
    if (limit.isNull()) {
      return null;
    }
    long requests = limit.get("requests").asLong();
    String unit = limit.get("unit").asText();
    String name = limit.path("name").asText("");
    return limit.has("window")
        ? new Limit(requests, unit, name, time(limit.get("window")))
        : new Limit(requests, unit, name);
  }

  private static @Nullable Duration time(JsonNode time) {
    return time.isNull()
        ? null
        : Duration.ofMillis(time.get(0).asLong()).plusNanos(time.get(1).asLong());
  }

  private static List<Header> headers(JsonNode pairs) {
    return elements(pairs)
        .map(pair -> new Header(pair.get(0).asText(), pair.get(1).asText()))
        .toList();
  }

  private static @Nullable Long number(JsonNode number) {
    return number.isNull() ? null : number.asLong();
  }

  private static @Nullable Long boxed(java.util.OptionalLong number) {
    return number.isPresent() ? number.getAsLong() : null;
  }

  private static Map<String, String> texts(JsonNode object) {
    Map<String, String> texts = new LinkedHashMap<>();
    object.properties().forEach(entry -> texts.put(entry.getKey(), entry.getValue().asText()));
    return texts;
  }

  private static Map<String, String> lower(Map<String, String> headers) {
    Map<String, String> lower = new TreeMap<>();
    headers.forEach((name, value) -> lower.put(name.toLowerCase(Locale.ROOT), value));
    return lower;
  }

  private static Stream<JsonNode> elements(JsonNode array) {
    return StreamSupport.stream(array.spliterator(), false);
  }
}
