import { credentials, type ChannelCredentials } from "@grpc/grpc-js";
import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { Tidegate, type Decision } from "../src/index.js";
import { serve } from "./servers.js";

const RULES = "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]}";

/** Paths of a certificate and its key. */
interface Certificate {
  readonly path: string;
  readonly key: string;
}

/** Makes a certificate with `openssl`: of an authority, or one that an authority signs. */
function certificate(name: string, issuer?: Certificate): Certificate {
  const folder = mkdtempSync(join(tmpdir(), "tidegate-"));
  const made = { path: join(folder, "certificate.pem"), key: join(folder, "key.pem") };
  const signed = issuer === undefined ? [] : ["-CA", issuer.path, "-CAkey", issuer.key];
  execFileSync(
    "openssl",
    [
      ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"],
      ...["-subj", `/CN=${name}`, "-keyout", made.key, "-out", made.path],
      ...["-addext", `basicConstraints=critical,CA:${issuer === undefined ? "TRUE" : "FALSE"}`],
      ...["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", ...signed],
    ],
    { stdio: "ignore", env: { ...process.env, OPENSSL_CONF: "/dev/null" } },
  );
  chmodSync(made.key, 0o600);
  return made;
}

test("certificates of both sides are verified", async () => {
  const [authority, other] = [certificate("authority"), certificate("other")];
  const [own, client, stranger] = [
    certificate("server", authority),
    certificate("client", authority),
    certificate("stranger", other),
  ];
  const tls = ["--tls-cert", own.path, "--tls-key", own.key, "--tls-client-ca", authority.path];
  const { address } = await serve(RULES, tls);
  const ssl = (roots: Certificate, identity?: Certificate): ChannelCredentials =>
    identity === undefined
      ? credentials.createSsl(readFileSync(roots.path))
      : credentials.createSsl(readFileSync(roots.path), readFileSync(identity.key), readFileSync(identity.path));
  const decide = async (channelCredentials?: ChannelCredentials): Promise<Decision> => {
    const connection = new Tidegate(address, {
      domain: "d",
      timeoutMs: 5_000,
      ...(channelCredentials && { credentials: channelCredentials }),
    });
    onTestFinished(() => {
      connection.close();
    });
    return connection.limit({ user: "a" });
  };
  const verified = await decide(ssl(authority, client));
  expect([verified.reason, verified.remaining]).toEqual(["decided", 99]);
  for (const refused of [ssl(other, client), ssl(authority, stranger), ssl(authority), undefined]) {
    const decision = await decide(refused);
    expect([decision.reason, decision.error]).toEqual(["failed_open", "UNAVAILABLE"]);
  }
});
