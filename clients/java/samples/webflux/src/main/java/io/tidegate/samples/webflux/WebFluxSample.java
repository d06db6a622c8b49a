package io.tidegate.samples.webflux;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;
import reactor.core.publisher.Mono;

/**
 * A limited reactive application: {@code curl -H 'x-api-key: alice' 127.0.0.1:8080}. All requests
 * are limited by the properties in {@code application.yaml}.
 */
@SpringBootApplication
public class WebFluxSample {
  /** Creates the application. */
  public WebFluxSample() {}

  /**
   * Starts the application.
   *
   * @param arguments properties, such as {@code --server.port=8000}
   */
  public static void main(String[] arguments) {
    SpringApplication.run(WebFluxSample.class, arguments);
  }

  @RestController
  static class Controller {
    @GetMapping("/")
    Mono<String> home() {
      return Mono.just("hello\n");
    }
  }
}
