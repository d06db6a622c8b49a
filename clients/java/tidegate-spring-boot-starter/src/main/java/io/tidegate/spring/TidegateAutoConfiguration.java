package io.tidegate.spring;

import io.grpc.TlsChannelCredentials;
import io.micrometer.core.instrument.MeterRegistry;
import io.opentelemetry.api.OpenTelemetry;
import io.tidegate.client.Tidegate;
import io.tidegate.client.TidegateBuilder;
import io.tidegate.client.metrics.MicrometerObserver;
import io.tidegate.client.middleware.Limits;
import io.tidegate.client.middleware.RequestInfo;
import io.tidegate.client.tracing.TraceContext;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.springframework.aop.Advisor;
import org.springframework.aop.support.DefaultPointcutAdvisor;
import org.springframework.aop.support.annotation.AnnotationMatchingPointcut;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.BeanDefinition;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.context.properties.bind.Bindable;
import org.springframework.boot.context.properties.bind.Binder;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Condition;
import org.springframework.context.annotation.ConditionContext;
import org.springframework.context.annotation.Conditional;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Role;
import org.springframework.core.type.AnnotatedTypeMetadata;

/** Configures the client, and the advisor of {@link RateLimited} methods. */
@AutoConfiguration
@EnableConfigurationProperties(TidegateProperties.class)
public class TidegateAutoConfiguration {
  /** Creates the configuration. */
  public TidegateAutoConfiguration() {}

  /**
   * Returns the client.
   *
   * @param properties the properties
   * @param customizers change its settings
   * @return the client
   */
  @Bean
  @ConditionalOnMissingBean
  public Tidegate tidegate(
      TidegateProperties properties, ObjectProvider<TidegateCustomizer> customizers) {
    TidegateBuilder builder =
        Tidegate.builder(properties.address().toArray(String[]::new))
            .domain(properties.domain())
            .timeout(properties.timeout())
            .connectTimeout(properties.connectTimeout())
            .onFailure(properties.onFailure())
            .localDenials(properties.localDenials())
            .localDenialsFor(properties.localDenialsFor())
            .breaker(properties.breaker().failures(), properties.breaker().open());
    TidegateProperties.Tls tls = properties.tls();
    if (tls.enabled() || tls.ca() != null || tls.cert() != null) {
      builder.credentials(credentials(tls));
    }
    if (tls.authority() != null) {
      builder.authority(tls.authority());
    }
    customizers.orderedStream().forEach(customizer -> customizer.customize(builder));
    return builder.build();
  }

  private static io.grpc.ChannelCredentials credentials(TidegateProperties.Tls tls) {
    TlsChannelCredentials.Builder builder = TlsChannelCredentials.newBuilder();
    try {
      if (tls.ca() != null) {
        builder.trustManager(tls.ca());
      }
      if (tls.cert() != null) {
        if (tls.key() == null) {
          throw new IllegalArgumentException("tidegate.tls.cert needs tidegate.tls.key");
        }
        builder.keyManager(tls.cert(), tls.key());
      }
    } catch (IOException failed) {
      throw new UncheckedIOException("tidegate.tls: " + failed.getMessage(), failed);
    }
    return builder.build();
  }

  /**
   * Returns the limits of HTTP requests that the properties declare.
   *
   * @param properties the properties
   * @return the limits
   */
  @Bean
  @ConditionalOnMissingBean
  @Conditional(HasKeys.class)
  public Limits tidegateLimits(TidegateProperties properties) {
    boolean isPreflightLimited = properties.web().preflight();
    return Limits.of(
            properties.web().keys().stream().map(TidegateProperties.KeyProperties::toKey).toList())
        .skip(request -> !isPreflightLimited && isPreflight(request))
        .legacyHeaders(properties.web().legacyHeaders());
  }

  /**
   * Whether {@code tidegate.web.keys} has any key. A malformed key is an error here: without the
   * limits, the application would start and be unlimited.
   */
  static final class HasKeys implements Condition {
    @Override
    public boolean matches(ConditionContext context, AnnotatedTypeMetadata metadata) {
      return Binder.get(context.getEnvironment())
          .bind("tidegate.web.keys", Bindable.listOf(TidegateProperties.KeyProperties.class))
          .isBound();
    }
  }

  private static boolean isPreflight(RequestInfo request) {
    return request.method().equals("OPTIONS")
        && !request.header("Origin").isEmpty()
        && !request.header("Access-Control-Request-Method").isEmpty();
  }

  /**
   * Returns the advisor of {@link RateLimited} methods.
   *
   * @param client the client, created with the first call of such a method
   * @return the advisor
   */
  @Bean
  @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
  public static Advisor tidegateAdvisor(ObjectProvider<Tidegate> client) {
    return new DefaultPointcutAdvisor(
        AnnotationMatchingPointcut.forMethodAnnotation(RateLimited.class),
        new RateLimitedInterceptor(client::getObject));
  }

  /** Metrics by Micrometer, if present. */
  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass(MeterRegistry.class)
  static class Metrics {
    @Bean
    TidegateCustomizer tidegateMetrics(ObjectProvider<MeterRegistry> registry) {
      return builder -> registry.ifAvailable(one -> builder.observe(new MicrometerObserver(one)));
    }
  }

  /** Trace context by OpenTelemetry, if present. */
  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass(OpenTelemetry.class)
  static class Tracing {
    @Bean
    TidegateCustomizer tidegateTraceContext(ObjectProvider<OpenTelemetry> openTelemetry) {
      return builder -> openTelemetry.ifAvailable(one -> builder.metadata(new TraceContext(one)));
    }
  }
}
