import { credentials, type ChannelCredentials } from "@grpc/grpc-js";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { request } from "node:http";
import { createServer } from "node:https";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
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

test("each of several servers is verified by its own name", async () => {
  const authority = certificate("authority");
  const server = async (host: string, certified: string): Promise<string> => {
    const own = certificate("server", authority, `IP:${certified}`);
    return (await serve(RULES, ["--tls-cert", own.path, "--tls-key", own.key], `${host}:0`)).address;
  };
  const connect = (address: string | string[]): Tidegate => {
    const ssl = credentials.createSsl(readFileSync(authority.path));
    const client = new Tidegate(address, { domain: "d", timeoutMs: 5_000, credentials: ssl });
    onTestFinished(() => {
      client.close();
    });
    return client;
  };
  const client = connect([await server("127.0.0.1", "127.0.0.1"), await server("127.0.0.2", "127.0.0.2")]);
  // The second connection may be ready later: calls until each server has decided its first.
  let firsts = 0;
  for (let call = 0; call < 90 && firsts < 2; call++) {
    const decision = await client.limit({ user: "a" });
    expect(decision.reason).toBe("decided");
    firsts += decision.remaining === 99 ? 1 : 0;
    await sleep(20);
  }
  expect(firsts).toBe(2);

  const stranger = connect(await server("127.0.0.3", "127.0.0.1"));
  expect((await stranger.limit({ user: "a" })).reason).toBe("failed_open");
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
    `failed_open undefined UNAVAILABLE https://127.0.0.1:${port}/json: fetch failed: unable to verify the first certificate\n`,
  );
}, 60_000);
