package io.tidegate.client;

import java.time.Duration;
import java.util.List;

/**
 * A limit that is counted in this process: for requests without an answer ({@link
 * TidegateBuilder#fallback}), and in tests of applications ({@link Tidegate#counting}). It counts
 * exactly, by the algorithm of the server, and does not include other processes.
 *
 * @param keys the keys of a descriptor's entries, in order: each combination of values has a
 *     counter
 * @param requests hits that fit into a window, or into the bucket
 * @param per the length of the window, or the time until an empty bucket is full
 * @param fixedWindow whether it counts in windows of the Unix epoch, instead of a token bucket
 * @param name the name of the limit in decisions; empty for none
 */
public record LocalLimit(
    List<String> keys, long requests, Duration per, boolean fixedWindow, String name) {
  /**
   * Creates a limit.
   *
   * @param keys the keys of a descriptor's entries, in order
   * @param requests hits that fit into a window, or into the bucket
   * @param per the length of the window, or the time until an empty bucket is full
   * @param fixedWindow whether it counts in windows of the Unix epoch
   * @param name the name of the limit in decisions; empty for none
   * @throws IllegalArgumentException if there is no key, or if the requests or the time are 0
   */
  public LocalLimit {
    keys = List.copyOf(keys);
    if (keys.isEmpty() || requests < 1 || per.isNegative() || per.isZero()) {
      throw new IllegalArgumentException(
          "the local limit of " + keys + "; use a key, and requests and a time above 0");
    }
  }

  /**
   * Returns a token bucket for descriptors of one key.
   *
   * @param key the key
   * @param requests hits that fit into the bucket
   * @param per the time until an empty bucket is full
   * @return the limit
   */
  public static LocalLimit bucket(String key, long requests, Duration per) {
    return new LocalLimit(List.of(key), requests, per, false, "");
  }
}
