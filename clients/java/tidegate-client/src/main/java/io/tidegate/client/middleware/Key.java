package io.tidegate.client.middleware;

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
   * @param missing the treatment of requests for which it returns null or the empty text
   * @param read returns the value
   * @return the key
   */
  public static Key of(
      String entry, Missing missing, Function<RequestInfo, @Nullable String> read) {
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
   * Returns a key with the value of a header, the last one if it is repeated.
   *
   * @param name the header
   * @param entry the entry's key, as in the rules
   * @param missing the treatment of requests without it
   * @return the key
   */
  public static Key header(String name, String entry, Missing missing) {
    return new Key(
        entry,
        missing,
        request -> {
          List<String> values = request.header(name);
          return values.isEmpty() ? null : values.get(values.size() - 1).trim();
        });
  }

  /**
   * Returns a key with the client's address, IPv6 cut to its /64 network.
   *
   * @param trustedProxies number of your own proxies that append to {@code X-Forwarded-For}; with 0
   *     the header is not read, since any client can write it
   * @param entry the entry's key, as in the rules
   * @param missing the treatment of requests without an address
   * @return the key
   */
  public static Key clientAddress(int trustedProxies, String entry, Missing missing) {
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

  String entry() {
    return entry;
  }

  Missing missing() {
    return missing;
  }

  /** The value; empty if the request has none. */
  String read(RequestInfo request) {
    String value = read.apply(request);
    return value == null ? "" : value;
  }
}
