package io.tidegate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.DynamicTest.dynamicTest;

import com.fasterxml.jackson.databind.JsonNode;
import io.tidegate.client.middleware.Key;
import io.tidegate.client.middleware.Limits;
import io.tidegate.client.middleware.Missing;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;

/** The cases of middleware, for any framework. */
public final class MiddlewareCases {
  /** The header of marks, whose values an application responds with, joined by commas. */
  public static final String MARK = "x-rate-limited";

  private MiddlewareCases() {}

  /** Serves an application behind middleware. */
  public interface Application {
    /** Returns the port; everything to close with the test goes to {@code servers}. */
    int serve(Tidegate client, Limits limits, Servers servers) throws Exception;
  }

  /** One test for each case. */
  public static Stream<DynamicTest> tests(Application application) {
    return Servers.cases("middleware").stream()
        .map(
            one ->
                dynamicTest(
                    one.get("name").asText(),
                    () -> {
                      try (Servers servers = new Servers()) {
                        check(one, application, servers);
                      }
                    }));
  }

  private static void check(JsonNode one, Application application, Servers servers)
      throws Exception {
    String address =
        one.get("fault").isNull()
            ? servers.serve(one.get("rules").asText()).address()
            : servers.misbehaving(one.get("fault").asText());
    Tidegate client =
        servers.client(
            Tidegate.builder(address)
                .domain("d")
                .timeout(Duration.ofSeconds(5))
                .onFailure(
                    OnFailure.valueOf(one.get("on_failure").asText().toUpperCase(Locale.ROOT))));
    Limits limits = null;
    for (JsonNode keys : one.get("descriptors")) {
      Key[] read = elements(keys).map(MiddlewareCases::key).toArray(Key[]::new);
      limits = limits == null ? Limits.of(read) : limits.and(read);
    }
    if (limits == null) {
      throw new IllegalArgumentException("no descriptors");
    }
    int port = application.serve(client, limits, servers);
    int number = 0;
    for (JsonNode request : one.get("requests")) {
      for (int time = 0; time < request.get("times").asInt(); time++) {
        Response response = exchange(port, request.get("headers"));
        compare(response, request.get("expect"), "request " + number + ": " + response);
      }
      number++;
    }
  }

  private static Key key(JsonNode key) {
    String entry = key.get("entry").asText();
    if (key.has("constant")) {
      return Key.constant(entry, key.get("constant").asText());
    }
    Missing missing = Missing.valueOf(key.get("missing").asText().toUpperCase(Locale.ROOT));
    return switch (key.path("client_address").asText()) {
      case "x-forwarded-for" -> Key.clientAddress(entry, 1, missing);
      case "forwarded" -> Key.forwardedAddress(entry, 1, missing);
      default -> Key.header(entry, key.get("header").asText(), missing);
    };
  }

  private record Response(int status, Map<String, String> headers, String body) {}

  /** Sends a request as bytes: each character of a header is one byte. */
  private static Response exchange(int port, JsonNode headers) throws IOException {
    StringBuilder request = new StringBuilder("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    for (JsonNode header : headers) {
      request.append(header.get(0).asText()).append(": ").append(header.get(1).asText());
      request.append("\r\n");
    }
    String text;
    try (Socket socket = new Socket("127.0.0.1", port)) {
      socket
          .getOutputStream()
          .write(request.append("\r\n").toString().getBytes(StandardCharsets.ISO_8859_1));
      text = new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    }
    String[] parts = text.split("\r\n\r\n", 2);
    List<String> head = new ArrayList<>(Arrays.asList(parts[0].split("\r\n")));
    int status = Integer.parseInt(head.remove(0).split(" ")[1]);
    Map<String, String> received = new TreeMap<>();
    for (String line : head) {
      String[] header = line.split(": ?", 2);
      received.put(header[0].toLowerCase(Locale.ROOT), header[1]);
    }
    String body = parts[1];
    if (received.getOrDefault("transfer-encoding", "").equals("chunked")) {
      body = unchunked(body);
    }
    return new Response(status, received, body);
  }

  private static String unchunked(String chunks) {
    StringBuilder body = new StringBuilder();
    int at = 0;
    while (true) {
      int end = chunks.indexOf("\r\n", at);
      int length = Integer.parseInt(chunks.substring(at, end), 16);
      if (length == 0) {
        return body.toString();
      }
      body.append(chunks, end + 2, end + 2 + length);
      at = end + 2 + length + 2;
    }
  }

  private static void compare(Response response, JsonNode expected, String where) {
    assertEquals(expected.get("status").asInt(), response.status, where);
    expected
        .path("headers")
        .properties()
        .forEach(
            header -> {
              String value = response.headers.getOrDefault(header.getKey(), "");
              // Servers complete the type with the charset.
              String shown =
                  header.getKey().equals("content-type") ? value.split(";", 2)[0] : value;
              assertEquals(header.getValue().asText(), shown, where);
            });
    elements(expected.path("headers_present"))
        .forEach(name -> assertTrue(response.headers.containsKey(name.asText()), where));
    elements(expected.path("headers_absent"))
        .forEach(name -> assertFalse(response.headers.containsKey(name.asText()), where));
    if (expected.has("body")) {
      assertEquals(expected.get("body").asText(), response.body, where);
    }
    if (expected.has("seen")) {
      List<String> seen =
          Arrays.stream(response.body.split(",")).filter(value -> !value.isEmpty()).toList();
      assertEquals(elements(expected.get("seen")).map(JsonNode::asText).toList(), seen, where);
    }
  }

  private static Stream<JsonNode> elements(JsonNode array) {
    return StreamSupport.stream(array.spliterator(), false);
  }
}
