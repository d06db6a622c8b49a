package io.tidegate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.tidegate.client.Decision;
import io.tidegate.client.EndCases;
import io.tidegate.client.MiddlewareCases;
import io.tidegate.client.Servers;
import io.tidegate.client.Tidegate;
import io.tidegate.client.middleware.Key;
import io.tidegate.client.middleware.Limits;
import io.tidegate.client.middleware.Missing;
import jakarta.servlet.Filter;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.context.support.GenericApplicationContext;
import org.springframework.core.Ordered;
import org.springframework.core.annotation.Order;
import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpStatus;
import org.springframework.http.HttpStatusCode;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RequestHeader;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.context.request.async.DeferredResult;
import org.springframework.web.cors.CorsConfiguration;
import org.springframework.web.cors.UrlBasedCorsConfigurationSource;
import org.springframework.web.cors.reactive.CorsWebFilter;
import org.springframework.web.filter.CorsFilter;
import org.springframework.web.server.ResponseStatusException;
import org.springframework.web.server.WebExceptionHandler;
import org.springframework.web.server.WebFilter;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

class StarterTest {
  private static final String RULES =
      """
      domain: demo
      descriptors:
        - key: api_key
          rate_limit: {name: five, unit: hour, requests_per_unit: 5, algorithm: token_bucket}
        - key: user
          rate_limit: {name: tokens, unit: hour, requests_per_unit: 100}
        - key: marked
          rate_limit: {unit: hour, requests_per_unit: 1}
          on_deny: {mark: {header: x-over, value: "yes"}}
      """;

  private final Servers servers = new Servers();

  @AfterEach
  void close() throws Exception {
    servers.close();
  }

  /** A bean with limited methods. */
  static class Model {
    @RateLimited(
        value = @RateLimited.Entry(key = "user", value = "#user", missing = Missing.REJECT),
        cost = "#tokens")
    public String complete(String user, long tokens) {
      return "completed";
    }

    @RateLimited(
        value = @RateLimited.Entry(key = "user", value = "#user", missing = Missing.REJECT),
        cost = "#tokens")
    public Mono<String> completeMono(String user, long tokens) {
      return Mono.just("completed");
    }

    @RateLimited(
        value = @RateLimited.Entry(key = "user", value = "#user", missing = Missing.REJECT),
        cost = "#tokens")
    public Flux<String> completeFlux(String user, long tokens) {
      return Flux.just("comple", "ted");
    }

    @RateLimited(
        value = @RateLimited.Entry(key = "user", value = "#user", missing = Missing.REJECT),
        cost = "#tokens")
    public CompletableFuture<String> completeLater(String user, long tokens) {
      return CompletableFuture.completedFuture("completed");
    }
  }

  @Configuration
  @EnableAutoConfiguration
  @Import(Controller.class)
  static class Application {
    @Bean
    Model model() {
      return new Model();
    }

    @Bean
    MeterRegistry registry() {
      return new SimpleMeterRegistry();
    }
  }

  @RestController
  static class Controller {
    private final Model model;

    Controller(Model model) {
      this.model = model;
    }

    @GetMapping("/")
    String home() {
      return "hello";
    }

    @GetMapping("/marked")
    String marked(@RequestHeader(name = "x-over", defaultValue = "not marked") String over) {
      return over;
    }

    @GetMapping("/complete")
    String complete(@RequestParam("user") String user, @RequestParam("tokens") long tokens) {
      return model.complete(user, tokens);
    }
  }

  /** Responds with the marks that it reads. */
  @RestController
  static class Marks {
    @GetMapping("/")
    String marks(@RequestHeader HttpHeaders headers) {
      return String.join(",", headers.getOrEmpty(MiddlewareCases.MARK));
    }
  }

  @Configuration
  @EnableAutoConfiguration
  @Import(Marks.class)
  static class MarkedApplication {}

