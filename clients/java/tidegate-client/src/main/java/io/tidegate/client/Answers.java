package io.tidegate.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.Value;
import io.grpc.Status.Code;
import io.tidegate.client.proto.RateLimitResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** Conversion of answers to decisions. */
final class Answers {
  /**
   * Errors of the caller or of the configuration. They are thrown: failing open would let an
   * overlong key pass every limit.
   */
  static final Set<Code> REJECTED = Set.of(Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE);

  private Answers() {}

  static Decision decode(RateLimitResponse response) {
    List<Status> statuses = response.getStatusesList().stream().map(Answers::status).toList();
    boolean allowed = response.getOverallCode() == RateLimitResponse.Code.OK;
    return new Decision(
        allowed,
        Reason.DECIDED,
        statuses,
        new Decision.Additions(
            headers(response.getRequestHeadersToAddList()),
            headers(response.getResponseHeadersToAddList()),
            response.getRawBody().toByteArray(),
            null,
            null,
            ticket(response),
            ticketCost(response)));
  }

  /** The ticket of the slots and estimates that a request holds. */
  private static @Nullable String ticket(RateLimitResponse response) {
    Value slot = response.getDynamicMetadata().getFieldsMap().get("slot");
    return slot == null || !slot.hasStringValue() ? null : slot.getStringValue();
  }

  /** Hits of the largest slot or estimate. */
  private static long ticketCost(RateLimitResponse response) {
    Value cost = response.getDynamicMetadata().getFieldsMap().get("cost");
    return cost == null ? 1 : Math.max((long) cost.getNumberValue(), 1);
  }

  /** Whether the answer has a verdict. */
  static boolean isComplete(RateLimitResponse response) {
    return response.getOverallCode() == RateLimitResponse.Code.OK
        || response.getOverallCode() == RateLimitResponse.Code.OVER_LIMIT;
  }

  private static Status status(RateLimitResponse.DescriptorStatus status) {
    return new Status(
        status.getCode() == RateLimitResponse.Code.OVER_LIMIT,
        status.hasCurrentLimit() ? limit(status.getCurrentLimit()) : null,
        Integer.toUnsignedLong(status.getLimitRemaining()),
        status.hasDurationUntilReset() ? duration(status.getDurationUntilReset()) : null,
        switch (status.getMode()) {
          case QUOTA -> Mode.QUOTA;
          case QUEUED -> Mode.QUEUED;
          default -> null;
        });
  }

  private static Duration duration(com.google.protobuf.Duration duration) {
    return Duration.ofSeconds(duration.getSeconds(), duration.getNanos());
  }

  private static Limit limit(RateLimitResponse.RateLimit limit) {
    // A unit of a later version of the API has no name here.
    String unit =
        switch (limit.getUnit()) {
          case UNKNOWN, UNRECOGNIZED -> "";
          default -> limit.getUnit().name().toLowerCase(Locale.ROOT);
        };
    long requests = Integer.toUnsignedLong(limit.getRequestsPerUnit());
    return limit.hasWindow()
        ? new Limit(requests, unit, limit.getName(), duration(limit.getWindow()))
        : new Limit(requests, unit, limit.getName());
  }

  private static List<Header> headers(List<RateLimitResponse.HeaderValue> headers) {
    return headers.stream().map(one -> new Header(one.getKey(), value(one))).toList();
  }

  private static String value(RateLimitResponse.HeaderValue header) {
    ByteString raw = header.getRawValue();
    return header.getValue().isEmpty()
        ? raw.toString(StandardCharsets.ISO_8859_1)
        : header.getValue();
  }
}
