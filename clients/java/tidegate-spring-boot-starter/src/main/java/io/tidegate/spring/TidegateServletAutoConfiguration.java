package io.tidegate.spring;

import io.tidegate.client.Tidegate;
import io.tidegate.client.middleware.Limits;
import io.tidegate.client.servlet.RateLimitFilter;
import jakarta.servlet.Filter;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.annotation.Bean;

/** Configures the filter of Spring MVC applications. */
@AutoConfiguration(after = TidegateAutoConfiguration.class)
@ConditionalOnClass(Filter.class)
@ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.SERVLET)
public class TidegateServletAutoConfiguration {
  /** Creates the configuration. */
  public TidegateServletAutoConfiguration() {}

  /**
   * Returns the filter.
   *
   * @param client the client
   * @param limits what is limited
   * @return the filter
   */
  @Bean
  @ConditionalOnBean(Limits.class)
  @ConditionalOnMissingBean
  public RateLimitFilter tidegateFilter(Tidegate client, Limits limits) {
    return new RateLimitFilter(client, limits);
  }

  /**
   * Returns the place of the filter: {@code tidegate.web.order}.
   *
   * @param filter the filter
   * @param properties the properties
   * @return its registration
   */
  @Bean
  @ConditionalOnBean(RateLimitFilter.class)
  @ConditionalOnMissingBean(name = "tidegateFilterRegistration")
  public FilterRegistrationBean<RateLimitFilter> tidegateFilterRegistration(
      RateLimitFilter filter, TidegateProperties properties) {
    FilterRegistrationBean<RateLimitFilter> registration = new FilterRegistrationBean<>(filter);
    registration.setOrder(properties.web().order());
    return registration;
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
