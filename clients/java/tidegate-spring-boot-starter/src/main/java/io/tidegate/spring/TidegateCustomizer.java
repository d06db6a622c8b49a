package io.tidegate.spring;

import io.tidegate.client.TidegateBuilder;

/**
 * Changes the settings of the auto-configured client; all beans of this type are called in order.
 */
@FunctionalInterface
public interface TidegateCustomizer {
  /**
   * Changes settings.
   *
   * @param builder the builder, with the settings of the properties
   */
  void customize(TidegateBuilder builder);
}
