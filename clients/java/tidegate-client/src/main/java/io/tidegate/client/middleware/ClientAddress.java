package io.tidegate.client.middleware;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/** The address of a client behind trusted proxies. */
public final class ClientAddress {
  private static final Pattern GROUP = Pattern.compile("[0-9a-fA-F]{1,4}");
  private static final Pattern FOR =
      Pattern.compile("\\s*for=(\"?)(.*)\\1\\s*", Pattern.CASE_INSENSITIVE);
  private static final Pattern OCTET = Pattern.compile("0|[1-9][0-9]{0,2}");

  private ClientAddress() {}

  /**
   * Returns the client's address: IPv4 as it is, IPv6 cut to its /64 network.
   *
   * @param peer the other end of the connection; null if it has no address
   * @param forwardedFor all {@code X-Forwarded-For} lines, in order
   * @param trustedProxies number of trusted proxies that append to the header; with 0 it is not
   *     read
   * @return the address; empty if it is not known
   */
  public static Optional<String> of(
      @Nullable String peer, List<String> forwardedFor, int trustedProxies) {
    if (trustedProxies == 0) {
      return Optional.ofNullable(peer).flatMap(ClientAddress::normalized);
    }
    // Each trusted proxy appended the address that it saw; the client wrote everything left of
    // them.
    List<String> written =
        forwardedFor.stream().flatMap(line -> Arrays.stream(line.split(",", -1))).toList();
    return written.size() < trustedProxies
        ? Optional.empty()
        : normalized(written.get(written.size() - trustedProxies));
  }

  /**
   * Returns the client's address behind proxies that append to {@code Forwarded} (RFC 7239).
   *
   * @param forwarded all {@code Forwarded} lines, in order
   * @param trustedProxies number of trusted proxies that append to the header; at least 1
   * @return the address; empty if it is not known
   */
  public static Optional<String> ofForwarded(List<String> forwarded, int trustedProxies) {
    List<String> nodes =
        fromTheRight(String.join(",", forwarded), trustedProxies).stream()
            .flatMap(element -> split(element).stream())
            .map(FOR::matcher)
            .filter(Matcher::matches)
            .map(pair -> pair.group(2))
            .toList();
    return nodes.size() == 1 ? normalized(nodes.get(0)) : Optional.empty();
  }

  /**
   * The element of a list at this position, counted from the right. Quotes are paired from the
   * right too: the elements of trusted proxies are whole, and left of them a client may have left a
   * quote open.
   */
  private static Optional<String> fromTheRight(String list, int position) {
    int end = list.length();
    int left = position;
    boolean isQuoted = false;
    for (int index = end - 1; index >= 0; index--) {
      char letter = list.charAt(index);
      if (letter == '"' && !(isQuoted && isEscaped(list, index))) {
        isQuoted = !isQuoted;
      } else if (letter == ',' && !isQuoted) {
        left--;
        if (left == 0) {
          return Optional.of(list.substring(index + 1, end));
        }
        end = index;
      }
    }
    return left == 1 ? Optional.of(list.substring(0, end)) : Optional.empty();
  }

  /** Whether the character at this index is escaped, within quotes. */
  private static boolean isEscaped(String text, int index) {
    int first = index;
    while (first > 0 && text.charAt(first - 1) == '\\') {
      first--;
    }
    return (index - first) % 2 == 1;
  }

  /** The parts of a text between semicolons outside of quotes; none if a quote is open. */
  private static List<String> split(String text) {
    List<String> parts = new ArrayList<>();
    int start = 0;
    boolean isQuoted = false;
    boolean isEscaped = false;
    for (int index = 0; index < text.length(); index++) {
      char letter = text.charAt(index);
      if (letter == ';' && !isQuoted) {
        parts.add(text.substring(start, index));
        start = index + 1;
        continue;
      }
      isQuoted ^= letter == '"' && !isEscaped;
      isEscaped = isQuoted && letter == '\\' && !isEscaped;
    }
    parts.add(text.substring(start));
    return isQuoted ? List.of() : parts;
  }

  private static Optional<String> normalized(String address) {
    String text = address.strip();
    if (text.startsWith("[")) {
      int end = text.indexOf(']');
      text = end < 0 ? text.substring(1) : text.substring(1, end);
    } else if (text.indexOf(':') >= 0 && text.indexOf(':') == text.lastIndexOf(':')) {
      text = text.substring(0, text.indexOf(':'));
    }
    int zone = text.indexOf('%');
    if (zone >= 0) {
      text = text.substring(0, zone);
    }
    if (text.indexOf(':') < 0) {
      return ipv4(text) == null ? Optional.empty() : Optional.of(text);
    }
    int[] groups = ipv6(text);
    if (groups == null) {
      return Optional.empty();
    }
    if (IntStream.range(0, 5).allMatch(index -> groups[index] == 0) && groups[5] == 0xffff) {
      return Optional.of(
          "%d.%d.%d.%d"
              .formatted(groups[6] >> 8, groups[6] & 0xff, groups[7] >> 8, groups[7] & 0xff));
    }
    return Optional.of(network(groups));
  }

  /**
   * The network of the first four groups, as RFC 5952 writes it: the other half is zero, so that
   * the longest run of zeros is always at the end.
   */
  private static String network(int[] groups) {
    int kept = 4;
    while (kept > 0 && groups[kept - 1] == 0) {
      kept--;
    }
    return Arrays.stream(groups, 0, kept)
        .mapToObj(Integer::toHexString)
        .collect(Collectors.joining(":", "", "::/64"));
  }

  /** The four octets, without leading zeros; null if the text is not an IPv4 address. */
  private static int @Nullable [] ipv4(String text) {
    String[] parts = text.split("\\.", -1);
    if (parts.length != 4) {
      return null;
    }
    int[] octets = new int[4];
    for (int index = 0; index < 4; index++) {
      if (!OCTET.matcher(parts[index]).matches()) {
        return null;
      }
      octets[index] = Integer.parseInt(parts[index]);
      if (octets[index] > 255) {
        return null;
      }
    }
    return octets;
  }

  /** The eight groups; null if the text is not an IPv6 address. */
  private static int @Nullable [] ipv6(String address) {
    String text = address;
    if (text.indexOf('.') >= 0) {
      // The last two groups are written as an IPv4 address.
      int colon = text.lastIndexOf(':');
      int[] octets = ipv4(text.substring(colon + 1));
      if (octets == null) {
        return null;
      }
      text =
          text.substring(0, colon + 1)
              + Integer.toHexString(octets[0] << 8 | octets[1])
              + ":"
              + Integer.toHexString(octets[2] << 8 | octets[3]);
    }
    int gap = text.indexOf("::");
    int[] before = groups(gap < 0 ? text : text.substring(0, gap));
    int[] after = gap < 0 ? new int[0] : groups(text.substring(gap + 2));
    if (before == null || after == null) {
      return null;
    }
    int written = before.length + after.length;
    if (gap < 0 ? written != 8 : written > 7) {
      return null;
    }
    int[] groups = new int[8];
    System.arraycopy(before, 0, groups, 0, before.length);
    System.arraycopy(after, 0, groups, 8 - after.length, after.length);
    return groups;
  }

  private static int @Nullable [] groups(String text) {
    if (text.isEmpty()) {
      return new int[0];
    }
    String[] parts = text.split(":", -1);
    int[] groups = new int[parts.length];
    for (int index = 0; index < parts.length; index++) {
      if (!GROUP.matcher(parts[index]).matches()) {
        return null;
      }
      groups[index] = Integer.parseInt(parts[index], 16);
    }
    return groups;
  }
}
