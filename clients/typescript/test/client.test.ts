import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test, vi } from "vitest";
import { Decision, Descriptor, RequestError, Tidegate, type Reason, type TidegateOptions } from "../src/index.js";
import { GrpcTransport, targets } from "../src/grpc.js";
import { folder, misbehaving, serve, unusedPort } from "./servers.js";

const HUNDRED = "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]}";
const FAST =
  "{domain: d, descriptors: [{key: user, rate_limit: {per: 200ms, requests_per_unit: 2, algorithm: token_bucket}}]}";

function clientOf(address: string | readonly string[], options: TidegateOptions = {}): Tidegate {
  const client = new Tidegate(address, { domain: "d", timeoutMs: 5_000, ...options });
  onTestFinished(() => {
    client.close();
  });
  return client;
}

test("a thousand concurrent calls admit exactly the limit", async () => {
  const client = clientOf((await serve(HUNDRED)).address, { timeoutMs: 20_000 });
  const decisions = await Promise.all(Array.from({ length: 1000 }, () => client.limit({ user: "a" })));
  expect(decisions.filter(({ allowed }) => allowed).length).toBe(100);
  expect(decisions.every(({ reason }) => reason === "decided" || reason === "denied_locally")).toBe(true);
});

test("each call is answered while the server is restarted", async () => {
  const server = await serve(HUNDRED);
  const client = clientOf(server.address, {
    timeoutMs: 500,
    onFailure: "closed",
    breakerOpenMs: 100,
    localDenials: 0,
  });
  const seen = new Set<Reason>();
  const until = async (reason: Reason): Promise<void> => {
    const deadline = Date.now() + 15_000;
    while (Date.now() < deadline) {
      await sleep(1);
      const decision = await client.limit({ user: "a" });
      seen.add(decision.reason);
      expect(decision.error === undefined).toBe(decision.reason === "decided");
      if (decision.reason === reason) {
        return;
      }
    }
    throw new Error(`no decision is ${reason}`);
  };
  await until("decided");
  await server.kill();
  await until("failed_closed");
  await serve(HUNDRED, [], server.address);
  await until("decided");
  expect([...seen]).toEqual(["decided", "failed_closed"]);
});

test("waiting ends when the hits fit, or at once if they cannot", async () => {
  const client = clientOf((await serve(FAST)).address);
  const started = performance.now();
  expect((await client.limit({ user: "a" }, { cost: 2 })).allowed).toBe(true);
  expect((await client.waitUntilReady({ user: "a" }, { cost: 2, waitMaxMs: 5_000 })).reason).toBe("decided");
  expect(performance.now() - started).toBeGreaterThan(190);
  expect((await client.waitUntilReady({ user: "a" }, { cost: 2, waitMaxMs: 50 })).allowed).toBe(false);
  expect((await client.waitUntilReady({ user: "b" }, { cost: 3, waitMaxMs: 5_000 })).allowed).toBe(false);
  const signal = AbortSignal.timeout(20);
  await expect(client.waitUntilReady({ user: "a" }, { cost: 2, waitMaxMs: 5_000, signal })).rejects.toThrow("timeout");
});

test("a Unix socket, and several addresses", async () => {
  const path = `unix:${folder()}/t.sock`;
  await serve(HUNDRED, [], path);
  expect((await clientOf(path).limit({ user: "a" })).remaining).toBe(99);
  const [one, other] = [await serve(HUNDRED), await serve(HUNDRED)];
  const client = clientOf([one.address, other.address], { localDenials: 0 });
  const left = new Set<number | undefined>();
  let calls = 0;
  // The second connection may take a moment.
  for (const deadline = Date.now() + 5_000; left.size === calls && Date.now() < deadline; calls++) {
    left.add((await client.limit({ user: "a" })).remaining);
  }
  expect(left.size).toBeLessThan(calls);
});

