package io.tidegate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.ChannelCredentials;
import io.grpc.InsecureChannelCredentials;
import io.grpc.TlsChannelCredentials;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class TlsTest {
  private static final String RULES =
      "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]}";

  private final Servers servers = new Servers();

  @AfterEach
  void close() throws Exception {
    servers.close();
  }

  /** Files of a certificate and its key. */
  private record Certificate(Path path, Path key) {}

  /** Makes a certificate with {@code openssl}: an authority's, or signed by an authority. */
  private Certificate certificate(String name, @Nullable Certificate issuer)
      throws IOException, InterruptedException {
    return certificate(name, issuer, "IP:127.0.0.1");
  }

  private Certificate certificate(String name, @Nullable Certificate issuer, String alternativeName)
      throws IOException, InterruptedException {
    Path folder = servers.folder();
    Certificate made =
        new Certificate(folder.resolve("certificate.pem"), folder.resolve("key.pem"));
    List<String> command =
        new ArrayList<>(
            List.of(
                "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
                    .split(" ")));
    command.addAll(List.of("-subj", "/CN=" + name));
    command.addAll(List.of("-keyout", made.key.toString(), "-out", made.path.toString()));
    String constraint = "basicConstraints=critical,CA:" + (issuer == null ? "TRUE" : "FALSE");
    command.addAll(List.of("-addext", constraint));
    command.addAll(List.of("-addext", "subjectAltName=" + alternativeName));
    if (issuer != null) {
      command.addAll(List.of("-CA", issuer.path.toString(), "-CAkey", issuer.key.toString()));
    }
    ProcessBuilder openssl =
        new ProcessBuilder(command)
            .redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.DISCARD);
    openssl.environment().put("OPENSSL_CONF", "/dev/null");
    assertEquals(0, openssl.start().waitFor());
    Files.setPosixFilePermissions(made.key, PosixFilePermissions.fromString("rw-------"));
    return made;
  }

  private static ChannelCredentials tls(Certificate roots, @Nullable Certificate own)
      throws IOException {
    TlsChannelCredentials.Builder builder =
        TlsChannelCredentials.newBuilder().trustManager(roots.path.toFile());
    if (own != null) {
      builder.keyManager(own.path.toFile(), own.key.toFile());
    }
    return builder.build();
  }

  @Test
  void certificatesOfBothSidesAreVerified() throws Exception {
    Certificate authority = certificate("authority", null);
    Certificate other = certificate("other", null);
    Certificate server = certificate("server", authority);
    Certificate own = certificate("client", authority);
    Certificate stranger = certificate("stranger", other);
    String address =
        servers
            .serve(
                RULES,
                "--tls-cert",
                server.path.toString(),
                "--tls-key",
                server.key.toString(),
                "--tls-client-ca",
                authority.path.toString())
            .address();
    Decision verified = decide(address, tls(authority, own));
    assertEquals(Reason.DECIDED, verified.reason(), verified.toString());
    assertEquals(99, verified.remaining().orElseThrow());
    Decision untrusted = decide(address, tls(other, own));
    assertEquals(Reason.FAILED_OPEN, untrusted.reason());
    assertTrue(
        untrusted.errorMessage().orElse("").contains("unable to find valid certification path"),
        untrusted.toString());
    for (ChannelCredentials refused :
        List.of(
            tls(authority, stranger), tls(authority, null), InsecureChannelCredentials.create())) {
      Decision decision = decide(address, refused);
      assertEquals(Reason.FAILED_OPEN, decision.reason());
      // Netty reports a TLS alert that it reads without TLS as INTERNAL.
      assertTrue(
          Set.of("UNAVAILABLE", "INTERNAL").contains(decision.error().orElse("none")),
          decision.toString());
    }
  }

  @Test
  void eachAddressIsVerifiedByItsOwnName() throws Exception {
    Certificate authority = certificate("authority", null);
    List<String> addresses = new ArrayList<>();
    for (String ip : List.of("127.0.0.1", "127.0.0.2")) {
      Certificate own = certificate(ip, authority, "IP:" + ip);
      String[] files = {"--tls-cert", own.path.toString(), "--tls-key", own.key.toString()};
      addresses.add(servers.serveOn(ip + ":0", RULES, files).address());
    }
    Tidegate client =
        servers.client(
            Tidegate.builder(addresses.toArray(String[]::new))
                .domain("d")
                .timeout(Duration.ofSeconds(20))
                .localDenials(0)
                .credentials(tls(authority, null)));
    Set<Long> seen = new HashSet<>();
    long started = System.nanoTime();
    while (true) {
      Decision decision = client.limit(Descriptor.of("user", "a"));
      assertEquals(Reason.DECIDED, decision.reason(), decision.toString());
      if (!seen.add(decision.remaining().orElseThrow())) {
        return;
      }
      assertTrue(System.nanoTime() - started < 20_000_000_000L, "one server counted all calls");
    }
  }

  private Decision decide(String address, ChannelCredentials credentials) {
    Tidegate client =
        servers.client(
            Tidegate.builder(address)
                .domain("d")
                .timeout(Duration.ofSeconds(20))
                .credentials(credentials));
    return client.limit(Descriptor.of("user", "a"));
  }
}
