package io.tidegate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.DynamicTest.dynamicTest;

import com.fasterxml.jackson.databind.JsonNode;
import io.tidegate.client.middleware.Key;
import io.tidegate.client.middleware.Limits;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;

/** The cases of requests that end in every way, for any framework. */
public final class EndCases {
  /** The body of {@code /large}. */
  public static final String LARGE = "x".repeat(8 << 20);

  private EndCases() {}

  /** The wait of the handler of {@code /slow}. */
  public static final class Gate {
    private final CountDownLatch reached = new CountDownLatch(1);
    private final CountDownLatch opened = new CountDownLatch(1);

    /** Waits until the test opens the gate. */
    public void pass() {
      reached.countDown();
      try {
        assertTrue(opened.await(30, TimeUnit.SECONDS));
      } catch (InterruptedException interrupted) {
        throw new IllegalStateException(interrupted);
      }
    }
  }

  /** Serves an application behind middleware. */
  public interface Application {
    /** Returns the port; everything to close with the test goes to {@code servers}. */
    int serve(Tidegate client, Limits limits, Gate gate, Servers servers) throws Exception;
  }

  /** One test for each case; {@code isCancelling}: handlers of clients that left are cancelled. */
  public static Stream<DynamicTest> tests(boolean isCancelling, Application application) {
    String rules = Servers.rules("ends");
    return Servers.cases("ends").stream()
        .map(
            one ->
                dynamicTest(
                    one.get("name").asText(),
                    () -> {
                      try (Servers servers = new Servers()) {
                        check(one, rules, isCancelling, application, servers);
                      }
                    }));
  }

  private static void check(
      JsonNode one, String rules, boolean isCancelling, Application application, Servers servers)
      throws Exception {
    Tidegate client =
        servers.client(
            Tidegate.builder(servers.serve(rules).address())
                .domain("d")
                .timeout(Duration.ofSeconds(5)));
    Gate gate = new Gate();
    int port = application.serve(client, Limits.of(Key.constant("route", "all")), gate, servers);
    String way = one.get("client").asText();
    try (Socket socket = send(port, one.get("method").asText(), one.get("path").asText())) {
      if (way.equals("aborts")) {
        assertTrue(gate.reached.await(30, TimeUnit.SECONDS));
        socket.setSoLinger(true, 0);
      } else {
        int status = statusOf(socket);
        List<Integer> expected =
            StreamSupport.stream(one.get("status").spliterator(), false)
                .map(JsonNode::asInt)
                .toList();
        assertTrue(expected.contains(status), "status " + status);
        if (way.equals("reads")) {
          socket.getInputStream().readAllBytes();
        }
      }
    }
    if (way.equals("aborts")) {
      if (!isCancelling) {
        waitUntilLeft(client, 0);
        try (Socket beside = send(port, "GET", "/body")) {
          assertEquals(429, statusOf(beside), "beside the handler, which runs on");
        }
      }
      gate.opened.countDown();
    }
    waitUntilLeft(client, 1);
  }

  private static Socket send(int port, String method, String path) throws IOException {
    Socket socket = new Socket("127.0.0.1", port);
    String head = method + " " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    socket.getOutputStream().write(head.getBytes(StandardCharsets.US_ASCII));
    return socket;
  }

  private static int statusOf(Socket socket) throws IOException {
    InputStreamReader reader =
        new InputStreamReader(socket.getInputStream(), StandardCharsets.ISO_8859_1);
    return Integer.parseInt(new BufferedReader(reader, 64).readLine().split(" ")[1]);
  }

  private static void waitUntilLeft(Tidegate client, long expected) throws InterruptedException {
    long deadline = System.nanoTime() + Duration.ofSeconds(5).toNanos();
    while (true) {
      Decision decision = client.peek(Descriptor.of("route", "all"));
      if (decision.remaining().orElse(-1) == expected) {
        return;
      }
      assertTrue(System.nanoTime() < deadline, decision + ": expected " + expected);
      Thread.sleep(5);
    }
  }
}
