package io.tidegate.client.middleware;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Objects;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/** One entry of a descriptor, whose value is read from requests. */
public final class Key {
  private final String entry;
  private final Missing missing;
  private final Function<RequestInfo, @Nullable String> read;

  private Key(String entry, Missing missing, Function<RequestInfo, @Nullable String> read) {
    this.entry = Objects.requireNonNull(entry, "entry");
    this.missing = Objects.requireNonNull(missing, "missing");
    this.read = Objects.requireNonNull(read, "read");
  }

  /**
   * Returns a key whose value is a function of the request.
   *
   * @param entry the entry's key, as in the rules
   * @param read returns the value; null, the empty text and spaces are no value
   * @param missing the treatment of requests without a value
   * @return the key
   */
  public static Key of(
      String entry, Function<RequestInfo, @Nullable String> read, Missing missing) {
    return new Key(entry, missing, read);
  }

  /**
   * Returns a key with the same value for each request, such as the name of a route.
   *
   * @param entry the entry's key, as in the rules
   * @param value the value
   * @return the key
   */
  public static Key constant(String entry, String value) {
    return new Key(entry, Missing.SHARED, request -> value);
  }

  /**
   * Returns a key with the value of a header. A request that repeats the header is refused,
   * whatever the values: the application may read another of them than the key. The value may be
   * any bytes.
   *
   * @param entry the entry's key, as in the rules
   * @param name the header
   * @param missing the treatment of requests without it
   * @return the key
   */
  public static Key header(String entry, String name, Missing missing) {
    return new Key(
        entry,
        missing,
        request -> {
          List<String> values = request.header(name);
          if (values.size() > 1) {
            throw new BadRequestException("the request repeats the header " + name);
          }
          return values.isEmpty() ? null : utf8(values.get(0)).strip();
        });
  }

  /**
   * Returns a key with the client's address, IPv6 cut to its /64 network.
   *
   * @param entry the entry's key, as in the rules
   * @param trustedProxies number of your own proxies that append to {@code X-Forwarded-For}; with 0
   *     the header is not read, since any client can write it
   * @param missing the treatment of requests without an address
   * @return the key
   */
  public static Key clientAddress(String entry, int trustedProxies, Missing missing) {
    if (trustedProxies < 0) {
      throw new IllegalArgumentException("trustedProxies is " + trustedProxies + "; use 0 or more");
    }
    return new Key(
        entry,
        missing,
        request ->
            ClientAddress.of(request.peer(), request.header("x-forwarded-for"), trustedProxies)
                .orElse(null));
  }

  /**
   * Returns a key with the client's address behind proxies that append to {@code Forwarded} (RFC
   * 7239), IPv6 cut to its /64 network.
   *
   * @param entry the entry's key, as in the rules
   * @param trustedProxies number of your own proxies that append to the header; at least 1
   * @param missing the treatment of requests without an address
   * @return the key
   */
  public static Key forwardedAddress(String entry, int trustedProxies, Missing missing) {
    if (trustedProxies < 1) {
      throw new IllegalArgumentException("trustedProxies is " + trustedProxies + "; use 1 or more");
    }
    return new Key(
        entry,
        missing,
        request ->
            ClientAddress.ofForwarded(request.header("forwarded"), trustedProxies).orElse(null));
  }

  /**
   * The text of a header's bytes: UTF-8 if possible, else with surrogates for bytes beyond ASCII.
   * Servers decode headers as ISO-8859-1; some as UTF-8 or ASCII, with replacements for other
   * bytes.
   */
  private static String utf8(String decoded) {
    if (decoded.chars().allMatch(letter -> letter < 0x80)) {
      return decoded;
    }
    if (decoded.chars().anyMatch(letter -> letter > 0xFF)) {
      return decoded;
    }
    try {
      ByteBuffer bytes = ByteBuffer.wrap(decoded.getBytes(StandardCharsets.ISO_8859_1));
      return StandardCharsets.UTF_8.newDecoder().decode(bytes).toString();
    } catch (CharacterCodingException malformed) {
      StringBuilder text = new StringBuilder();
      decoded
          .chars()
          .forEach(letter -> text.append((char) (letter < 0x80 ? letter : 0xDC00 + letter)));
      return text.toString();
    }
  }

  /** Whether a text is UTF-8, or has lone surrogates U+DC80 to U+DCFF for bytes that are not. */
  private static boolean isValue(String text) {
    return text.codePoints()
        .allMatch(
            code ->
                code < Character.MIN_SURROGATE
                    || code > Character.MAX_SURROGATE
                    || (code >= 0xDC80 && code <= 0xDCFF));
  }

  String entry() {
    return entry;
  }

  Missing missing() {
    return missing;
  }

  /**
   * The value; empty if the request has none.
   *
   * @throws BadRequestException if the request has to be refused
   */
  String read(RequestInfo request) {
    String value = read.apply(request);
    if (value != null && !isValue(value)) {
      throw new BadRequestException("the value of " + entry + " is no UTF-8");
    }
    return value == null || value.isBlank() ? "" : value;
  }
}