test("a connection stays open for hours without a call", async () => {
  const { address } = await serve(HUNDRED);
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"] });
  onTestFinished(() => void vi.useRealTimers());
  // In this time there is no response to a PING.
  const transport = new GrpcTransport(address, undefined, { "grpc.keepalive_time_ms": 2_147_483_647 });
  onTestFinished(() => {
    transport.close();
  });
  await expect.poll(() => transport.isConnected(), { timeout: 5_000 }).toBe(true);
  vi.advanceTimersByTime(10 * 3_600_000);
  expect(transport.isConnected()).toBe(true);
});

test("an address without a port is refused", () => {
  const accepted = ["127.0.0.1:8081", "limits.example:8081", "[::1]:8081", "unix:/run/t.sock", "dns:///name:8081"];
  expect(targets(accepted)).toEqual(accepted);
  for (const refused of ["localhost", "127.0.0.1", "::1", "[::1]", "fe80::1:8081", "dns:///name", ""]) {
    expect(() => new Tidegate(refused), refused).toThrow("has no port; write host:port");
  }
  expect(() => new Tidegate([])).toThrow("no address");
});

test("a kept denial counts waits down and keeps times", () => {
  const date = "Thu, 01 Jan 2026 00:00:00 GMT";
  const denial = new Decision(false, "decided", [], {
    responseHeaders: [
      ["X-RateLimit-Reset", "1767225600"],
      ["x-ratelimit-reset", "60"],
      ["Retry-After", "60"],
      ["Retry-After", date],
    ],
  });
  const values = denial.after(10_500_000_000n).responseHeaders.map(([, value]) => value);
  expect(values).toEqual(["1767225600", "50", "50", date]);
});

test("errors of the caller are thrown and never fail open", async () => {
  const client = clientOf((await serve(HUNDRED)).address);
  await expect(client.limit({ user: "x".repeat(2_000_000) })).rejects.toThrow(RequestError);
  await expect(client.limit({ user: "a" }, { cost: -1 })).rejects.toThrow("giveBack");
  await expect(client.limit({ user: "a" }, { cost: 1.5 })).rejects.toThrow("whole number");
  await expect(client.limit({ user: undefined as unknown as string })).rejects.toThrow("user is undefined");
  await expect(client.limit({ user: "\ud800" })).rejects.toThrow("UTF-8");
  await expect(client.limit({ "": "a" })).rejects.toThrow("without key");
  expect((await client.limit({ user: "a" })).remaining).toBe(99);
  await expect(client.limit({})).rejects.toThrow("entries");
  await expect(client.limit([])).rejects.toThrow("no descriptor");
  await expect(client.limit({ user: "a" }, { domain: "" })).rejects.toThrow("domain");
  expect(() => new Descriptor({ a: "b" }, { limit: { requests: 1, unit: "fortnight" } })).toThrow("fortnight");
});

test("an aborted call rejects with the reason and is no failure", async () => {
  const seen: Reason[] = [];
  const client = clientOf(await misbehaving("slow=1s"), {
    timeoutMs: 30_000,
    breakerFailures: 1,
    onDecision: ({ reason }) => seen.push(reason),
  });
  const controller = new AbortController();
  setTimeout(() => {
    controller.abort(new Error("gone"));
  }, 100);
  await expect(client.limit({ user: "a" }, { signal: controller.signal })).rejects.toThrow("gone");
  await client.limit({ user: "a" });
  expect(seen).toEqual(["decided"]);
});

test("observers see each decision", async () => {
  const seen: [Reason, boolean][] = [];
  const onDecision: TidegateOptions["onDecision"] = ({ reason }, tookMs) => {
    seen.push([reason, tookMs >= 0 && tookMs < 5_000]);
  };
  const client = clientOf((await serve(HUNDRED)).address, { onDecision });
  await client.limit({ user: "a" }, { cost: 100 });
  await client.limit({ user: "a" });
  await client.limit({ user: "a" });
  await clientOf(`127.0.0.1:${await unusedPort()}`, { onDecision }).limit({ user: "a" });
  expect(seen).toEqual([
    ["decided", true],
    ["decided", true],
    ["denied_locally", true],
    ["failed_open", true],
  ]);
});
