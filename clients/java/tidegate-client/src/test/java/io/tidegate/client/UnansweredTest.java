package io.tidegate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.EquivalentAddressGroup;
import io.grpc.Grpc;
import io.grpc.HandlerRegistry;
import io.grpc.InsecureServerCredentials;
import io.grpc.MethodDescriptor;
import io.grpc.NameResolver;
import io.grpc.NameResolverProvider;
import io.grpc.NameResolverRegistry;
import io.grpc.Server;
import io.grpc.ServerMethodDefinition;
import io.grpc.Status;
import io.grpc.StatusOr;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ServerCalls;
import io.tidegate.client.middleware.Guard;
import io.tidegate.client.middleware.Key;
import io.tidegate.client.middleware.Limits;
import io.tidegate.client.middleware.Outcome;
import io.tidegate.client.middleware.RequestInfo;
import io.tidegate.client.proto.RateLimitRequest;
import io.tidegate.client.proto.RateLimitResponse;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Calls without a decision, dead addresses, and cancelled calls. */
class UnansweredTest {
  private static final String MANY =
      "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100000}}]}";
  private static final String IN_FLIGHT =
      "{domain: d, descriptors: [{key: user, rate_limit:"
          + " {algorithm: concurrency, requests_in_flight: 1000, max_hold: 1h}}]}";
  private static final Descriptor USER = Descriptor.of("user", "a");

  private final Servers servers = new Servers();

  @AfterEach
  void close() throws Exception {
    servers.close();
  }

  private TidegateBuilder builder(String address) {
    return Tidegate.builder(address).domain("d").timeout(Duration.ofSeconds(5)).localDenials(0);
  }

  /** Starts a gRPC server whose methods end with a status. */
  private String endingWith(Status status) throws Exception {
    HandlerRegistry ending =
        new HandlerRegistry() {
          @Override
          public ServerMethodDefinition<?, ?> lookupMethod(String name, String authority) {
            return ServerMethodDefinition.create(
                MethodDescriptor.<RateLimitRequest, RateLimitResponse>newBuilder()
                    .setType(MethodDescriptor.MethodType.UNARY)
                    .setFullMethodName(name)
                    .setRequestMarshaller(
                        ProtoUtils.marshaller(RateLimitRequest.getDefaultInstance()))
                    .setResponseMarshaller(
                        ProtoUtils.marshaller(RateLimitResponse.getDefaultInstance()))
                    .build(),
                ServerCalls.asyncUnaryCall(
                    (request, answer) -> answer.onError(status.asException())));
          }
        };
    Server server =
        Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
            .fallbackHandlerRegistry(ending)
            .build()
            .start();
    servers.closing(server::shutdownNow);
    return "127.0.0.1:" + server.getPort();
  }

  static final RequestInfo REQUEST =
      new RequestInfo() {
        @Override
        public String peer() {
          return "192.0.2.7";
        }

        @Override
        public String method() {
          return "GET";
        }

        @Override
        public String path() {
          return "/";
        }

        @Override
        public List<String> header(String name) {
          return List.of();
        }

        @Override
        public Object nativeRequest() {
          return this;
        }
      };

  @ParameterizedTest
  @EnumSource(
      value = Status.Code.class,
      names = {"UNIMPLEMENTED", "UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND"})
  void failingOpenCoversEveryStatusWithoutADecision(Status.Code code) throws Exception {
    List<String> logged = new ArrayList<>();
    Logger logger = Logger.getLogger("io.tidegate.client");
    Handler handler =
        new Handler() {
          @Override
          public void publish(LogRecord one) {
            logged.add(one.getMessage());
          }

          @Override
          public void flush() {}

          @Override
          public void close() {}
        };
    logger.addHandler(handler);
    try {
      List<String> seen = new ArrayList<>();
      Tidegate client =
          servers.client(
              builder(endingWith(code.toStatus().withDescription("of the test")))
                  .breaker(0, Duration.ZERO)
                  .observe((decision, taken) -> seen.add(decision.error().orElse(""))));
      Guard guard = new Guard(client, Limits.of(Key.constant("user", "a")));
      for (int call = 0; call < 3; call++) {
        assertTrue(guard.decide(REQUEST) instanceof Outcome.Admitted);
      }
      assertEquals(List.of(code.name(), code.name(), code.name()), seen);
      assertEquals(1, logged.size(), logged.toString());
      assertTrue(logged.get(0).contains(code.name()), logged.toString());
      CallOptions closed = CallOptions.DEFAULT.onFailure(OnFailure.CLOSED);
      assertEquals(Reason.FAILED_CLOSED, client.limit(List.of(USER), closed).reason());
    } finally {
      logger.removeHandler(handler);
    }
  }