  private static Stream<DynamicTest> middlewareCases(WebApplicationType type) {
    return MiddlewareCases.tests(
        (client, limits, own) -> {
          ConfigurableApplicationContext application =
              own.closing(
                  new SpringApplicationBuilder(MarkedApplication.class)
                      .web(type)
                      .initializers(
                          context -> {
                            GenericApplicationContext beans = (GenericApplicationContext) context;
                            beans.registerBean(Tidegate.class, () -> client);
                            beans.registerBean(Limits.class, () -> limits);
                          })
                      .properties(
                          "server.port=0",
                          "server.max-http-request-header-size=64KB",
                          "spring.main.banner-mode=off",
                          "logging.level.root=warn")
                      .run());
          return application.getEnvironment().getProperty("local.server.port", Integer.class, 0);
        });
  }

  @TestFactory
  Stream<DynamicTest> conformanceMiddlewareOfMvc() {
    return middlewareCases(WebApplicationType.SERVLET);
  }

  @TestFactory
  Stream<DynamicTest> conformanceMiddlewareOfWebFlux() {
    return middlewareCases(WebApplicationType.REACTIVE);
  }

  /** Responds in every way, with Spring MVC. */
  @RestController
  static class MvcEndings {
    private final EndCases.Gate gate;

    MvcEndings(EndCases.Gate gate) {
      this.gate = gate;
    }

    @GetMapping("/{name}")
    ResponseEntity<String> respond(@PathVariable("name") String name) {
      return switch (name) {
        case "none" -> ResponseEntity.status(204).build();
        case "same" -> ResponseEntity.status(304).build();
        case "error" -> ResponseEntity.status(500).body("an error");
        case "large" -> ResponseEntity.ok(EndCases.LARGE);
        case "raise" -> throw new IllegalStateException("of the handler");
        case "slow" -> {
          gate.pass();
          yield ResponseEntity.ok("slow");
        }
        default -> ResponseEntity.ok("body");
      };
    }

    @GetMapping("/late")
    DeferredResult<String> late() {
      return new DeferredResult<>(20L);
    }
  }

  /** Responds in every way, with WebFlux. */
  @RestController
  static class ReactiveEndings {
    private final EndCases.Gate gate;

    ReactiveEndings(EndCases.Gate gate) {
      this.gate = gate;
    }

    @GetMapping("/{name}")
    Mono<ResponseEntity<String>> respond(@PathVariable("name") String name) {
      return switch (name) {
        case "slow" ->
            Mono.fromRunnable(gate::pass)
                .subscribeOn(Schedulers.boundedElastic())
                .thenReturn(ResponseEntity.ok("slow"));
        case "late" -> Mono.<ResponseEntity<String>>never().timeout(Duration.ofMillis(20));
        default -> Mono.fromSupplier(() -> new MvcEndings(gate).respond(name));
      };
    }
  }

  @Configuration
  @EnableAutoConfiguration
  static class EndingApplication {}

  private static Stream<DynamicTest> endCases(
      WebApplicationType type, boolean isCancelling, Class<?> controller) {
    return EndCases.tests(
        isCancelling,
        (client, limits, gate, own) ->
            own.closing(
                    new SpringApplicationBuilder(EndingApplication.class, controller)
                        .web(type)
                        .initializers(
                            context -> {
                              GenericApplicationContext beans = (GenericApplicationContext) context;
                              beans.registerBean(Tidegate.class, () -> client);
                              beans.registerBean(Limits.class, () -> limits);
                              beans.registerBean(EndCases.Gate.class, () -> gate);
                            })
                        .properties(
                            "server.port=0",
                            "spring.main.banner-mode=off",
                            "logging.level.root=off")
                        .run())
                .getEnvironment()
                .getProperty("local.server.port", Integer.class, 0));
  }

  @TestFactory
  Stream<DynamicTest> conformanceMiddlewareEndsOfMvc() {
    return endCases(WebApplicationType.SERVLET, false, MvcEndings.class);
  }

