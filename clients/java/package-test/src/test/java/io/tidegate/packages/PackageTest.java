package io.tidegate.packages;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tidegate.client.Servers;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

class PackageTest {
  private static final Pattern FIRST_BLOCK = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);
  private static final String POM =
      """
      <project xmlns="http://maven.apache.org/POM/4.0.0">
        <modelVersion>4.0.0</modelVersion>
        <groupId>example</groupId>
        <artifactId>example</artifactId>
        <version>1</version>
        <properties>
          <maven.compiler.source>17</maven.compiler.source>
          <maven.compiler.target>17</maven.compiler.target>
          <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
        </properties>
        <dependencies>
          <dependency>
            <groupId>io.tidegate</groupId>
            <artifactId>tidegate-client</artifactId>
            <version>%s</version>
          </dependency>
        </dependencies>
      </project>
      """;

  @Test
  void theReadmeWorksWithTheInstalledPackageInAnEmptyProject() throws Exception {
    Matcher lines = FIRST_BLOCK.matcher(Files.readString(Path.of("../README.md")));
    assertTrue(lines.find());
    try (Servers servers = new Servers()) {
      Path project = servers.folder();
      Files.writeString(
          project.resolve("pom.xml"), POM.formatted(System.getProperty("tidegate.version")));
      Path sources = Files.createDirectories(project.resolve("src/main/java"));
      String address = servers.serveDemo().address();
      Files.writeString(
          sources.resolve("Main.java"),
          "import io.tidegate.client.*;\n\nclass Main {\n  public static void main(String[] a) {\n"
              + lines.group(1).replace("127.0.0.1:8081", address)
              + "  }\n}\n");
      Process maven =
          new ProcessBuilder(
                  List.of(
                      "mvn",
                      "--batch-mode",
                      "--quiet",
                      "compile",
                      "org.codehaus.mojo:exec-maven-plugin:3.6.2:java",
                      "-Dexec.mainClass=Main"))
              .directory(project.toFile())
              .redirectError(ProcessBuilder.Redirect.INHERIT)
              .start();
      String output = new String(maven.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      assertEquals(0, maven.waitFor(), output);
      assertTrue(output.contains("true 4 Optional.empty"), output);
      String transcript = System.getenv("TIDEGATE_README_TRANSCRIPT");
      if (transcript != null) {
        Files.writeString(Path.of(transcript), lines.group(1) + "\nOutput:\n" + output);
      }
    }
  }
}
