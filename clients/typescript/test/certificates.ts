import { execFileSync } from "node:child_process";
import { chmodSync } from "node:fs";
import { join } from "node:path";
import { folder } from "./servers.js";

/** Paths of a certificate and its key. */
export interface Certificate {
  readonly path: string;
  readonly key: string;
}

/** Makes a certificate with `openssl`: an authority's, or signed by an authority. */
export function certificate(name: string, issuer?: Certificate, names = "DNS:localhost,IP:127.0.0.1"): Certificate {
  const place = folder();
  const made = { path: join(place, "certificate.pem"), key: join(place, "key.pem") };
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