  @TestFactory
  Stream<DynamicTest> conformanceMiddlewareEndsOfWebFlux() {
    return endCases(WebApplicationType.REACTIVE, true, ReactiveEndings.class);
  }

  /** A wrong password: only the application's exception handler sets its status. */
  static final class WrongPassword extends RuntimeException {
    private static final long serialVersionUID = 1;
  }

  /** Fails in every way, with WebFlux. */
  @RestController
  static class Failing {
    @GetMapping("/{name}")
    Mono<String> respond(@PathVariable("name") String name) {
      return switch (name) {
        case "status" -> Mono.error(new ResponseStatusException(HttpStatus.UNAUTHORIZED));
        case "handled" -> Mono.error(new WrongPassword());
        case "unhandled" -> Mono.error(new IllegalStateException("of the handler"));
        default -> Mono.just("body");
      };
    }

    @Bean
    @Order(Ordered.HIGHEST_PRECEDENCE)
    WebExceptionHandler wrongPasswords() {
      return (exchange, error) -> {
        if (!(error instanceof WrongPassword)) {
          return Mono.error(error);
        }
        // Like a handler that looks something up.
        return Mono.fromRunnable(
                () -> exchange.getResponse().setStatusCode(HttpStatus.UNAUTHORIZED))
            .delaySubscription(Duration.ofMillis(20))
            .then(Mono.defer(() -> exchange.getResponse().setComplete()));
      };
    }
  }

  /** A request once counted with status 200 if an exception handler set another status later. */
  @Test
  void anErrorOfWebFluxCountsByTheStatusOfItsResponse() throws Exception {
    BlockingQueue<String> calls = new LinkedBlockingQueue<>();
    Tidegate client =
        Tidegate.fake(
            call -> {
              calls.add(call.givesBack() ? "given back" : "taken");
              return Decision.admitted();
            });
    Limits limits =
        Limits.of(Key.constant("route", "login"))
            .counts(
                status -> {
                  calls.add("status " + status);
                  return status == 401;
                });
    int port = serve(WebApplicationType.REACTIVE, client, limits, Failing.class);
    for (String path : List.of("/status", "/handled", "/unhandled", "/body")) {
      URI uri = URI.create("http://127.0.0.1:" + port + path);
      int status =
          HttpClient.newHttpClient()
              .send(HttpRequest.newBuilder(uri).build(), HttpResponse.BodyHandlers.ofString())
              .statusCode();
      assertEquals("taken", calls.poll(10, TimeUnit.SECONDS), path);
      assertEquals("status " + status, calls.poll(10, TimeUnit.SECONDS), path);
      if (status != 401) {
        assertEquals("given back", calls.poll(10, TimeUnit.SECONDS), path);
      }
    }
  }

  private int serve(WebApplicationType type, Tidegate client, Limits limits, Class<?> controller) {
    return servers
        .closing(
            new SpringApplicationBuilder(EndingApplication.class, controller)
                .web(type)
                .initializers(
                    context -> {
                      GenericApplicationContext beans = (GenericApplicationContext) context;
                      beans.registerBean(Tidegate.class, () -> client);
                      beans.registerBean(Limits.class, () -> limits);
                    })
                .properties(
                    "server.port=0", "spring.main.banner-mode=off", "logging.level.root=off")
                .run())
        .getEnvironment()
        .getProperty("local.server.port", Integer.class, 0);
  }

  /**
   * Filters of CORS and security, at the places where applications and Spring Security have them.
   */
  @Configuration
  static class ServletFilters {
    @Bean
    FilterRegistrationBean<CorsFilter> cors() {
      CorsConfiguration all = new CorsConfiguration().applyPermitDefaultValues();
      UrlBasedCorsConfigurationSource source = new UrlBasedCorsConfigurationSource();
      source.registerCorsConfiguration("/**", all);
      FilterRegistrationBean<CorsFilter> cors =
          new FilterRegistrationBean<>(new CorsFilter(source));
      cors.setOrder(-200);
      return cors;
    }

