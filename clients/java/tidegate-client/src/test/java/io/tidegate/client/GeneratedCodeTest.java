package io.tidegate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class GeneratedCodeTest {
  @Test
  void theGeneratedCodeIsThatOfTheProtos() throws IOException {
    String generated = "target/generated-proto/io/tidegate/client/proto";
    String checkedIn = "src/main/java/io/tidegate/client/proto";
    assertEquals(
        texts(Path.of(generated)),
        texts(Path.of(checkedIn)),
        () -> "copy " + generated + " to " + checkedIn);
  }

  private static Map<String, String> texts(Path folder) throws IOException {
    Map<String, String> texts = new TreeMap<>();
    try (Stream<Path> files = Files.list(folder)) {
      for (Path file : files.toList()) {
        texts.put(String.valueOf(file.getFileName()), Files.readString(file));
      }
    }
    return texts;
  }
}
