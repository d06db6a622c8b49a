package io.tidegate.spring;

import io.tidegate.client.OnFailure;
import io.tidegate.client.middleware.Key;
import io.tidegate.client.middleware.Missing;
import java.io.File;
import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The properties {@code tidegate.*}. A property that is not one of them is an error at start: a
 * misspelt key would leave the application without its limits.
 *
 * @param address addresses of the server
 * @param domain the domain of calls that name none
 * @param timeout time until the server is considered not to answer
 * @param connectTimeout timeout of the first call, which opens the connection
 * @param onFailure the decision for the case that no answer arrives
 * @param localDenials denials that are kept; 0 for none
 * @param localDenialsFor longest time for which a denial is kept
 * @param breaker when calls fail at once
 * @param tls certificates
 * @param web limits of all HTTP requests
 */
@ConfigurationProperties(value = "tidegate", ignoreUnknownFields = false)
public record TidegateProperties(
    @DefaultValue("127.0.0.1:8081") List<String> address,
    @DefaultValue("") String domain,
    @DefaultValue("50ms") Duration timeout,
    @DefaultValue("5s") Duration connectTimeout,
    @DefaultValue("open") OnFailure onFailure,
    @DefaultValue("10000") int localDenials,
    @DefaultValue("1s") Duration localDenialsFor,
    @DefaultValue Breaker breaker,
    @DefaultValue Tls tls,
    @DefaultValue Web web) {
  /** The order of filters right before those of Spring Security. */
  static final int BEFORE_SECURITY = -110;

  /**
   * The properties {@code tidegate.breaker.*}.
   *
   * @param failures failures in a row after which calls fail at once; 0 to switch it off
   * @param open time until another call is tried
   */
  public record Breaker(@DefaultValue("5") int failures, @DefaultValue("1s") Duration open) {}

  /**
   * The properties {@code tidegate.tls.*}: TLS is used if any of the files is set.
   *
   * @param ca certificates of the authorities that sign the server's; the system's if not set
   * @param cert the client's certificates, for mutual TLS
   * @param key the key of the client's certificate
   * @param authority the name that the server's certificate has to have, if not the address's
   * @param enabled whether TLS is used, without any file too
   */
  public record Tls(
      @Nullable File ca,
      @Nullable File cert,
      @Nullable File key,
      @Nullable String authority,
      @DefaultValue("false") boolean enabled) {}

  /**
   * The properties {@code tidegate.web.*}.
   *
   * @param keys the entries of the descriptor, in order; without any, requests are not limited
   * @param legacyHeaders whether {@code X-RateLimit-…} headers are sent as well
   * @param order the place of the filter among the others: before those of Spring Security, so that
   *     requests that it refuses count, and after a filter of CORS with a lower order
   * @param preflight whether preflight requests of CORS are limited, which have no header of a key
   */
  public record Web(
      @DefaultValue List<KeyProperties> keys,
      @DefaultValue("false") boolean legacyHeaders,
      @DefaultValue("" + BEFORE_SECURITY) int order,
      @DefaultValue("false") boolean preflight) {}

  /**
   * The properties {@code tidegate.web.keys[0].*}: exactly one of header, value and trusted
   * proxies.
   *
   * @param entry the entry's key, as in the rules
   * @param missing the treatment of requests without a value
   * @param header the header with the value
   * @param value the same value for each request
   * @param trustedProxies the value is the client's address behind so many trusted proxies
   * @param forwarded whether these append to {@code Forwarded} instead of {@code X-Forwarded-For}
   */
  public record KeyProperties(
      String entry,
      @Nullable Missing missing,
      @Nullable String header,
      @Nullable String value,
      @Nullable Integer trustedProxies,
      @DefaultValue("false") boolean forwarded) {
    /**
     * Creates a key.
     *
     * @param entry the entry's key, as in the rules
     * @param missing the treatment of requests without a value
     * @param header the header with the value
     * @param value the same value for each request
     * @param trustedProxies the value is the client's address behind so many trusted proxies
     * @param forwarded whether these append to {@code Forwarded} instead of {@code X-Forwarded-For}
     * @throws IllegalArgumentException if it has no entry
     */
    public KeyProperties {
      if (entry == null || entry.isBlank()) {
        throw new IllegalArgumentException(
            "tidegate.web.keys: a key has no entry; write entry: and the entry's key in the rules");
      }
    }

    /** {@return the key} */
    Key toKey() {
      if (value != null && header == null && trustedProxies == null) {
        return Key.constant(entry, value);
      }
      if (value != null || (header == null) == (trustedProxies == null)) {
        throw new IllegalArgumentException(
            "tidegate.web.keys: "
                + entry
                + " needs exactly one of header, value and trusted-proxies");
      }
      if (missing == null) {
        throw new IllegalArgumentException(
            "tidegate.web.keys: " + entry + " needs missing: reject, allow or shared");
      }
      if (header != null) {
        return Key.header(entry, header, missing);
      }
      return forwarded
          ? Key.forwardedAddress(entry, trustedProxies, missing)
          : Key.clientAddress(entry, trustedProxies, missing);
    }
  }
}