    @Bean
    FilterRegistrationBean<Filter> security() {
      Filter refusing =
          (request, response, chain) -> ((HttpServletResponse) response).setStatus(401);
      FilterRegistrationBean<Filter> security = new FilterRegistrationBean<>(refusing);
      security.setOrder(-100);
      return security;
    }
  }

  /** The same for WebFlux. */
  @Configuration
  static class ReactiveFilters {
    @Bean
    @Order(-200)
    CorsWebFilter cors() {
      CorsConfiguration all = new CorsConfiguration().applyPermitDefaultValues();
      var source = new org.springframework.web.cors.reactive.UrlBasedCorsConfigurationSource();
      source.registerCorsConfiguration("/**", all);
      return new OrderedCors(source);
    }

    @Bean
    @Order(-100)
    WebFilter security() {
      return (exchange, chain) -> {
        exchange.getResponse().setStatusCode(HttpStatusCode.valueOf(401));
        return exchange.getResponse().setComplete();
      };
    }
  }

  private static final class OrderedCors extends CorsWebFilter implements Ordered {
    OrderedCors(org.springframework.web.cors.reactive.CorsConfigurationSource source) {
      super(source);
    }

    @Override
    public int getOrder() {
      return -200;
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"SERVLET", "REACTIVE"})
  void theFilterIsBeforeSecurityAndAfterCors(String type) throws Exception {
    WebApplicationType web = WebApplicationType.valueOf(type);
    ConfigurableApplicationContext application =
        start(
            web,
            List.<Class<?>>of(
                Application.class,
                web == WebApplicationType.SERVLET ? ServletFilters.class : ReactiveFilters.class),
            BY_API_KEY);
    String[] headers = {"x-api-key", "alice", "origin", "http://app.example"};
    for (int number = 0; number < 5; number++) {
      assertEquals(401, get(application, "/", headers).statusCode(), "refused by security");
    }
    HttpResponse<String> denied = get(application, "/", headers);
    assertEquals(429, denied.statusCode(), "what security refuses counts");
    assertEquals("*", denied.headers().firstValue("access-control-allow-origin").orElse(""));
  }

  @ParameterizedTest
  @ValueSource(strings = {"SERVLET", "REACTIVE"})
  void thePlaceOfTheFilterIsAProperty(String type) throws Exception {
    WebApplicationType web = WebApplicationType.valueOf(type);
    List<String> behind = new ArrayList<>(List.of(BY_API_KEY));
    behind.add("tidegate.web.order=0");
    ConfigurableApplicationContext application =
        start(
            web,
            List.<Class<?>>of(
                Application.class,
                web == WebApplicationType.SERVLET ? ServletFilters.class : ReactiveFilters.class),
            behind.toArray(String[]::new));
    for (int number = 0; number < 7; number++) {
      assertEquals(401, get(application, "/", "x-api-key", "alice").statusCode());
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"SERVLET", "REACTIVE"})
  void aPreflightRequestWithoutAKeyIsNotRefused(String type) throws Exception {
    ConfigurableApplicationContext application =
        start(WebApplicationType.valueOf(type), BY_API_KEY);
    String port = application.getEnvironment().getProperty("local.server.port");
    Preflight preflight = new Preflight(port);
    assertTrue(preflight.status() != 400, "status " + preflight.status());
  }

  /** A preflight request over a socket: clients of the JDK refuse its headers. */
  private record Preflight(String port) {
    int status() throws IOException {
      try (Socket socket = new Socket("127.0.0.1", Integer.parseInt(port))) {
        String head =
            "OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: http://app.example\r\n"
                + "Access-Control-Request-Method: GET\r\nConnection: close\r\n\r\n";
        socket.getOutputStream().write(head.getBytes(StandardCharsets.US_ASCII));
        String response =
            new String(socket.getInputStream().readAllBytes(), StandardCharsets.ISO_8859_1);
        return Integer.parseInt(response.split(" ")[1]);
      }
    }
  }

