import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Paths of a certificate and its key. */
export interface Certificate {
  readonly path: string;
  readonly key: string;
}

/** Makes a certificate with `openssl`: an authority's, or signed by an authority. */
export function certificate(name: string, issuer?: Certificate, names = "DNS:localhost,IP:127.0.0.1"): Certificate {
  const folder = mkdtempSync(join(tmpdir(), "tidegate-"));
  const made = { path: join(folder, "certificate.pem"), key: join(folder, "key.pem") };
  const signed = issuer === undefined ? [] : ["-CA", issuer.path, "-CAkey", issuer.key];
  execFileSync(
    "openssl",
    [
      ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"],
      ...["-subj", `/CN=${name}`, "-keyout", made.key, "-out", made.path],
      ...["-addext", `basicConstraints=critical,CA:${issuer === undefined ? "TRUE" : "FALSE"}`],
      ...["-addext", `subjectAltName=${names}`, ...signed],
    ],
    { stdio: "ignore", env: { ...process.env, OPENSSL_CONF: "/dev/null" } },
  );
  chmodSync(made.key, 0o600);
  return made;
}