  @Test
  void aKeyThatTheServerRefusesIsATypedErrorAndABadRequest() {
    Tidegate client = servers.client(builder(servers.serve(MANY).address()));
    String tooLong = "x".repeat(2_000_000);
    assertThrows(RequestException.class, () -> client.limit(Descriptor.of("user", tooLong)));
    Outcome outcome = new Guard(client, Limits.of(Key.constant("user", tooLong))).decide(REQUEST);
    assertEquals(400, ((Outcome.Refused) outcome).status());
  }

  /**
   * Makes an address dead: nothing listens, its kernel drops each SYN, or it accepts in silence.
   */
  private void dead(String kind, InetSocketAddress address) throws Exception {
    if (kind.equals("refuses")) {
      return;
    }
    ServerSocket listener = servers.closing(new ServerSocket());
    listener.bind(address, kind.equals("swallows") ? 1 : 128);
    // Fill the queue with connections that are never accepted.
    while (kind.equals("swallows")) {
      Socket filling = servers.closing(new Socket());
      try {
        filling.connect(address, 300);
      } catch (SocketTimeoutException isFull) {
        return;
      }
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"refuses", "swallows", "hangs"})
  void aDeadAddressOfANameCostsAtMostTwoSeconds(String kind) throws Exception {
    String address = servers.serve(MANY).address();
    int port = Integer.parseInt(address.substring(address.indexOf(':') + 1));
    InetSocketAddress dead = new InetSocketAddress(InetAddress.getByName("127.0.0.2"), port);
    dead(kind, dead);
    NameResolverProvider names =
        new Names(dead, new InetSocketAddress(InetAddress.getByName("127.0.0.1"), port));
    NameResolverRegistry.getDefaultRegistry().register(names);
    try {
      Tidegate client =
          servers.client(builder("names:///limits.example").timeout(Duration.ofMillis(500)));
      long began = System.nanoTime();
      int calls = 0;
      int failures = 0;
      while (System.nanoTime() - began < Duration.ofSeconds(3).toNanos()) {
        boolean failed = client.limit(USER).error().isPresent();
        if (System.nanoTime() - began > Duration.ofSeconds(2).toNanos()) {
          calls++;
          failures += failed ? 1 : 0;
        }
        Thread.sleep(5);
      }
      // A loaded machine exceeds the timeout now and then.
      assertTrue(failures * 10 < calls, failures + " of " + calls + " calls failed");
    } finally {
      NameResolverRegistry.getDefaultRegistry().deregister(names);
    }
  }

  /** A client of two servers, and the times of its undecided calls. */
  private final class Hanging {
    private final Tidegate client;
    private final Descriptor user;
    private final long everyMillis;
    private final List<Long> undecidedNanos = new ArrayList<>();

    Hanging(long everyMillis, String... addresses) {
      // The timeout is for loaded machines.
      this.client =
          servers.client(
              Tidegate.builder(addresses)
                  .domain("d")
                  .localDenials(0)
                  .timeout(Duration.ofSeconds(1)));
      this.user = Descriptor.of("user", everyMillis + " " + addresses.length);
      this.everyMillis = everyMillis;
    }

    /** Calls until both servers have counted. */
    void useBoth() {
      Set<Long> seen = new HashSet<>();
      for (int call = 0; call < 2_000; call++) {
        if (!seen.add(client.limit(user).remaining().orElse(-1))) {
          return;
        }
        LockSupport.parkNanos(5_000_000);
      }
      throw new AssertionError("one server counted all calls of " + user);
    }

    void call() {
      long untilNanos = System.nanoTime() + 4_000_000_000L;
      for (long sentNanos = System.nanoTime();
          sentNanos - untilNanos < 0;
          sentNanos = System.nanoTime()) {
        if (client.limit(user).error().isPresent()) {
          undecidedNanos.add(System.nanoTime());
        }
        LockSupport.parkNanos(sentNanos + everyMillis * 1_000_000 - System.nanoTime());
      }
    }

