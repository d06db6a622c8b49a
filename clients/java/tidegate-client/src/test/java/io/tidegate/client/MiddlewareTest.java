package io.tidegate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.StringValue;
import io.grpc.CallOptions;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.ServerCalls;
import io.tidegate.client.grpc.RateLimitServerInterceptor;
import io.tidegate.client.middleware.DeniedBody;
import io.tidegate.client.middleware.Guard;
import io.tidegate.client.middleware.Key;
import io.tidegate.client.middleware.Limits;
import io.tidegate.client.middleware.Missing;
import io.tidegate.client.servlet.RateLimitFilter;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.ServerConnector;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

class MiddlewareTest {
  private static final String FIVE =
      "{domain: d, descriptors: [{key: api_key, rate_limit: {name: five, unit: hour,"
          + " requests_per_unit: 5, algorithm: token_bucket}}]}";
  private static final String MARKING =
      "{domain: d, descriptors: [{key: api_key, rate_limit: {unit: hour, requests_per_unit: 1},"
          + " on_deny: {mark: {header: x-over, value: 'yes'}}}]}";
  private static final Limits LIMITS =
      Limits.of(Key.header("api_key", "x-api-key", Missing.REJECT));

  private final Servers servers = new Servers();

  @AfterEach
  void close() throws Exception {
    servers.close();
  }

  private Tidegate client(String address) {
    return servers.client(Tidegate.builder(address).domain("d").timeout(Duration.ofSeconds(5)));
  }

  /** Serves {@code hello REMAINING X-OVER} behind the filter, and returns its URI. */
  private URI serveServlet(Tidegate client, Limits limits) throws Exception {
    org.eclipse.jetty.server.Server jetty = new org.eclipse.jetty.server.Server();
    ServerConnector connector = new ServerConnector(jetty);
    connector.setHost("127.0.0.1");
    jetty.addConnector(connector);
    ServletContextHandler context = new ServletContextHandler();
    context.addFilter(
        new FilterHolder(new RateLimitFilter(client, limits)),
        "/*",
        EnumSet.of(DispatcherType.REQUEST));
    context.addServlet(
        new ServletHolder(
            new HttpServlet() {
              @Override
              protected void doGet(HttpServletRequest request, HttpServletResponse response)
                  throws IOException {
                Object decision = request.getAttribute(RateLimitFilter.DECISION);
                String reason = decision instanceof Decision made ? made.reason().label() : "none";
                response.getWriter().print("hello " + reason + " " + request.getHeader("x-over"));
              }
            }),
        "/*");
    jetty.setHandler(context);
    jetty.start();
    servers.closing(jetty::stop);
    return URI.create("http://127.0.0.1:" + connector.getLocalPort() + "/");
  }

  @TestFactory
  Stream<DynamicTest> conformanceMiddlewareOfServlets() {
    return MiddlewareCases.tests(
        (client, limits, own) -> {
          org.eclipse.jetty.server.Server jetty = new org.eclipse.jetty.server.Server();
          HttpConfiguration configuration = new HttpConfiguration();
          configuration.setRequestHeaderSize(64 * 1024);
          ServerConnector connector =
              new ServerConnector(jetty, new HttpConnectionFactory(configuration));
          connector.setHost("127.0.0.1");
          jetty.addConnector(connector);
          ServletContextHandler context = new ServletContextHandler();
          context.addFilter(
              new FilterHolder(new RateLimitFilter(client, limits)),
              "/*",
              EnumSet.of(DispatcherType.REQUEST));
          context.addServlet(
              new ServletHolder(
                  new HttpServlet() {
                    @Override
                    protected void doGet(HttpServletRequest request, HttpServletResponse response)
                        throws IOException {
                      List<String> marks =
                          Collections.list(request.getHeaders(MiddlewareCases.MARK));
                      response.getWriter().print(String.join(",", marks));
                    }
                  }),
              "/*");
          jetty.setHandler(context);
          jetty.start();
          own.closing(jetty::stop);
          return connector.getLocalPort();
        });
  }

