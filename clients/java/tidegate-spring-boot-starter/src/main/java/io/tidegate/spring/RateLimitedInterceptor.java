package io.tidegate.spring;

import io.tidegate.client.Tidegate;
import io.tidegate.client.middleware.Guard;
import io.tidegate.client.middleware.Key;
import io.tidegate.client.middleware.Limits;
import io.tidegate.client.middleware.Outcome;
import io.tidegate.client.middleware.RequestInfo;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.jspecify.annotations.Nullable;
import org.springframework.aop.ProxyMethodInvocation;
import org.springframework.context.expression.MethodBasedEvaluationContext;
import org.springframework.core.DefaultParameterNameDiscoverer;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.expression.Expression;
import org.springframework.expression.spel.standard.SpelExpressionParser;
import org.springframework.util.ClassUtils;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Limits the calls of {@link RateLimited} methods. */
final class RateLimitedInterceptor implements MethodInterceptor {
  private static final boolean HAS_REACTOR =
      ClassUtils.isPresent(
          "reactor.core.publisher.Mono", RateLimitedInterceptor.class.getClassLoader());

  private final Supplier<Tidegate> client;
  private final SpelExpressionParser parser = new SpelExpressionParser();
  private final DefaultParameterNameDiscoverer names = new DefaultParameterNameDiscoverer();
  private final Map<Method, Guard> guards = new ConcurrentHashMap<>();

  RateLimitedInterceptor(Supplier<Tidegate> client) {
    this.client = client;
  }

  @Override
  public @Nullable Object invoke(MethodInvocation invocation) throws Throwable {
    Guard guard = guards.computeIfAbsent(method(invocation), this::guard);
    RequestInfo call = new Call(invocation);
    Class<?> type = invocation.getMethod().getReturnType();
    if (HAS_REACTOR && type == Mono.class) {
      return Reactive.mono(guard, call, clone(invocation));
    }
    if (HAS_REACTOR && type == Flux.class) {
      return Reactive.flux(guard, call, clone(invocation));
    }
    if (type == CompletionStage.class || type == CompletableFuture.class) {
      MethodInvocation later = clone(invocation);
      CompletableFuture<Outcome> deciding = guard.decideAsync(call);
      CompletableFuture<Object> result = deciding.thenCompose(outcome -> stage(outcome, later));
      // A caller that cancels keeps no slot.
      result.whenComplete((value, failure) -> deciding.cancel(false));
      return result;
    }
    Outcome outcome = guard.decide(call);
    check(outcome);
    try {
      return invocation.proceed();
    } finally {
      release(outcome);
    }
  }

  private static CompletionStage<Object> stage(Outcome outcome, MethodInvocation invocation) {
    try {
      check(outcome);
      @SuppressWarnings("unchecked")
      CompletionStage<Object> result = (CompletionStage<Object>) proceed(invocation);
      result.whenComplete((value, failure) -> release(outcome));
      return result;
    } catch (Throwable failure) {
      release(outcome);
      return CompletableFuture.failedFuture(failure);
    }
  }

  /** Methods with reactive results; a class of its own, since Reactor is optional. */
  private static final class Reactive {
    static Mono<?> mono(Guard guard, RequestInfo call, MethodInvocation invocation) {
      return Mono.fromFuture(() -> guard.decideAsync(call))
          .flatMap(
              outcome -> {
                try {
                  check(outcome);
                  return ((Mono<?>) proceed(invocation)).doFinally(signal -> release(outcome));
                } catch (Throwable failure) {
                  release(outcome);
                  return Mono.error(failure);
                }
              });
    }

    static Flux<?> flux(Guard guard, RequestInfo call, MethodInvocation invocation) {
      return Mono.fromFuture(() -> guard.decideAsync(call))
          .flatMapMany(
              outcome -> {
                try {
                  check(outcome);
                  return ((Flux<?>) proceed(invocation)).doFinally(signal -> release(outcome));
                } catch (Throwable failure) {
                  release(outcome);
                  return Flux.error(failure);
                }
              });
    }
  }

  private static void check(Outcome outcome) {
    if (outcome instanceof Outcome.Refused refused) {
      throw new RateLimitedException(refused);
    }
  }

  /** Releases the slots of a call that is over. */
  private static void release(Outcome outcome) {
    if (outcome instanceof Outcome.Admitted admitted) {
      admitted.end(0);
    }
  }

  /** An invocation that can proceed later, and again for each subscription. */
  private static MethodInvocation clone(MethodInvocation invocation) {
    return ((ProxyMethodInvocation) invocation).invocableClone();
  }

  private static Object proceed(MethodInvocation invocation) throws Throwable {
    return Objects.requireNonNull(
        clone(invocation).proceed(), "the method returned null instead of its result");
  }

  /** The method of the bean's class: that of an interface may lack parameter names. */
  private static Method method(MethodInvocation invocation) {
    Object target = invocation.getThis();
    return target == null
        ? invocation.getMethod()
        : ClassUtils.getMostSpecificMethod(invocation.getMethod(), ClassUtils.getUserClass(target));
  }

  private Guard guard(Method method) {
    RateLimited limited =
        Objects.requireNonNull(
            AnnotatedElementUtils.findMergedAnnotation(method, RateLimited.class));
    List<Key> keys =
        Arrays.stream(limited.value())
            .map(
                entry -> {
                  Expression value = parser.parseExpression(entry.value());
                  return Key.of(
                      entry.key(),
                      call -> evaluate(value, method, call, String.class),
                      entry.missing());
                })
            .toList();
    Expression cost = parser.parseExpression(limited.cost());
    Limits limits =
        Limits.of(keys)
            .cost(
                call ->
                    Objects.requireNonNull(
                        evaluate(cost, method, call, Long.class), "the cost of a call is null"));
    return new Guard(client.get(), limits);
  }

  private <T> @Nullable T evaluate(
      Expression expression, Method method, RequestInfo call, Class<T> type) {
    MethodInvocation invocation = (MethodInvocation) call.nativeRequest();
    Object root = Objects.requireNonNull(invocation.getThis(), "a static method");
    return expression.getValue(
        new MethodBasedEvaluationContext(root, method, invocation.getArguments(), names), type);
  }

  /** A call, in the form of a middleware's request. */
  private record Call(MethodInvocation nativeRequest) implements RequestInfo {
    @Override
    public @Nullable String peer() {
      return null;
    }

    @Override
    public String method() {
      return "";
    }

    @Override
    public String path() {
      return nativeRequest.getMethod().toString();
    }

    @Override
    public List<String> header(String name) {
      return List.of();
    }
  }
}
