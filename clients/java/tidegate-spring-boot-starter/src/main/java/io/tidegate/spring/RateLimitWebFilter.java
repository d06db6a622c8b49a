package io.tidegate.spring;

import io.tidegate.client.Decision;
import io.tidegate.client.Header;
import io.tidegate.client.Tidegate;
import io.tidegate.client.middleware.Guard;
import io.tidegate.client.middleware.Limits;
import io.tidegate.client.middleware.Outcome;
import io.tidegate.client.middleware.RequestInfo;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import org.springframework.core.Ordered;
import org.springframework.http.HttpHeaders;
import org.springframework.http.HttpStatusCode;
import org.springframework.http.server.reactive.ServerHttpRequest;
import org.springframework.http.server.reactive.ServerHttpResponse;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebFilterChain;
import reactor.core.publisher.Mono;

/**
 * Limits the requests of a WebFlux application, without blocking. A cancelled exchange cancels the
 * call.
 */
public final class RateLimitWebFilter implements WebFilter, Ordered {
  /** The exchange attribute with the {@link Decision}. */
  public static final String DECISION = "io.tidegate.client.decision";

  private final Guard guard;
  private final int order;

  /**
   * Creates a filter before those of Spring Security.
   *
   * @param client the client
   * @param limits what is limited
   */
  public RateLimitWebFilter(Tidegate client, Limits limits) {
    this(client, limits, TidegateProperties.BEFORE_SECURITY);
  }

  /**
   * Creates a filter.
   *
   * @param client the client
   * @param limits what is limited
   * @param order its place among the filters
   */
  public RateLimitWebFilter(Tidegate client, Limits limits, int order) {
    this.guard = new Guard(client, limits);
    this.order = order;
  }

  @Override
  public int getOrder() {
    return order;
  }

  @Override
  public Mono<Void> filter(ServerWebExchange exchange, WebFilterChain chain) {
    RequestInfo request = new ExchangeInfo(exchange);
    return Mono.fromFuture(() -> guard.decideAsync(request))
        .flatMap(
            outcome -> {
              if (outcome instanceof Outcome.Refused refused) {
                return refuse(exchange.getResponse(), refused);
              }
              if (outcome instanceof Outcome.Admitted admitted) {
                return chain
                    .filter(admit(exchange, admitted))
                    .doOnError(error -> endAfterError(exchange.getResponse(), admitted))
                    .doOnSuccess(done -> admitted.end(statusOf(exchange.getResponse())))
                    .doOnCancel(() -> admitted.end(statusOf(exchange.getResponse())));
              }
              return chain.filter(exchange);
            })
        // Decided while the exchange was cancelled.
        .doOnDiscard(Outcome.Admitted.class, admitted -> admitted.end(0));
  }

  private static ServerWebExchange admit(ServerWebExchange exchange, Outcome.Admitted admitted) {
    exchange.getAttributes().put(DECISION, admitted.decision());
    add(exchange.getResponse(), admitted.headers());
    List<Header> added = admitted.decision().requestHeaders();
    if (added.isEmpty()) {
      return exchange;
    }
    ServerHttpRequest.Builder request = exchange.getRequest().mutate();
    request.headers(
        headers -> {
          added.forEach(one -> headers.remove(one.name()));
          added.forEach(one -> headers.add(one.name(), one.value()));
        });
    return exchange.mutate().request(request.build()).build();
  }

  /**
   * Ends a request whose handler has failed. Its exception handlers are outside of all filters:
   * they set the status, and hold no slots. If its client leaves before, it has no status.
   */
  private static void endAfterError(ServerHttpResponse response, Outcome.Admitted admitted) {
    admitted.slot().releaseAsync();
    if (response.isCommitted()) {
      admitted.end(statusOf(response));
    } else {
      response.beforeCommit(() -> Mono.fromRunnable(() -> admitted.end(statusOf(response))));
    }
  }

  private static int statusOf(ServerHttpResponse response) {
    HttpStatusCode status = response.getStatusCode();
    return status == null ? 0 : status.value();
  }

  /** Adds the headers of a decision to those of an outer filter. */
  private static void add(ServerHttpResponse response, Map<String, String> headers) {
    HttpHeaders present = response.getHeaders();
    headers.forEach(
        (name, value) -> present.set(name, Outcome.beside(present.getFirst(name), name, value)));
  }

  private static Mono<Void> refuse(ServerHttpResponse response, Outcome.Refused refused) {
    response.setStatusCode(HttpStatusCode.valueOf(refused.status()));
    add(response, refused.headers());
    response.getHeaders().setContentLength(refused.body().length);
    return response.writeWith(Mono.just(response.bufferFactory().wrap(refused.body())));
  }

  private record ExchangeInfo(ServerWebExchange nativeRequest) implements RequestInfo {
    @Override
    public @Nullable String peer() {
      InetSocketAddress peer = nativeRequest.getRequest().getRemoteAddress();
      return peer == null || peer.getAddress() == null ? null : peer.getAddress().getHostAddress();
    }

    @Override
    public String method() {
      return nativeRequest.getRequest().getMethod().name();
    }

    @Override
    public String path() {
      return nativeRequest.getRequest().getPath().value();
    }

    @Override
    public List<String> header(String name) {
      return nativeRequest.getRequest().getHeaders().getOrEmpty(name);
    }
  }
}
