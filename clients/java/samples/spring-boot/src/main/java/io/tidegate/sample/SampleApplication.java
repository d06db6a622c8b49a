package io.tidegate.sample;

import io.tidegate.client.middleware.Missing;
import io.tidegate.spring.RateLimited;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.stereotype.Service;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;

/**
 * A limited Spring Boot application: {@code curl -H 'x-api-key: alice' 127.0.0.1:8080}. All
 * requests are limited by the properties in {@code application.yaml}, calls of {@link Model} by
 * their annotation.
 */
@SpringBootApplication
public class SampleApplication {
  /** Creates the application. */
  public SampleApplication() {}

  /**
   * Starts the application.
   *
   * @param arguments properties, such as {@code --server.port=8000}
   */
  public static void main(String[] arguments) {
    SpringApplication.run(SampleApplication.class, arguments);
  }

  @RestController
  static class Controller {
    private final Model model;

    Controller(Model model) {
      this.model = model;
    }

    @GetMapping("/")
    String home() {
      return "hello\n";
    }

    @GetMapping("/complete")
    String complete(@RequestParam("user") String user, @RequestParam("tokens") long tokens) {
      return model.complete(user, tokens);
    }
  }

  /** A service whose calls cost tokens. */
  @Service
  static class Model {
    @RateLimited(
        value = @RateLimited.Entry(key = "user", value = "#user", missing = Missing.REJECT),
        cost = "#tokens")
    public String complete(String user, long tokens) {
      return "completed for " + user + " with " + tokens + " tokens\n";
    }
  }
}
