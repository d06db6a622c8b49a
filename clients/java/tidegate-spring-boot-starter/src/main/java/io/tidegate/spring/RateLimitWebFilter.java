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
import org.jspecify.annotations.Nullable;
import org.springframework.core.Ordered;
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

  /**
   * Creates a filter.
   *
   * @param client the client
   * @param limits what is limited
   */
  public RateLimitWebFilter(Tidegate client, Limits limits) {
    this.guard = new Guard(client, limits);
  }

  @Override
  public int getOrder() {
    return Ordered.HIGHEST_PRECEDENCE + 100;
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
                    .doFinally(signal -> admitted.slot().releaseAsync());
              }
              return chain.filter(exchange);
            });
  }

  private static ServerWebExchange admit(ServerWebExchange exchange, Outcome.Admitted admitted) {
    exchange.getAttributes().put(DECISION, admitted.decision());
    admitted
        .headers()
        .forEach((name, value) -> exchange.getResponse().getHeaders().set(name, value));
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

  private static Mono<Void> refuse(ServerHttpResponse response, Outcome.Refused refused) {
    response.setStatusCode(HttpStatusCode.valueOf(refused.status()));
    refused.headers().forEach((name, value) -> response.getHeaders().set(name, value));
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