  /** Responds in every way; a request for {@code /late} is asynchronous, and times out. */
  private static final class Ending extends HttpServlet {
    private final transient EndCases.Gate gate;

    Ending(EndCases.Gate gate) {
      this.gate = gate;
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
        throws IOException {
      switch (request.getRequestURI()) {
        case "/none" -> response.setStatus(204);
        case "/same" -> response.setStatus(304);
        case "/error" -> {
          response.setStatus(500);
          response.getWriter().print("an error");
        }
        case "/large" -> response.getWriter().print(EndCases.LARGE);
        case "/raise" -> throw new IllegalStateException("of the handler");
        case "/slow" -> gate.pass();
        case "/late" -> request.startAsync().setTimeout(20);
        default -> response.getWriter().print("body");
      }
    }
  }

  @TestFactory
  Stream<DynamicTest> conformanceMiddlewareEndsOfServlets() {
    return EndCases.tests(
        false,
        (client, limits, gate, own) ->
            serve(own, new Ending(gate), new RateLimitFilter(client, limits)));
  }

  /** Serves a servlet behind filters, and returns its port. */
  private static int serve(Servers own, HttpServlet servlet, RateLimitFilter... filters)
      throws Exception {
    org.eclipse.jetty.server.Server jetty = new org.eclipse.jetty.server.Server();
    ServerConnector connector = new ServerConnector(jetty);
    connector.setHost("127.0.0.1");
    jetty.addConnector(connector);
    ServletContextHandler context = new ServletContextHandler();
    for (RateLimitFilter filter : filters) {
      FilterHolder holder = new FilterHolder(filter);
      holder.setAsyncSupported(true);
      context.addFilter(holder, "/*", EnumSet.of(DispatcherType.REQUEST));
    }
    ServletHolder holder = new ServletHolder(servlet);
    holder.setAsyncSupported(true);
    context.addServlet(holder, "/*");
    jetty.setHandler(context);
    jetty.start();
    own.closing(jetty::stop);
    return connector.getLocalPort();
  }

  @Test
  void twoFiltersOnOneRequestListTheLimitsOfBoth() throws Exception {
    String rules =
        "{domain: d, descriptors: [{key: outer, rate_limit: {name: outer, unit: hour,"
            + " requests_per_unit: 8}}, {key: inner, rate_limit: {name: inner, unit: hour,"
            + " requests_per_unit: 1}}]}";
    Tidegate client = client(servers.serve(rules).address());
    int port =
        serve(
            servers,
            new Ending(new EndCases.Gate()),
            new RateLimitFilter(client, Limits.of(Key.constant("outer", "a"))),
            new RateLimitFilter(client, Limits.of(Key.constant("inner", "a"))));
    URI uri = URI.create("http://127.0.0.1:" + port + "/body");
    HttpResponse<String> admitted = get(uri);
    assertEquals(200, admitted.statusCode());
    assertEquals(
        "\"outer\";r=7, \"inner\";r=0", admitted.headers().firstValue("ratelimit").orElse(""));
    HttpResponse<String> denied = get(uri);
    assertEquals(429, denied.statusCode());
    String header = denied.headers().firstValue("ratelimit").orElse("");
    assertTrue(header.startsWith("\"outer\";r=6, \"inner\";r=0;t="), header);
  }

  @Test
  void anApplicationMakesTheBodiesOfItsDenials() throws Exception {
    Tidegate client = Tidegate.fake(call -> Decision.denied(Duration.ofSeconds(5)));
    Limits limits =
        Limits.of(Key.constant("route", "all"))
            .deniedBody(
                (decision, request) ->
                    new DeniedBody(
                        "application/json",
                        ("{\"path\":\"" + request.path() + "\"}")
                            .getBytes(StandardCharsets.UTF_8)));
    HttpResponse<String> denied = get(serveServlet(client, limits));
    assertEquals(429, denied.statusCode());
    assertEquals("application/json", denied.headers().firstValue("content-type").orElse(""));
    assertEquals("{\"path\":\"/\"}", denied.body());
  }

