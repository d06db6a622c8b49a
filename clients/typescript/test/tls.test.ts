import { credentials, type ChannelCredentials } from "@grpc/grpc-js";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { request } from "node:http";
import { createServer } from "node:https";
import { resolve } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { Tidegate, type Decision } from "../src/index.js";
import { certificate, type Certificate } from "./certificates.js";
import { run, serve } from "./servers.js";

const RULES = "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]}";

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
  const untrusted = await decide(ssl(other, client));
  expect([untrusted.reason, untrusted.error]).toEqual(["failed_open", "UNAVAILABLE"]);
  expect(untrusted.errorMessage).toContain("unable to verify the first certificate");
  for (const refused of [ssl(authority, stranger), ssl(authority), undefined]) {
    const decision = await decide(refused);
    expect([decision.reason, decision.error]).toEqual(["failed_open", "UNAVAILABLE"]);
  }
});

test("the client over HTTP verifies the certificate of a proxy that terminates TLS", async () => {
  const authority = certificate("authority");
  const own = certificate("proxy", authority);
  const { url } = await serve(RULES, ["--http-listen", "127.0.0.1:0"]);
  const proxy = createServer({ cert: readFileSync(own.path), key: readFileSync(own.key) }, (received, response) => {
    const { method, headers } = received;
    const forwarded = request(new URL(received.url ?? "/", url), { method, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    received.pipe(forwarded);
  }).listen(0, "127.0.0.1");
  onTestFinished(() => {
    proxy.closeAllConnections();
    proxy.close();
  });
  await once(proxy, "listening");
  const address = proxy.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const program = `
    import { Tidegate } from ${JSON.stringify(resolve(import.meta.dirname, "../src/http.ts"))};
    const client = new Tidegate("https://127.0.0.1:${port}", { domain: "d", timeoutMs: 10_000, connectTimeoutMs: 0 });
    const { reason, remaining, error, errorMessage } = await client.limit({ user: "a" });
    console.log(reason, remaining, error, errorMessage);
  `;
  // Node.js reads the authorities that `fetch` trusts when it starts.
  const decide = (environment: Record<string, string>): Promise<string> =>
    run(process.execPath, ["--import", "tsx", "--input-type=module", "--eval", program], environment);
  expect(await decide({ NODE_EXTRA_CA_CERTS: authority.path })).toBe("decided 99 undefined undefined\n");
  expect(await decide({})).toBe(
    "failed_open undefined UNAVAILABLE fetch failed: unable to verify the first certificate\n",
  );
}, 60_000);
