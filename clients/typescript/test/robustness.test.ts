import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test, vi } from "vitest";
import { constant, header, RequestError, type Slot, Tidegate, type TidegateOptions } from "../src/index.js";
import { rateLimit } from "../src/next.js";
import { admitted, denied, failed, FakeTidegate } from "../src/testing.js";
import { serve, unusedPort } from "./servers.js";

const HUNDRED = "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]}";

class Lines {
  readonly lines: string[] = [];
  info(message: string): void {
    this.lines.push(message);
  }
  warn(message: string): void {
    this.lines.push(message);
  }
}

function clientOf(address: string | readonly string[], options: TidegateOptions = {}): Tidegate {
  const client = new Tidegate(address, { domain: "d", timeoutMs: 5_000, logger: new Lines(), ...options });
  onTestFinished(() => {
    client.close();
  });
  return client;
}

test("one stopped server of two fails decisions for less than two seconds", { timeout: 60_000 }, async () => {
  const [one, other] = [await serve(HUNDRED), await serve(HUNDRED)];
  const client = clientOf([one.address, other.address], { timeoutMs: 500, breakerOpenMs: 300 });
  for (let call = 0; call < 20; call++) {
    await client.peek({ user: "a" }, { timeoutMs: 5_000 });
  }
  one.signal("SIGSTOP");
  const began = performance.now();
  const failedAt: number[] = [];
  while (performance.now() < began + 4_000) {
    if ((await client.peek({ user: "a" })).error !== undefined) {
      failedAt.push(performance.now() - began);
    }
    await sleep(10);
  }
  one.signal("SIGCONT");
  expect(failedAt.length, "the stopped server got no call").toBeGreaterThan(0);
  // Without probes beside the calls, one call in each 300 ms would fail to the end.
  expect(failedAt.filter((at) => at > 2_000)).toEqual([]);
  await other.kill();
  // Only the stopped server is left: it is used again.
  const deadline = Date.now() + 10_000;
  while ((await client.peek({ user: "a" }, { timeoutMs: 5_000 })).error !== undefined) {
    expect(Date.now()).toBeLessThan(deadline);
    await sleep(20);
  }
});

test("a server that is down is left out while another is connected", async () => {
  const [one, other] = [await serve(HUNDRED), await serve(HUNDRED)];
  const client = clientOf([one.address, other.address]);
  for (let call = 0; call < 20; call++) {
    await client.peek({ user: "a" });
  }
  await one.kill();
  let failures = 0;
  for (let call = 0; call < 50; call++) {
    failures += (await client.peek({ user: "a" })).error === undefined ? 0 : 1;
  }
  expect(failures, "a call in flight may fail, a later one may not").toBeLessThanOrEqual(1);
});

test("the failures of one pause of the process are one", async () => {
  const client = clientOf((await serve(HUNDRED)).address, { timeoutMs: 50 });
  await client.peek({ user: "a" });
  const calls = Array.from({ length: 8 }, () => client.peek({ user: "a" }));
  const until = performance.now() + 200;
  while (performance.now() < until) {
    // The event loop stands still.
  }
  const outcomes = await Promise.all(calls);
  expect(outcomes.filter(({ error }) => error !== undefined).length).toBeGreaterThanOrEqual(5);
  expect((await client.peek({ user: "a" }, { timeoutMs: 5_000 })).reason).toBe("decided");
});

test("a call after close is an error of the caller", async () => {
  const client = clientOf((await serve(HUNDRED)).address);
  expect((await client.limit({ user: "a" })).reason).toBe("decided");
  await client[Symbol.asyncDispose]();
  client.close();
  await expect(client.limit({ user: "a" })).rejects.toThrow("closed");
});

test("observers and sources of metadata that throw change no decision", async () => {
  const logger = new Lines();
  const throwing = (): never => {
    throw new Error("broken");
  };
  const options = { logger, onDecision: throwing, metadata: throwing, breakerFailures: 1, breakerOpenMs: 1 };
  const server = await serve(HUNDRED);
  const client = clientOf(server.address, options);
  expect((await client.limit({ user: "a" })).reason).toBe("decided");
  expect(logger.lines).toEqual([
    "the source of metadata for rate limit calls failed",
    "an observer of rate limit decisions failed",
  ]);
  await server.kill();
  expect((await client.limit({ user: "a" })).error).toBeDefined();
  await serve(HUNDRED, [], server.address);
  // The probe has its permit, although the source fails.
  const deadline = Date.now() + 10_000;
  while ((await client.limit({ user: "a" })).reason !== "decided") {
    expect(Date.now(), "the permit of the probe is lost").toBeLessThan(deadline);
    await sleep(20);
  }
});

