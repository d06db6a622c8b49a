package io.tidegate.packages;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.tidegate.client.Servers;
import io.tidegate.sample.SampleApplication;
import io.tidegate.samples.grpc.GrpcSample;
import io.tidegate.samples.webflux.WebFluxSample;
import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** The sample applications, with curl and gRPC. */
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
      SampleApplication.main(properties(port, servers, "servlet"));
      String url = "http://127.0.0.1:" + port;
      checkFiveRequests(url);
      String model = url + "/complete?user=ann&tokens=60";
      String completed = curl("-H", "x-api-key: bob", model);
      assertTrue(completed.endsWith("completed for ann with 60 tokens\n"), completed);
      String deniedMethod = curl("-H", "x-api-key: bob", model);
      assertTrue(deniedMethod.startsWith("http/1.1 429"), deniedMethod);
      assertTrue(deniedMethod.contains("ratelimit-policy: \"tokens\";q=100;w=3600"), deniedMethod);
    }
  }

  @Test
  void theSampleOfWebFluxAdmitsFiveRequestsAndDeniesTheSixth() throws Exception {
    try (Servers servers = new Servers()) {
      String port = Integer.toString(Servers.unusedPort());
      WebFluxSample.main(properties(port, servers, "reactive"));
      checkFiveRequests("http://127.0.0.1:" + port);
    }
  }

  @Test
  void theSampleOfGrpcAdmitsFiveCallsAndDeniesTheSixth() throws Exception {
    try (Servers servers = new Servers()) {
      String port = Integer.toString(Servers.unusedPort());
      ProcessBuilder server = grpcSample(port);
      server.environment().put("TIDEGATE_ADDR", servers.serve(RULES).address());
      Process serving = server.redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
      try {
        awaitListening(Integer.parseInt(port));
        String[] call = {port, "call"};
        for (int calls = 0; calls < 5; calls++) {
          GrpcSample.main(call);
        }
        StatusRuntimeException denied =
            assertThrows(StatusRuntimeException.class, () -> GrpcSample.main(call));
        assertEquals(Status.Code.RESOURCE_EXHAUSTED, denied.getStatus().getCode());
      } finally {
        serving.destroyForcibly().waitFor();
      }
    }
  }

  private static String[] properties(String port, Servers servers, String type) throws Exception {
    return new String[] {
      "--server.port=" + port,
      "--tidegate.address=" + servers.serve(RULES).address(),
      "--tidegate.timeout=5s",
      // This test has the libraries of both types.
      "--spring.main.web-application-type=" + type,
      "--spring.main.banner-mode=off",
      "--logging.level.root=warn"
    };
  }

  private static void checkFiveRequests(String url) throws Exception {
    for (int remaining = 4; remaining >= 0; remaining--) {
      String response = curl("-H", "x-api-key: alice", url);
      assertTrue(response.startsWith("http/1.1 200"), response);
      assertTrue(response.contains("ratelimit: \"five\";r=" + remaining), response);
    }
    String denied = curl("-H", "x-api-key: alice", url);
    assertTrue(denied.startsWith("http/1.1 429"), denied);
    assertTrue(denied.contains("ratelimit-policy: \"five\";q=5;w=3600"), denied);
    Matcher retryAfter = Pattern.compile("retry-after: (\\d+)").matcher(denied);
    assertTrue(retryAfter.find(), denied);
    int seconds = Integer.parseInt(retryAfter.group(1));
    assertTrue(seconds >= 700 && seconds <= 720, denied);
    assertTrue(curl(url).startsWith("http/1.1 400"));
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

  /** The sample as a process of its own. */
  private static ProcessBuilder grpcSample(String port) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
    command.addAll(List.of("-cp", System.getProperty("java.class.path")));
    command.addAll(List.of(GrpcSample.class.getName(), port));
    return new ProcessBuilder(command);
  }

  private static void awaitListening(int port) throws InterruptedException {
    for (int wait = 0; wait < 400; wait++) {
      try (Socket connected = new Socket(InetAddress.getLoopbackAddress(), port)) {
        assertTrue(connected.isConnected());
        return;
      } catch (IOException refused) {
        Thread.sleep(50);
      }
    }
    throw new AssertionError("the sample does not listen");
  }
}
