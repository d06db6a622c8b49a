package io.tidegate.packages;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tidegate.client.Servers;
import io.tidegate.sample.SampleApplication;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** The sample application, with curl. */
class SampleTest {
  private static final String RULES =
      """
      domain: demo
      descriptors:
        - key: api_key
          rate_limit: {name: five, unit: hour, requests_per_unit: 5, algorithm: token_bucket}
        - key: user
          rate_limit: {name: tokens, unit: hour, requests_per_unit: 100}
      """;

  @Test
  void theSampleAdmitsFiveRequestsAndDeniesTheSixth() throws Exception {
    try (Servers servers = new Servers()) {
      String port = Integer.toString(Servers.unusedPort());
      SampleApplication.main(
          new String[] {
            "--server.port=" + port,
            "--tidegate.address=" + servers.serve(RULES).address(),
            "--tidegate.timeout=5s",
            "--spring.main.banner-mode=off",
            "--logging.level.root=warn"
          });
      String url = "http://127.0.0.1:" + port;
      for (int remaining = 4; remaining >= 0; remaining--) {
        String response = curl("-H", "x-api-key: alice", url);
        assertTrue(response.startsWith("http/1.1 200"), response);
        assertTrue(response.contains("ratelimit: \"five\";r=" + remaining + ";t="), response);
      }
      String denied = curl("-H", "x-api-key: alice", url);
      assertTrue(denied.startsWith("http/1.1 429"), denied);
      assertTrue(denied.contains("ratelimit-policy: \"five\";q=5;w=3600"), denied);
      Matcher retryAfter = Pattern.compile("retry-after: (\\d+)").matcher(denied);
      assertTrue(retryAfter.find(), denied);
      int seconds = Integer.parseInt(retryAfter.group(1));
      assertTrue(seconds >= 700 && seconds <= 720, denied);
      assertTrue(curl(url).startsWith("http/1.1 400"));
      String model = url + "/complete?user=ann&tokens=60";
      String completed = curl("-H", "x-api-key: bob", model);
      assertTrue(completed.endsWith("completed for ann with 60 tokens\n"), completed);
      String deniedMethod = curl("-H", "x-api-key: bob", model);
      assertTrue(deniedMethod.startsWith("http/1.1 429"), deniedMethod);
      assertTrue(deniedMethod.contains("ratelimit-policy: \"tokens\";q=100;w=3600"), deniedMethod);
    }
  }

  /** The response in lower case, headers first. */
  private static String curl(String... arguments) throws IOException, InterruptedException {
    List<String> command = new ArrayList<>(List.of("curl", "--silent", "--include"));
    command.addAll(List.of(arguments));
    Process curl =
        new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    String response = new String(curl.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, curl.waitFor(), response);
    return response.toLowerCase(Locale.ROOT);
  }
}