test.each(["open", "closed"] as const)(
  "decisions without an answer are logged once a minute (%s)",
  async (onFailure) => {
    const logger = new Lines();
    let nowNs = 0n;
    const address = `127.0.0.1:${await unusedPort()}`;
    const client = clientOf(address, { logger, onFailure, breakerFailures: 0, clock: () => nowNs });
    for (let call = 0; call < 3; call++) {
      await client.limit({ user: "a" });
    }
    nowNs += 60_000_000_000n;
    await client.limit({ user: "a" });
    const [first = "", second = "", ...more] = logger.lines;
    expect(first).toMatch(/^no answer from the rate limit server \(UNAVAILABLE: .*ECONNREFUSED/);
    expect(first).toContain(`requests are ${onFailure === "open" ? "allowed" : "denied"}, 1 since`);
    expect(second).toContain("3 since the last message");
    expect(more).toEqual([]);
    await serve(HUNDRED, [], address);
    const deadline = Date.now() + 10_000;
    while ((await client.limit({ user: "a" })).error !== undefined) {
      expect(Date.now()).toBeLessThan(deadline);
      await sleep(20);
    }
    expect(logger.lines.at(-1)).toBe("the rate limit server answers again");
  },
);

test("the test double decides as the test says, also in middleware", async () => {
  const client = new FakeTidegate((call) =>
    (call.costs[0] ?? 0n) > 5n ? denied({ retryAfterMs: 30_000 }) : admitted(),
  );
  expect((await client.limit({ user: "ann" })).remaining).toBe(99);
  expect((await client.limit({ user: "ann" }, { cost: 6 })).headers()["Retry-After"]).toBe("30");
  await client.giveBack({ user: "ann" });
  expect(client.calls.map(({ operation, entries, costs }) => [operation, entries, costs])).toEqual([
    ["limit", [{ user: "ann" }], [1n]],
    ["limit", [{ user: "ann" }], [6n]],
    ["giveBack", [{ user: "ann" }], [1n]],
  ]);
  await expect(client.limit({})).rejects.toThrow("entries");
  const next = (): Response => new Response("page");
  const limit = rateLimit({ client: new FakeTidegate(failed("closed")), next, keys: [constant("user", "a")] });
  expect((await limit(new Request("http://app.example/"))).status).toBe(503);
});

test("errors of the configuration are no bad request", async () => {
  const client = new FakeTidegate(() => {
    throw new RequestError("UNAUTHENTICATED", "no token");
  });
  const next = (): Response => new Response("page");
  const limit = rateLimit({ client, next, keys: [constant("user", "a")] });
  await expect(limit(new Request("http://app.example/"))).rejects.toThrow("UNAUTHENTICATED");
  const headers = { "x-user": "a, b" };
  const repeated = rateLimit({ client, next, keys: [header("x-user", { entry: "user", missing: "allow" })] });
  expect((await repeated(new Request("http://app.example/", { headers }))).status).toBe(400);
});

test("a slot is released once, in its domain, and none without a ticket", async () => {
  const client = new FakeTidegate(admitted({ ticket: "slot-1" }));
  const slot = await client.acquire({ user: "ann" }, { domain: "other" });
  await slot.release(2);
  await slot[Symbol.asyncDispose]();
  await slot.release();
  expect(client.calls.map(({ domain, entries, costs }) => [domain, entries, costs])).toEqual([
    ["other", [{ user: "ann" }], [1n]],
    ["other", [{ slot: "slot-1" }], [2n]],
    ["other", [{ slot: "slot-1" }], [1n]],
  ]);
  const reserving = new FakeTidegate(admitted({ ticket: "slot-1", ticketCost: 40n }));
  const ends: [(slot: Slot) => Promise<void>, bigint, boolean][] = [
    [(one) => one.release(), 40n, false],
    [(one) => one.commit(7), 7n, false],
    [(one) => one.commit(0n), 40n, true],
    [(one) => one.cancel(), 40n, true],
  ];
  for (const [end, cost, givesBack] of ends) {
    reserving.calls.length = 0;
    const one = await reserving.acquire({ user: "ann" });
    await end(one);
    await one.commit(3);
    await one[Symbol.asyncDispose]();
    expect(reserving.calls.slice(1).map((call) => [call.costs, call.givesBack])).toEqual([[[cost], givesBack]]);
  }
  for (const decision of [denied(), failed(), admitted()]) {
    const other = new FakeTidegate(decision);
    const none = await other.acquire({ user: "ann" });
    await none[Symbol.asyncDispose]();
    expect([none.allowed, other.calls.length]).toEqual([decision.allowed, 1]);
  }
});

test("a slot whose client is closed is logged and ends no scope with an error", async () => {
  const logger = new Lines();
  const server = await serve(
    "{domain: d, descriptors: [{key: user, rate_limit: {algorithm: concurrency, requests_in_flight: 1}}]}",
  );
  const client = clientOf(server.address, { logger });
  const slot = await client.acquire({ user: "ann" });
  expect(slot.ticket).toBeDefined();
  client.close();
  await slot[Symbol.asyncDispose]();
  expect(logger.lines).toEqual(["the end of a request is lost: its slots and estimates end after max_hold"]);
});

test("waits without a bound, and beyond the longest timer, end when the hits fit", async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const days = 86_400_000;
  const untilMs = performance.now() + 40 * days;
  const client = new FakeTidegate(() => {
    const retryAfterMs = untilMs - performance.now();
    return retryAfterMs > 0 ? denied({ retryAfterMs }) : admitted();
  });
  const waiting = client.waitUntilReady({ user: "a" }, { waitMaxMs: Infinity });
  await vi.advanceTimersByTimeAsync(39 * days);
  // At the start, and after the longest timer.
  expect(client.calls).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(2 * days);
  expect((await waiting).allowed).toBe(true);
});

test("settings of a client may be infinite", async () => {
  const { address } = await serve(HUNDRED);
  const client = clientOf(address, { timeoutMs: Infinity, localDenialsForMs: Infinity, breakerOpenMs: Infinity });
  await client.limit({ user: "a" }, { cost: 100 });
  expect((await client.limit({ user: "a" })).reason).toBe("decided");
  expect((await client.limit({ user: "a" })).reason).toBe("denied_locally");
});