  private ConfigurableApplicationContext start(WebApplicationType type, String... more) {
    return start(type, List.<Class<?>>of(Application.class), more);
  }

  private ConfigurableApplicationContext start(
      WebApplicationType type, List<Class<?>> sources, String... more) {
    List<String> properties =
        new ArrayList<>(
            List.of(
                "server.port=0",
                "spring.main.banner-mode=off",
                "logging.level.root=warn",
                "tidegate.address=" + servers.serve(RULES).address(),
                "tidegate.domain=demo",
                "tidegate.timeout=5s"));
    properties.addAll(List.of(more));
    return servers.closing(
        new SpringApplicationBuilder(sources.toArray(Class<?>[]::new))
            .web(type)
            .properties(properties.toArray(String[]::new))
            .run());
  }

  private static final String[] BY_API_KEY = {
    "tidegate.web.keys[0].entry=api_key",
    "tidegate.web.keys[0].header=x-api-key",
    "tidegate.web.keys[0].missing=reject",
    "tidegate.web.legacy-headers=true"
  };

  private static HttpResponse<String> get(
      ConfigurableApplicationContext application, String path, String... headers) throws Exception {
    String port = application.getEnvironment().getProperty("local.server.port");
    HttpRequest.Builder request =
        HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path));
    if (headers.length > 0) {
      request.headers(headers);
    }
    return HttpClient.newHttpClient().send(request.build(), HttpResponse.BodyHandlers.ofString());
  }

  @ParameterizedTest
  @ValueSource(strings = {"SERVLET", "REACTIVE"})
  void theFilterAdmitsFiveRequestsAndDeniesTheSixth(String type) throws Exception {
    ConfigurableApplicationContext application =
        start(WebApplicationType.valueOf(type), BY_API_KEY);
    for (int remaining = 4; remaining >= 0; remaining--) {
      HttpResponse<String> response = get(application, "/", "x-api-key", "alice");
      assertEquals(200, response.statusCode());
      assertEquals("hello", response.body());
      String header = response.headers().firstValue("ratelimit").orElse("");
      assertEquals("\"five\";r=" + remaining, header);
      assertEquals("5", response.headers().firstValue("x-ratelimit-limit").orElse(""));
    }
    HttpResponse<String> denied = get(application, "/", "x-api-key", "alice");
    assertEquals(429, denied.statusCode());
    assertEquals("Too Many Requests\n", denied.body());
    assertEquals("\"five\";q=5;w=3600", denied.headers().firstValue("ratelimit-policy").orElse(""));
    long retryAfter = denied.headers().firstValueAsLong("retry-after").orElse(0);
    assertTrue(retryAfter >= 700 && retryAfter <= 720, retryAfter + " s");
    assertEquals(200, get(application, "/", "x-api-key", "bob").statusCode());
    assertEquals(400, get(application, "/").statusCode());
    MeterRegistry registry = application.getBean(MeterRegistry.class);
    assertEquals(
        6,
        registry
            .get("tidegate.client.decisions")
            .tags("allowed", "true", "reason", "decided", "error", "")
            .counter()
            .count());
  }

  @ParameterizedTest
  @ValueSource(strings = {"SERVLET", "REACTIVE"})
  void aRequestIsAnsweredWith429IfALimitedMethodIsDenied(String type) throws Exception {
    ConfigurableApplicationContext application = start(WebApplicationType.valueOf(type));
    assertEquals("completed", get(application, "/complete?user=ann&tokens=60").body());
    HttpResponse<String> denied = get(application, "/complete?user=ann&tokens=60");
    assertEquals(429, denied.statusCode());
    assertEquals("Too Many Requests\n", denied.body());
    assertEquals(
        "\"tokens\";q=100;w=3600", denied.headers().firstValue("ratelimit-policy").orElse(""));
    assertTrue(denied.headers().firstValueAsLong("retry-after").orElse(0) > 0);
    assertEquals(400, get(application, "/complete?user=&tokens=1").statusCode());
    assertEquals("completed", get(application, "/complete?user=ann&tokens=40").body());
  }

  @Test
  void limitedMethodsOfEachKindTakeTheirCost() {
    Model model = start(WebApplicationType.NONE).getBean(Model.class);
    assertEquals("completed", model.complete("a", 25));
    Mono<String> mono = model.completeMono("a", 25);
    assertEquals("completed", mono.block());
    assertEquals("completed", model.completeLater("a", 25).join());
    assertEquals("completed", String.join("", model.completeFlux("a", 20).toIterable()));
    RateLimitedException denied =
        assertThrows(RateLimitedException.class, () -> model.complete("a", 6));
    assertEquals(429, denied.status());
    assertEquals(5, denied.decision().orElseThrow().remaining().orElseThrow());
    // Each subscription is a call.
    assertThrows(RateLimitedException.class, mono::block);
    assertThrows(
        RateLimitedException.class, () -> model.completeFlux("a", 25).collectList().block());
    CompletionException later =
        assertThrows(CompletionException.class, () -> model.completeLater("a", 25).join());
    assertEquals(RateLimitedException.class, later.getCause().getClass());
    assertEquals("completed", model.complete("a", 5));
  }

  @ParameterizedTest
  @ValueSource(strings = {"SERVLET", "REACTIVE"})
  void theFilterAddsTheHeadersOfTheRulesToTheRequest(String type) throws Exception {
    ConfigurableApplicationContext application =
        start(
            WebApplicationType.valueOf(type),
            "tidegate.web.keys[0].entry=marked",
            "tidegate.web.keys[0].value=all");
    assertEquals("not marked", get(application, "/marked").body());
    assertEquals("yes", get(application, "/marked").body());
  }

  /** The first cause of the failure of an application with these properties to start. */
  private String refusal(String... properties) {
    Throwable refused =
        assertThrows(RuntimeException.class, () -> start(WebApplicationType.NONE, properties));
    while (refused.getCause() != null) {
      refused = refused.getCause();
    }
    return refused.getMessage();
  }

  @Test
  void aKeyWithoutAChoiceForMissingValuesIsRefused() {
    assertEquals(
        "tidegate.web.keys: api_key needs missing: reject, allow or shared",
        refusal("tidegate.web.keys[0].entry=api_key", "tidegate.web.keys[0].header=x-api-key"));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "tidegate.web.keys[0].header=x-api-key",
        "tidegate.web.keys[0].value=all",
        "tidegate.web.keys[0].trusted-proxies=0",
        "tidegate.web.keys[0].entry=",
      })
  void aKeyWithoutAnEntryIsRefused(String property) {
    for (String lazy : List.of("false", "true")) {
      assertEquals(
          "tidegate.web.keys: a key has no entry; write entry: and the entry's key in the rules",
          refusal(property, "spring.main.lazy-initialization=" + lazy));
    }
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "tidegate.web.keys[0].key=api_key",
        "tidegate.web.key[0].entry=api_key",
        "tidegate.on-failures=closed",
      })
  void aMisspeltPropertyIsRefused(String property) {
    String refused = refusal(property);
    assertTrue(refused.contains(property.substring(0, property.indexOf('='))), refused);
  }

  @Test
  void theClientOfTheApplicationReplacesTheConfiguredOne() {
    Tidegate own = servers.client(Tidegate.builder("127.0.0.1:1").domain("own"));
    ConfigurableApplicationContext application =
        servers.closing(
            new SpringApplicationBuilder(Application.class)
                .web(WebApplicationType.NONE)
                .properties("spring.main.banner-mode=off", "logging.level.root=warn")
                .initializers(
                    context ->
                        ((GenericApplicationContext) context)
                            .registerBean("own", Tidegate.class, () -> own))
                .run());
    assertEquals(own, application.getBean(Tidegate.class));
  }
}
