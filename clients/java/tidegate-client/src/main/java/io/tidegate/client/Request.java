package io.tidegate.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.UInt64Value;
import io.tidegate.client.proto.RateLimitDescriptor;
import io.tidegate.client.proto.RateLimitRequest;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * One request: its message, and its identity among kept denials.
 *
 * <p>Requests are equal if their domain, entries and limits are; the keeper of denials compares
 * their costs.
 */
final class Request {
  private final String domain;
  private final List<Descriptor> descriptors;

  /** Hits of each descriptor, unsigned. */
  private final long[] costs;

  private final int hash;
  private final boolean givesBack;

  Request(String domain, List<Descriptor> descriptors, long cost, boolean givesBack) {
    if (domain.isEmpty()) {
      throw new IllegalArgumentException("no domain; name it in the client or in the call");
    }
    if (descriptors.isEmpty()) {
      throw new IllegalArgumentException(
          "no descriptor; name one, such as Descriptor.of(\"api_key\", id)");
    }
    checkText(domain, "the domain");
    this.domain = domain;
    this.descriptors =
        givesBack
            ? descriptors.stream().map(Descriptor::givingBack).toList()
            : List.copyOf(descriptors);
    this.costs = new long[descriptors.size()];
    int hashed = domain.hashCode();
    boolean anyGivesBack = false;
    for (int index = 0; index < costs.length; index++) {
      Descriptor descriptor = this.descriptors.get(index);
      for (Map.Entry<String, String> entry : descriptor.entries()) {
        if (entry.getKey().isEmpty()) {
          throw new IllegalArgumentException("an entry without key; name the key of the rules");
        }
        checkText(entry.getKey(), "a key");
        checkText(withoutBytes(entry.getValue()), "the value of an entry");
      }
      Long own = descriptor.cost();
      costs[index] = own == null ? cost : own;
      hashed = hashed * 31 + descriptor.identityHash();
      anyGivesBack |= descriptor.givesBack();
    }
    this.hash = hashed;
    this.givesBack = anyGivesBack;
  }

  /** Refuses texts with lone surrogates, which UTF-8 cannot have and protobuf would change. */
  private static void checkText(String text, String name) {
    for (int index = 0; index < text.length(); index++) {
      if (!Character.isSurrogate(text.charAt(index))) {
        continue;
      }
      if (Character.charCount(text.codePointAt(index)) != 2) {
        throw new IllegalArgumentException(name + " has a lone surrogate, which is no UTF-8");
      }
      index++;
    }
  }

  /** A value without the surrogates that stand for bytes. */
  private static String withoutBytes(String value) {
    if (value.codePoints().noneMatch(Request::isByte)) {
      return value;
    }
    StringBuilder text = new StringBuilder();
    value.codePoints().filter(code -> !isByte(code)).forEach(text::appendCodePoint);
    return text.toString();
  }

  /** Whether a code point of a value is a lone surrogate that stands for a byte. */
  private static boolean isByte(int code) {
    return code >= 0xDC80 && code <= 0xDCFF;
  }

  /** The UTF-8 of a value; a lone surrogate U+DC80 to U+DCFF is the byte 80 to ff. */
  private static ByteString bytes(String value) {
    if (value.codePoints().noneMatch(Request::isByte)) {
      return ByteString.copyFromUtf8(value);
    }
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    value
        .codePoints()
        .forEach(
            code -> {
              if (isByte(code)) {
                bytes.write(code);
              } else {
                bytes.writeBytes(Character.toString(code).getBytes(StandardCharsets.UTF_8));
              }
            });
    return ByteString.copyFrom(bytes.toByteArray());
  }

  /** The request as fake clients receive it. */
  Call call() {
    return new Call(domain, descriptors, Arrays.stream(costs).boxed().toList(), givesBack);
  }

  /** A message with the same descriptors that takes nothing. */
  RateLimitRequest peekMessage() {
    RateLimitRequest.Builder message = message().toBuilder();
    message
        .getDescriptorsBuilderList()
        .forEach(one -> one.setHitsAddend(UInt64Value.of(0)).setIsNegativeHits(false));
    return message.build();
  }

  boolean givesBack() {
    return givesBack;
  }

  boolean hasZeroCost() {
    for (long cost : costs) {
      if (cost == 0) {
        return true;
      }
    }
    return false;
  }

  /** Whether every descriptor has at least as many hits as in the other request. */
  boolean costsAtLeast(Request other) {
    for (int index = 0; index < costs.length; index++) {
      if (Long.compareUnsigned(costs[index], other.costs[index]) < 0) {
        return false;
      }
    }
    return true;
  }

  /** The domain and the keys of a descriptor, without its values. */
  record Shape(String domain, List<String> keys) {}

  /** Shapes of the descriptors, or only of those that give back. */
  List<Shape> shapes(boolean onlyGivingBack) {
    return descriptors.stream()
        .filter(descriptor -> descriptor.givesBack() || !onlyGivingBack)
        .map(one -> new Shape(domain, one.entries().stream().map(Map.Entry::getKey).toList()))
        .toList();
  }

  RateLimitRequest message() {
    RateLimitRequest.Builder message = RateLimitRequest.newBuilder().setDomain(domain);
    for (int index = 0; index < costs.length; index++) {
      Descriptor descriptor = descriptors.get(index);
      RateLimitDescriptor.Builder built =
          message.addDescriptorsBuilder().setIsNegativeHits(descriptor.givesBack());
      for (Map.Entry<String, String> entry : descriptor.entries()) {
        built.addEntriesBuilder().setKey(entry.getKey()).setValue(bytes(entry.getValue()));
      }
      // An explicit 0 is a peek; an absent cost is 1.
      if (costs[index] != 1) {
        built.setHitsAddend(UInt64Value.of(costs[index]));
      }
      Limit limit = descriptor.limit();
      if (limit != null) {
        built
            .getLimitBuilder()
            .setRequestsPerUnit((int) limit.requests())
            .setUnit(RateLimitDescriptor.Unit.valueOf(limit.unit().toUpperCase(Locale.ROOT)));
      }
    }
    return message.build();
  }

  @Override
  public boolean equals(Object other) {
    if (this == other) {
      return true;
    }
    if (!(other instanceof Request request)
        || hash != request.hash
        || !domain.equals(request.domain)
        || descriptors.size() != request.descriptors.size()) {
      return false;
    }
    for (int index = 0; index < costs.length; index++) {
      if (!descriptors.get(index).hasIdentityOf(request.descriptors.get(index))) {
        return false;
      }
    }
    return true;
  }

  @Override
  public int hashCode() {
    return hash;
  }
}