    void check() {
      assertFalse(undecidedNanos.isEmpty(), user.toString());
      long last = undecidedNanos.get(undecidedNanos.size() - 1);
      long nanos = last - undecidedNanos.get(0);
      assertTrue(nanos < 2_000_000_000L, user + ": " + undecidedNanos);
    }
  }

  @Test
  void aServerThatHangsBesideAnotherCostsAtMostTwoSeconds() throws Exception {
    Servers.Server other = servers.serve(MANY);
    int port = Integer.parseInt(other.address().substring(other.address().indexOf(':') + 1));
    Servers.Server hung = servers.serveOn("127.0.0.2:" + port, MANY);
    NameResolverProvider names =
        new Names(
            new InetSocketAddress(InetAddress.getByName("127.0.0.2"), port),
            new InetSocketAddress(InetAddress.getByName("127.0.0.1"), port));
    NameResolverRegistry.getDefaultRegistry().register(names);
    try {
      List<Hanging> runs = new ArrayList<>();
      for (long everyMillis : List.of(5L, 1_000L)) {
        runs.add(new Hanging(everyMillis, "names:///limits.example"));
        runs.add(new Hanging(everyMillis, hung.address(), other.address()));
      }
      atOnce(runs, Hanging::useBoth);
      hung.signal("STOP");
      atOnce(runs, Hanging::call);
      runs.forEach(Hanging::check);
    } finally {
      NameResolverRegistry.getDefaultRegistry().deregister(names);
    }
  }

  @Test
  void renewalsThatDoNotHelpBecomeRare() {
    Renewals renewals = new Renewals(0);
    List<Long> begun = new ArrayList<>();
    for (long second = 0; second < 300; second++) {
      if (renewals.begin(second * 1_000_000_000)) {
        assertFalse(renewals.begin(second * 1_000_000_000), "one at a time");
        renewals.ended(true, second * 1_000_000_000);
        begun.add(second);
      }
    }
    assertEquals(List.of(0L, 1L, 3L, 7L, 15L, 31L, 63L, 123L, 183L, 243L), begun);
  }

  private static void atOnce(List<Hanging> runs, Consumer<Hanging> action) {
    // A thread for each: the common pool may have only one.
    Executor threads = task -> new Thread(task).start();
    runs.stream()
        .map(run -> CompletableFuture.runAsync(() -> action.accept(run), threads))
        .toList()
        .forEach(CompletableFuture::join);
  }

  /** Resolves each name to the same addresses. */
  private static final class Names extends NameResolverProvider {
    private final List<EquivalentAddressGroup> addresses;

    Names(InetSocketAddress... addresses) {
      this.addresses = Arrays.stream(addresses).map(EquivalentAddressGroup::new).toList();
    }

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
      return "names";
    }

    @Override
    public NameResolver newNameResolver(URI target, NameResolver.Args args) {
      return new NameResolver() {
        @Override
        public String getServiceAuthority() {
          return "limits.example";
        }

        @Override
        public void start(Listener2 listener) {
          listener.onResult(
              ResolutionResult.newBuilder()
                  .setAddressesOrError(StatusOr.fromValue(addresses))
                  .build());
        }

        @Override
        public void shutdown() {}
      };
    }
  }

  @Test
  void aCallThatIsCancelledAtAnyMomentKeepsNoSlot() throws Exception {
    Tidegate client = servers.client(builder(servers.serve(IN_FLIGHT).address()));
    client.peek(USER);
    AtomicInteger cancelled = new AtomicInteger();
    for (int number = 0; number < 300; number++) {
      CompletableFuture<Slot> acquiring = client.acquireAsync(List.of(USER), CallOptions.DEFAULT);
      LockSupport.parkNanos(number * 3_000L);
      if (acquiring.cancel(false)) {
        cancelled.incrementAndGet();
      } else {
        acquiring.join().release();
      }
    }
    Thread.currentThread().interrupt();
    assertThrows(CancellationException.class, () -> client.acquire(USER));
    assertTrue(Thread.interrupted());
    assertTrue(cancelled.get() > 0);
    long deadline = System.nanoTime() + Duration.ofSeconds(5).toNanos();
    while (client.peek(USER).remaining().orElse(0) != 1000) {
      assertTrue(System.nanoTime() < deadline, "slots stay held");
      Thread.sleep(5);
    }
  }
}