  @Test
  void anErrorOfTheBodyOfADenialEndsTheRequest() {
    Tidegate client = Tidegate.fake(call -> Decision.denied(Duration.ofSeconds(5)));
    Limits limits =
        Limits.of(Key.constant("route", "all"))
            .deniedBody(
                (decision, request) -> {
                  throw new StackOverflowError("of the application");
                });
    assertTrue(
        new Guard(client, limits).decideAsync(UnansweredTest.REQUEST).isCompletedExceptionally());
  }

  @Test
  void requestsThatDoNotCountGiveTheirHitsBack() throws Exception {
    CountDownLatch givenBack = new CountDownLatch(2);
    AtomicInteger taken = new AtomicInteger();
    Tidegate client =
        Tidegate.fake(
            call -> {
              if (call.givesBack()) {
                givenBack.countDown();
              } else {
                taken.incrementAndGet();
              }
              return Decision.admitted();
            });
    List<Integer> statuses = new CopyOnWriteArrayList<>();
    Limits limits =
        Limits.of(Key.constant("route", "login"))
            .counts(
                status -> {
                  statuses.add(status);
                  return status == 500;
                });
    int port = serve(servers, new Ending(new EndCases.Gate()), new RateLimitFilter(client, limits));
    for (String path : List.of("/error", "/raise", "/body", "/none")) {
      get(URI.create("http://127.0.0.1:" + port + path));
    }
    assertTrue(givenBack.await(10, TimeUnit.SECONDS));
    assertEquals(4, taken.get());
    assertEquals(List.of(500, 500, 200, 204), statuses);
  }

  private static HttpResponse<String> get(URI uri, String... headers) throws Exception {
    HttpRequest.Builder request = HttpRequest.newBuilder(uri);
    if (headers.length > 0) {
      request.headers(headers);
    }
    return HttpClient.newHttpClient().send(request.build(), HttpResponse.BodyHandlers.ofString());
  }

  @Test
  void theServletFilterAdmitsFiveRequestsAndDeniesTheSixth() throws Exception {
    URI uri = serveServlet(client(servers.serve(FIVE).address()), LIMITS.legacyHeaders(true));
    for (int remaining = 4; remaining >= 0; remaining--) {
      HttpResponse<String> response = get(uri, "x-api-key", "alice");
      assertEquals(200, response.statusCode());
      assertEquals("hello decided null", response.body());
      String header = response.headers().firstValue("ratelimit").orElse("");
      assertEquals("\"five\";r=" + remaining, header);
      assertEquals("5", response.headers().firstValue("x-ratelimit-limit").orElse(""));
    }
    HttpResponse<String> denied = get(uri, "x-api-key", "alice");
    assertEquals(429, denied.statusCode());
    assertEquals("Too Many Requests\n", denied.body());
    assertEquals("\"five\";q=5;w=3600", denied.headers().firstValue("ratelimit-policy").orElse(""));
    long retryAfter = denied.headers().firstValueAsLong("retry-after").orElse(0);
    assertTrue(retryAfter >= 715 && retryAfter <= 720, retryAfter + " s");
    assertEquals(200, get(uri, "x-api-key", "bob").statusCode());
    assertEquals(400, get(uri).statusCode());
  }

  @Test
  void theServletFilterRefusesWithoutAnAnswerIfItFailsClosed() throws Exception {
    Tidegate client = client("127.0.0.1:" + Servers.unusedPort());
    Limits closed =
        LIMITS.options(io.tidegate.client.CallOptions.DEFAULT.onFailure(OnFailure.CLOSED));
    assertEquals(503, get(serveServlet(client, closed), "x-api-key", "alice").statusCode());
    HttpResponse<String> open = get(serveServlet(client, LIMITS), "x-api-key", "alice");
    assertEquals("hello failed_open null", open.body());
    URI skipping = serveServlet(client, closed.skip(request -> request.path().equals("/")));
    assertEquals("hello none null", get(skipping).body());
  }

