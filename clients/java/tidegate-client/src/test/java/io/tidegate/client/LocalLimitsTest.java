package io.tidegate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tidegate.client.middleware.Guard;
import io.tidegate.client.middleware.Key;
import io.tidegate.client.middleware.Limits;
import io.tidegate.client.middleware.Outcome;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Limits in this process count as the server does, and decide requests without an answer. */
class LocalLimitsTest {
  private static final String RULES =
      """
      domain: d
      descriptors:
        - key: bucket
          rate_limit: {name: bucket, per: 7s, requests_per_unit: 5, algorithm: token_bucket}
        - key: window
          rate_limit: {name: window, per: 10s, requests_per_unit: 4, algorithm: fixed_window}
      """;

  private final Servers servers = new Servers();

  @AfterEach
  void close() throws Exception {
    servers.close();
  }

  /** The compared parts of a decision. */
  private static String seen(Decision decision, boolean hasResets) {
    StringBuilder text = new StringBuilder();
    text.append(decision.allowed()).append(' ').append(decision.retryAfter());
    for (Status status : decision.statuses()) {
      Limit limit = status.limit();
      text.append(' ').append(limit == null ? "none" : limit.name());
      text.append(' ').append(status.overLimit()).append(' ').append(status.remaining());
      text.append(hasResets ? " " + status.resetAfter() : "");
    }
    return text.toString();
  }

  @Test
  void aCountingClientDecidesAsTheServerDoes() throws Exception {
    String address = servers.serve(RULES, "--test-clock").address();
    Servers.Clock clock = servers.clock(address);
    Tidegate client =
        servers.client(
            Tidegate.builder(address).domain("d").timeout(Duration.ofSeconds(5)).localDenials(0));
    AtomicLong now = new AtomicLong(1_700_006_400_000_000_000L);
    Tidegate counting =
        Tidegate.counting(
            now::get,
            new LocalLimit(List.of("bucket"), 5, Duration.ofSeconds(7), false, "bucket"),
            new LocalLimit(List.of("window"), 4, Duration.ofSeconds(10), true, "window"));
    Random chance = new Random(7);
    long[] passed = {0, 1, 333_333_333, 1_400_000_000, 2_999_999_999L, 12_000_000_000L};
    long[] costs = {1, 1, 2, 3, 6};
    List<List<String>> keys =
        List.of(List.of("bucket"), List.of("window"), List.of("bucket", "window"), List.of("none"));
    for (int step = 0; step < 200; step++) {
      long nanos = now.addAndGet(passed[chance.nextInt(passed.length)]);
      clock.set(nanos / 1_000_000_000, nanos % 1_000_000_000);
      String value = chance.nextBoolean() ? "a" : "b";
      List<Descriptor> descriptors =
          keys.get(chance.nextInt(4)).stream().map(key -> Descriptor.of(key, value)).toList();
      CallOptions options = CallOptions.DEFAULT.cost(costs[chance.nextInt(costs.length)]);
      int operation = chance.nextInt(6);
      String[] found = new String[2];
      for (int which = 0; which < 2; which++) {
        Tidegate one = which == 0 ? client : counting;
        Decision decision =
            switch (operation) {
              case 0 -> one.peek(descriptors, options);
              case 1 -> one.giveBack(descriptors, options);
              default -> one.limit(descriptors, options);
            };
        found[which] = seen(decision, operation != 1);
      }
      assertEquals(found[0], found[1], "step " + step + ", operation " + operation);
    }
  }

  @Test
  void aFallbackCountsByTheClientsMonotonicClock() {
    AtomicLong now = new AtomicLong();
    Duration hour = Duration.ofHours(1);
    Tidegate client =
        servers.client(
            Tidegate.builder("127.0.0.1:" + Servers.unusedPort())
                .domain("d")
                .timeout(Duration.ofSeconds(5))
                .clock(now::get)
                .fallback(new LocalLimit(List.of("user"), 1, hour, true, "")));
    Descriptor user = Descriptor.of("user", "a");
    assertTrue(client.limit(user).allowed());
    assertFalse(client.limit(user).allowed());
    now.addAndGet(hour.toNanos());
    assertTrue(client.limit(user).allowed());
  }

  @Test
  void aClockThatStepsBackLiftsNoLocalLimit() {
    for (boolean isWindow : new boolean[] {true, false}) {
      Duration hour = Duration.ofHours(1);
      AtomicLong now = new AtomicLong(2 * hour.toNanos());
      Tidegate client =
          Tidegate.counting(now::get, new LocalLimit(List.of("user"), 1, hour, isWindow, ""));
      Descriptor user = Descriptor.of("user", "a");
      assertTrue(client.limit(user).allowed());
      for (Duration step : List.of(Duration.ofSeconds(-1), hour.negated(), hour)) {
        now.addAndGet(step.toNanos());
        assertFalse(client.limit(user).allowed(), step + ", window: " + isWindow);
      }
    }
  }

  @Test
  void theCostOfTheOptionsAppliesUnlessTheLimitsHaveACost() {
    List<Long> hits = new ArrayList<>();
    Tidegate client =
        Tidegate.fake(
            call -> {
              hits.addAll(call.costs());
              return Decision.admitted();
            });
    Limits limits = Limits.of(Key.constant("user", "a")).options(CallOptions.DEFAULT.cost(5));
    for (Limits one : List.of(limits, limits.cost(request -> 1), limits.cost(request -> 2))) {
      new Guard(client, one).decide(UnansweredTest.REQUEST);
    }
    assertEquals(List.of(5L, 1L, 2L), hits);
  }

  @Test
  void aFallbackLimitsRequestsWithoutAnAnswer() {
    Tidegate client =
        servers.client(
            Tidegate.builder("127.0.0.1:" + Servers.unusedPort())
                .domain("d")
                .timeout(Duration.ofSeconds(5))
                .fallback(LocalLimit.bucket("user", 2, Duration.ofHours(1))));
    Descriptor user = Descriptor.of("user", "a");
    assertEquals(Reason.FAILED_OPEN, client.limit(user).reason());
    assertEquals(0, client.limit(user).remaining().orElseThrow());
    Decision denied = client.limit(user);
    assertEquals(Reason.FAILED_CLOSED, denied.reason());
    assertTrue(denied.error().isPresent() && denied.retryAfter().isPresent(), denied.toString());
    Outcome outcome =
        new Guard(client, Limits.of(Key.constant("user", "a"))).decide(UnansweredTest.REQUEST);
    assertEquals(429, ((Outcome.Refused) outcome).status());
    assertTrue(client.limit(Descriptor.of("team", "a")).remaining().isEmpty());
    assertThrows(
        IllegalArgumentException.class, () -> LocalLimit.bucket("user", 0, Duration.ofHours(1)));
  }
}
