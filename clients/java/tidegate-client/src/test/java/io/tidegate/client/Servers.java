package io.tidegate.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.BytesValue;
import com.google.protobuf.Timestamp;
import io.grpc.CallOptions;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCalls;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.stream.Stream;

/**
 * Servers of one test: processes of {@code tidegate}, and channels to them. Closed with the test.
 */
public final class Servers implements AutoCloseable {
  static final Path REPOSITORY = repository();
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Deque<AutoCloseable> open = new ArrayDeque<>();

  /** A process that listens. */
  public final class Server {
    private final Process process;
    private final String address;

    Server(Process process, String address) {
      this.process = process;
      this.address = address;
    }

    /** The address that it listens on. */
    public String address() {
      return address;
    }

    /** Sends a signal, such as {@code STOP}. */
    public void signal(String name) throws IOException, InterruptedException {
      new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().waitFor();
    }

    /** Kills the process, and waits until it has ended. */
    public void kill() {
      Servers.kill(process);
    }
  }

  private static Path program() {
    String binary = System.getenv("TIDEGATE_BIN");
    return binary == null ? REPOSITORY.resolve("target/debug/tidegate") : Path.of(binary);
  }

  /** Starts a program that logs its address as JSON, once it serves. */
  private Server start(Path program, List<String> arguments) {
    List<String> command = new ArrayList<>();
    command.add(program.toString());
    command.addAll(arguments);
    List<String> log = new ArrayList<>();
    try {
      Process process =
          new ProcessBuilder(command).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
      open.push(() -> kill(process));
      BufferedReader lines =
          new BufferedReader(
              new InputStreamReader(process.getErrorStream(), StandardCharsets.UTF_8));
      String address = "";
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        log.add(line);
        JsonNode event = line.startsWith("{") ? JSON.readTree(line) : JSON.createObjectNode();
        String message = event.path("message").asText();
        if (message.equals("listening")) {
          address = event.path("address").asText();
        } else if (message.equals("serving")) {
          Thread drain = new Thread(() -> lines.lines().forEach(ignored -> {}));
          drain.setDaemon(true);
          drain.start();
          return new Server(process, address);
        }
      }
    } catch (IOException failed) {
      throw new UncheckedIOException(failed);
    }
    throw new IllegalStateException("the server does not serve: " + String.join("\n", log));
  }

  /** Starts {@code tidegate serve} with its demo rules on a free port of loopback. */
  public Server serveDemo() {
    return start(program(), List.of("serve", "--listen", "127.0.0.1:0", "--log-format", "json"));
  }

  /** Starts {@code tidegate serve} with rules on a free port of loopback. */
  public Server serve(String rules, String... arguments) {
    return serveOn("127.0.0.1:0", rules, arguments);
  }

  /** Starts {@code tidegate serve} with rules. */
  public Server serveOn(String listen, String rules, String... arguments) {
    try {
      Path file = folder().resolve("rules.yaml");
      Files.writeString(file, rules);
      List<String> all =
          new ArrayList<>(List.of("serve", "--rules", file.toString(), "--listen", listen));
      all.addAll(List.of("--log-format", "json"));
      all.addAll(List.of(arguments));
      return start(program(), all);
    } catch (IOException failed) {
      throw new UncheckedIOException(failed);
    }
  }

  /** The address of a server with a fault. */
  public String misbehaving(String fault) {
    return fault.equals("refused")
        ? "127.0.0.1:" + unusedPort()
        : start(program().resolveSibling("faulty-server"), List.of(fault)).address();
  }

  /** A port of loopback on which nothing listens. */
  public static int unusedPort() {
    try (ServerSocket socket = new ServerSocket(0)) {
      return socket.getLocalPort();
    } catch (IOException failed) {
      throw new UncheckedIOException(failed);
    }
  }

  /** Builds a client that ends with the test. */
  public Tidegate client(TidegateBuilder builder) {
    Tidegate client = builder.build();
    open.push(client);
    return client;
  }

  /** Closes something with the test, in the reverse order of opening. */
  public <T extends AutoCloseable> T closing(T opened) {
    open.push(opened);
    return opened;
  }

  /** Makes an empty folder, which is removed with the test. */
  public Path folder() throws IOException {
    Path made = Files.createTempDirectory("tidegate-");
    open.push(() -> remove(made));
    return made;
  }

  private static void remove(Path folder) throws IOException {
    List<Path> all;
    try (Stream<Path> found = Files.walk(folder)) {
      all = new ArrayList<>(found.toList());
    }
    Collections.reverse(all);
    for (Path one : all) {
      Files.delete(one);
    }
  }

  /** Sets the clock of a server with {@code --test-clock}, in nanoseconds since 1970. */
  public interface Clock {
    void set(long seconds, long nanos);
  }

  /** Returns the clock of a server with {@code --test-clock}. */
  public Clock clock(String address) {
    ManagedChannel channel =
        Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
    open.push(channel::shutdownNow);
    // SetRequest { Timestamp now = 1; } has the shape of BytesValue { bytes value = 1; }.
    MethodDescriptor<BytesValue, BytesValue> set =
        MethodDescriptor.<BytesValue, BytesValue>newBuilder()
            .setType(MethodDescriptor.MethodType.UNARY)
            .setFullMethodName("tidegate.test.v1.Clock/Set")
            .setRequestMarshaller(ProtoUtils.marshaller(BytesValue.getDefaultInstance()))
            .setResponseMarshaller(ProtoUtils.marshaller(BytesValue.getDefaultInstance()))
            .build();
    return (seconds, nanos) -> {
      Timestamp now = Timestamp.newBuilder().setSeconds(seconds).setNanos((int) nanos).build();
      ClientCalls.blockingUnaryCall(
          channel, set, CallOptions.DEFAULT, BytesValue.of(now.toByteString()));
    };
  }

  @Override
  public void close() throws Exception {
    while (!open.isEmpty()) {
      open.pop().close();
    }
  }

  /** Reads the cases of a file. */
  static List<JsonNode> cases(String file) {
    JsonNode content = content(file);
    List<JsonNode> cases = new ArrayList<>();
    content.path(content.has("scenarios") ? "scenarios" : "cases").forEach(cases::add);
    return cases;
  }

  /** Reads the rules that all cases of a file share. */
  static String rules(String file) {
    return content(file).get("rules").asText();
  }

  private static JsonNode content(String file) {
    Path path = REPOSITORY.resolve("clients/conformance/cases").resolve(file + ".json");
    try {
      return JSON.readTree(path.toFile());
    } catch (IOException failed) {
      throw new UncheckedIOException(failed);
    }
  }

  private static void kill(Process process) {
    process.destroyForcibly();
    try {
      process.waitFor();
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** The repository: the nearest folder above with the conformance cases. */
  private static Path repository() {
    Path folder = Path.of("").toAbsolutePath();
    while (!Files.exists(folder.resolve("clients/conformance"))) {
      folder = folder.getParent();
    }
    return folder;
  }
}