  @Test
  void theServletFilterAddsTheHeadersOfTheRulesToTheRequest() throws Exception {
    URI uri = serveServlet(client(servers.serve(MARKING).address()), LIMITS);
    assertEquals("hello decided null", get(uri, "x-api-key", "alice").body());
    assertEquals("hello decided yes", get(uri, "x-api-key", "alice").body());
  }

  private static final MethodDescriptor<StringValue, StringValue> ECHO =
      MethodDescriptor.<StringValue, StringValue>newBuilder()
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("test.Echo/Echo")
          .setRequestMarshaller(ProtoUtils.marshaller(StringValue.getDefaultInstance()))
          .setResponseMarshaller(ProtoUtils.marshaller(StringValue.getDefaultInstance()))
          .build();

  private ManagedChannel serveGrpc(Tidegate client) throws IOException {
    ServerServiceDefinition service =
        ServerServiceDefinition.builder("test.Echo")
            .addMethod(
                ECHO,
                ServerCalls.asyncUnaryCall(
                    (request, answer) -> {
                      Decision decision = RateLimitServerInterceptor.DECISION.get();
                      answer.onNext(
                          StringValue.of(String.valueOf(decision.remaining().orElse(-1))));
                      answer.onCompleted();
                    }))
            .build();
    Server server =
        Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
            .addService(service)
            .intercept(new RateLimitServerInterceptor(client, LIMITS))
            .build()
            .start();
    servers.closing(server::shutdownNow);
    ManagedChannel channel =
        Grpc.newChannelBuilder("127.0.0.1:" + server.getPort(), InsecureChannelCredentials.create())
            .build();
    servers.closing(channel::shutdownNow);
    return channel;
  }

  @Test
  void theInterceptorAdmitsFiveCallsAndDeniesTheSixth() throws Exception {
    ManagedChannel channel = serveGrpc(client(servers.serve(FIVE).address()));
    Metadata headers = new Metadata();
    headers.put(Metadata.Key.of("x-api-key", Metadata.ASCII_STRING_MARSHALLER), "alice");
    AtomicReference<Metadata> trailers = new AtomicReference<>();
    var intercepted =
        io.grpc.ClientInterceptors.intercept(
            channel,
            MetadataUtils.newAttachHeadersInterceptor(headers),
            MetadataUtils.newCaptureMetadataInterceptor(new AtomicReference<>(), trailers));
    for (int remaining = 4; remaining >= 0; remaining--) {
      StringValue answer =
          ClientCalls.blockingUnaryCall(
              intercepted, ECHO, CallOptions.DEFAULT, StringValue.of("x"));
      assertEquals(String.valueOf(remaining), answer.getValue());
      assertTrue(trailer(trailers, "ratelimit").startsWith("\"five\";r=" + remaining));
    }
    StatusRuntimeException denied =
        assertThrows(
            StatusRuntimeException.class,
            () ->
                ClientCalls.blockingUnaryCall(
                    intercepted, ECHO, CallOptions.DEFAULT, StringValue.of("x")));
    assertEquals(Status.Code.RESOURCE_EXHAUSTED, denied.getStatus().getCode());
    long retryAfter = Long.parseLong(trailer(trailers, "retry-after"));
    assertTrue(retryAfter >= 715 && retryAfter <= 720, retryAfter + " s");
    StatusRuntimeException missing =
        assertThrows(
            StatusRuntimeException.class,
            () ->
                ClientCalls.blockingUnaryCall(
                    channel, ECHO, CallOptions.DEFAULT, StringValue.of("x")));
    assertEquals(Status.Code.INVALID_ARGUMENT, missing.getStatus().getCode());
  }

  private static String trailer(AtomicReference<Metadata> trailers, String name) {
    return String.valueOf(
        trailers.get().get(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER)));
  }
}
