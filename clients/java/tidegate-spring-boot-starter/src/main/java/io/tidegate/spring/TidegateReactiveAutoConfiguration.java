package io.tidegate.spring;

import io.tidegate.client.Tidegate;
import io.tidegate.client.middleware.Limits;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.web.server.WebFilter;

/** Configures the filter of WebFlux applications. */
@AutoConfiguration(after = TidegateAutoConfiguration.class)
@ConditionalOnClass(WebFilter.class)
@ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.REACTIVE)
public class TidegateReactiveAutoConfiguration {
  /** Creates the configuration. */
  public TidegateReactiveAutoConfiguration() {}

  /**
   * Returns the filter.
   *
   * @param client the client
   * @param limits what is limited
   * @param properties the properties
   * @return the filter
   */
  @Bean
  @ConditionalOnBean(Limits.class)
  @ConditionalOnMissingBean
  public RateLimitWebFilter tidegateWebFilter(
      Tidegate client, Limits limits, TidegateProperties properties) {
    return new RateLimitWebFilter(client, limits, properties.web().order());
  }

  /**
   * Returns the handler of denials by {@link RateLimited} methods.
   *
   * @return the handler
   */
  @Bean
  @ConditionalOnMissingBean
  public RateLimitedAdvice rateLimitedAdvice() {
    return new RateLimitedAdvice();
  }
}
