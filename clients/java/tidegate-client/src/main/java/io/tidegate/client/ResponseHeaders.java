package io.tidegate.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Collectors;

/**
 * Headers of a decision: {@code RateLimit} and {@code RateLimit-Policy} (IETF draft), and others.
 */
final class ResponseHeaders {
  private ResponseHeaders() {}

  static Map<String, String> of(Decision decision, boolean isLegacy) {
    Map<String, String> headers = new LinkedHashMap<>();
    List<Status> statuses = decision.statuses();
    Collection<Status> applying = distinct(statuses);
    if (!applying.isEmpty() && !decision.isMarked()) {
      headers.put("RateLimit-Policy", join(applying, ResponseHeaders::policy));
      Collection<Status> shown =
          decision.allowed() ? applying : distinct(Decision.denying(statuses));
      if (!shown.isEmpty()) {
        // An admission has no `t`: its reset is the time until the whole limit is free.
        headers.put(
            "RateLimit",
            join(
                shown,
                decision.allowed() ? ResponseHeaders::available : ResponseHeaders::availableUntil));
      }
    }
    if (isLegacy && decision.limit().isPresent() && !decision.isMarked()) {
      long limit = decision.limit().getAsLong();
      headers.put("X-RateLimit-Limit", Long.toString(limit));
      long remaining = Math.min(decision.remaining().orElse(0), limit);
      headers.put("X-RateLimit-Remaining", Long.toString(remaining));
      if (!isQueuedAdmission(decision)) {
        decision.resetAfter().ifPresent(reset -> headers.put("X-RateLimit-Reset", seconds(reset)));
      }
    }
    decision.retryAfter().ifPresent(wait -> headers.put("Retry-After", seconds(wait)));
    for (Header header : decision.responseHeaders()) {
      headers.keySet().removeIf(header.name()::equalsIgnoreCase);
      headers.put(header.name(), header.value());
    }
    return headers;
  }

  /** Whether the governing limit of an admission may admit before its reset. */
  private static boolean isQueuedAdmission(Decision decision) {
    return decision.allowed()
        && decision.statuses().stream()
            .filter(status -> status.limit() != null)
            .min(Comparator.comparingLong(Status::remaining))
            .filter(status -> status.mode() == Mode.QUEUED)
            .isPresent();
  }

  private interface Rendering {
    String of(Status status, Limit limit);
  }

  private static String join(Collection<Status> statuses, Rendering rendering) {
    return statuses.stream()
        .map(status -> rendering.of(status, Objects.requireNonNull(status.limit())))
        .collect(Collectors.joining(", "));
  }

  /** The limits of the statuses, each once with its tighter status. */
  private static Collection<Status> distinct(List<Status> statuses) {
    Map<Object, Status> found = new LinkedHashMap<>();
    for (Status status : statuses) {
      Limit limit = status.limit();
      if (limit != null) {
        Object identity = limit.name().isEmpty() ? limit : limit.name();
        found.merge(identity, status, (known, one) -> isTighter(one, known) ? one : known);
      }
    }
    return new ArrayList<>(found.values());
  }

  private static boolean isTighter(Status status, Status than) {
    if (status.overLimit() != than.overLimit()) {
      return status.overLimit();
    }
    return status.overLimit()
        ? Decision.isLonger(status.resetAfter(), than.resetAfter())
        : status.remaining() < than.remaining();
  }

  private static String policy(Status status, Limit limit) {
    Duration window = limit.window();
    // The draft's windows are whole seconds.
    boolean isShown = window != null && window.getNano() == 0;
    return quoted(limit) + ";q=" + limit.requests() + (isShown ? ";w=" + window.getSeconds() : "");
  }

  private static String available(Status status, Limit limit) {
    return quoted(limit) + ";r=" + Math.min(status.remaining(), limit.requests());
  }

  private static String availableUntil(Status status, Limit limit) {
    Duration reset = status.resetAfter();
    return available(status, limit) + (reset == null ? "" : ";t=" + seconds(reset));
  }

  /** Rounds up: waiting that long is always long enough. */
  static String seconds(Duration wait) {
    return Long.toString(wait.getSeconds() + (wait.getNano() > 0 ? 1 : 0));
  }

  /** The limit's name as a structured String (RFC 9651). */
  private static String quoted(Limit limit) {
    StringBuilder text = new StringBuilder("\"");
    for (byte one : limit.label().getBytes(StandardCharsets.UTF_8)) {
      if (one == '"' || one == '\\') {
        text.append('\\').append((char) one);
      } else if (one >= 0x20 && one < 0x7f) {
        text.append((char) one);
      } else {
        text.append("%%%02X".formatted(one & 0xff));
      }
    }
    return text.append('"').toString();
  }
}
