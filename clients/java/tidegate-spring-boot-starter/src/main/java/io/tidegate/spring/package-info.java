/**
 * Auto-configuration of {@link io.tidegate.client.Tidegate} for Spring Boot: a client from the
 * properties {@code tidegate.*}, filters for Spring MVC and WebFlux, and {@link
 * io.tidegate.spring.RateLimited} methods.
 */
@NullMarked
package io.tidegate.spring;

import org.jspecify.annotations.NullMarked;
