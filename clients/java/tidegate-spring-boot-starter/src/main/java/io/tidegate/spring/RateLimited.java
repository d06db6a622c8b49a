package io.tidegate.spring;

import io.tidegate.client.middleware.Missing;
import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Limits the calls of a method of a bean, one hit for each call.
 *
 * <p>A denied call ends with {@link RateLimitedException}, which web applications answer with 429.
 * Methods that return a {@code Mono}, a {@code Flux} or a {@code CompletionStage} are limited
 * without blocking; others block until the decision, at most for the client's timeout.
 */
@Target(ElementType.METHOD)
@Retention(RetentionPolicy.RUNTIME)
@Documented
public @interface RateLimited {
  /** {@return the entries of the descriptor, in order; at least one} */
  Entry[] value();

  /** {@return the hits, as an expression of Spring (SpEL): {@code #tokens}} */
  String cost() default "1";

  /** An entry of the descriptor. */
  @Target({})
  @Retention(RetentionPolicy.RUNTIME)
  @interface Entry {
    /** {@return the entry's key, as in the rules} */
    String key();

    /**
     * {@return the value, as an expression of Spring (SpEL) over the parameters: {@code #user.id}}
     */
    String value();

    /** {@return the treatment of calls without a value (null or empty)} */
    Missing missing();
  }
}
