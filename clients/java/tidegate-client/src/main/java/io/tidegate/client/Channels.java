package io.tidegate.client;

import io.grpc.ChannelCredentials;
import io.grpc.ClientInterceptor;
import io.grpc.EquivalentAddressGroup;
import io.grpc.Grpc;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.NameResolver;
import io.grpc.NameResolverProvider;
import io.grpc.NameResolverRegistry;
import io.grpc.StatusOr;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** Channels to one address, or to several with the calls distributed round-robin. */
final class Channels {
  private static final String SCHEME = "tidegate-addresses";

  /** An IP address with a port: {@code 192.0.2.1:8081}, {@code [2001:db8::1]:8081}. */
  private static final Pattern IP_AND_PORT =
      Pattern.compile("(?:\\[([0-9A-Fa-f:.]+)]|([0-9.]+)):(\\d{1,5})");

  static {
    NameResolverRegistry.getDefaultRegistry().register(new AddressListProvider());
  }

  private Channels() {}

  static ManagedChannel open(
      List<String> addresses,
      ChannelCredentials credentials,
      @Nullable String authority,
      List<ClientInterceptor> interceptors) {
    ManagedChannelBuilder<?> builder =
        Grpc.newChannelBuilder(target(addresses), credentials)
            .defaultLoadBalancingPolicy("round_robin")
            .keepAliveTime(30, TimeUnit.SECONDS)
            .keepAliveTimeout(5, TimeUnit.SECONDS)
            .keepAliveWithoutCalls(true)
            // A call is not idempotent. Without a retry policy gRPC repeats only calls that the
            // server
            // provably did not process, such as those behind a GOAWAY.
            .disableServiceConfigLookUp()
            .intercept(interceptors);
    if (authority != null) {
      builder.overrideAuthority(authority);
    }
    return builder.build();
  }

  /** The gRPC target of the addresses. */
  static String target(List<String> addresses) {
    if (addresses.size() == 1) {
      return addresses.get(0);
    }
    if (addresses.isEmpty()) {
      throw new IllegalArgumentException("no address; name one, such as 127.0.0.1:8081");
    }
    addresses.forEach(Channels::parse);
    return SCHEME + ":///" + String.join(",", addresses).replace("[", "%5B").replace("]", "%5D");
  }

  private static InetSocketAddress parse(String address) {
    Matcher matcher = IP_AND_PORT.matcher(address);
    if (matcher.matches()) {
      String ip = matcher.group(1) == null ? matcher.group(2) : matcher.group(1);
      try {
        // No lookup: the text has the characters of an IP address only.
        return new InetSocketAddress(InetAddress.getByName(ip), Integer.parseInt(matcher.group(3)));
      } catch (UnknownHostException | IllegalArgumentException invalid) {
        throw new IllegalArgumentException("the address " + address + " is invalid", invalid);
      }
    }
    throw new IllegalArgumentException(
        "the address "
            + address
            + " is not an IP address with a port; several addresses are such, or use one DNS name");
  }

  /** Resolves targets that list their addresses. */
  private static final class AddressListProvider extends NameResolverProvider {
    @Override
    protected boolean isAvailable() {
      return true;
    }

    @Override
    protected int priority() {
      return 5;
    }

    @Override
    public String getDefaultScheme() {
      return SCHEME;
    }

    @Override
    public @Nullable NameResolver newNameResolver(URI target, NameResolver.Args arguments) {
      return SCHEME.equals(target.getScheme())
          ? new AddressList(target.getPath().substring(1))
          : null;
    }
  }

  private static final class AddressList extends NameResolver {
    private final String text;

    AddressList(String text) {
      this.text = text;
    }

    @Override
    public String getServiceAuthority() {
      return text.split(",", 2)[0];
    }

    @Override
    public void start(Listener2 listener) {
      List<EquivalentAddressGroup> groups = new ArrayList<>();
      for (String address : text.split(",")) {
        groups.add(new EquivalentAddressGroup(parse(address)));
      }
      listener.onResult(
          ResolutionResult.newBuilder().setAddressesOrError(StatusOr.fromValue(groups)).build());
    }

    @Override
    public void shutdown() {}
  }
}
