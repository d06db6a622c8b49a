import { expect, onTestFinished, test, vi } from "vitest";
import { constant, Tidegate, type LocalLimit } from "../src/index.js";
import { LocalLimits } from "../src/local.js";
import { rateLimit } from "../src/next.js";
import { counting, FakeTidegate } from "../src/testing.js";
import { clockOf, serve, unusedPort } from "./servers.js";

const RULES = `
domain: d
descriptors:
  - key: bucket
    rate_limit: {name: bucket, per: 7s, requests_per_unit: 5, algorithm: token_bucket}
  - key: window
    rate_limit: {name: window, per: 10s, requests_per_unit: 4, algorithm: fixed_window}
`;
const LIMITS: readonly LocalLimit[] = [
  { keys: ["bucket"], requests: 5, perMs: 7_000, name: "bucket" },
  { keys: ["window"], requests: 4, perMs: 10_000, name: "window", algorithm: "fixed_window" },
];

/** Pseudorandom numbers below a bound, of a seed. */
function chanceOf(seed: number): (bound: number) => number {
  let state = seed + 1;
  return (bound) => {
    state = (state * 48_271) % 2_147_483_647;
    return state % bound;
  };
}

/** Of six requests, the number that are allowed. */
async function allowed(client: FakeTidegate, entries: Record<string, string>): Promise<number> {
  const decisions = await Promise.all(Array.from({ length: 6 }, () => client.limit(entries)));
  return decisions.filter((one) => one.allowed).length;
}

test.each([0, 1, 2])("a counting fake decides as the server does (seed %i)", async (seed) => {
  const chance = chanceOf(seed);
  const one = <T>(of: readonly T[]): T => of[chance(of.length)] as T;
  let nowNs = 1_700_006_400_000_000_000n;
  const server = await serve(RULES, ["--test-clock"]);
  const setClock = clockOf(server.address);
  const client = new Tidegate(server.address, { domain: "d", timeoutMs: 5_000, localDenials: 0 });
  onTestFinished(() => {
    client.close();
  });
  const fake = new FakeTidegate(counting(LIMITS, { clock: () => nowNs }));
  for (let step = 0; step < 150; step++) {
    nowNs += one([0n, 1n, 333_333_333n, 1_400_000_000n, 2_999_999_999n, 12_000_000_000n]);
    await setClock(nowNs);
    const some = one([[{ bucket: "a" }], [{ window: "a" }], [{ bucket: "b" }, { window: "b" }], [{ none: "a" }]]);
    const operation = one(["limit", "limit", "limit", "limit", "peek", "giveBack"] as const);
    const options = { cost: one([1, 1, 2, 3, 6]) };
    const [real, local] = [await client[operation](some, options), await fake[operation](some, options)];
    const seen = ({ allowed, retryAfterNs, statuses }: typeof real): unknown => ({
      allowed,
      retryAfterNs,
      statuses: statuses.map(({ overLimit, remaining, limit, resetAfterNs }) => {
        return [overLimit, remaining, limit?.name, operation === "giveBack" ? 0n : resetAfterNs];
      }),
    });
    expect(seen(local), `step ${step}: ${operation} ${JSON.stringify(some)} ${options.cost}`).toEqual(seen(real));
  }
});

test("a clock that steps back ends no window", async () => {
  let nowNs = 1_700_006_400_000_000_000n;
  const fake = new FakeTidegate(counting(LIMITS, { clock: () => nowNs }));
  for (const stepNs of [0n, -1n, -20_000_000_000n]) {
    nowNs += stepNs;
    expect(await allowed(fake, { window: "a" })).toBe(stepNs === 0n ? 4 : 0);
  }
});

test("limits of the fallback need no wall clock after the start", async () => {
  let [wallMs, monotonicMs] = [1_700_006_401_000, 5_000.25];
  vi.spyOn(Date, "now").mockImplementation(() => wallMs);
  vi.spyOn(performance, "now").mockImplementation(() => monotonicMs);
  onTestFinished(() => void vi.restoreAllMocks());
  const local = new LocalLimits(LIMITS);
  const limiter = new FakeTidegate(({ entries, costs }) =>
    local.decide(entries.map((one) => ({ entries: Object.entries(one), cost: costs[0] ?? 1n, givesBack: false }))),
  );
  expect(await allowed(limiter, { window: "a" })).toBe(4);
  expect(await allowed(limiter, { bucket: "a" })).toBe(5);
  wallMs -= 3_600_000;
  expect(await allowed(limiter, { window: "a" })).toBe(0);
  monotonicMs += 7_000;
  expect(await allowed(limiter, { window: "a" })).toBe(0);
  expect(await allowed(limiter, { bucket: "a" })).toBe(5);
  monotonicMs += 2_000;
  expect(await allowed(limiter, { window: "a" })).toBe(4);
});

test("a fallback limits requests without an answer, and middleware denies with 429", async () => {
  const client = new Tidegate(`127.0.0.1:${await unusedPort()}`, {
    domain: "d",
    timeoutMs: 5_000,
    logger: { info: () => undefined, warn: () => undefined },
    fallback: [{ keys: ["user"], requests: 2, perMs: 3_600_000 }],
  });
  onTestFinished(() => {
    client.close();
  });
  const limit = rateLimit({ client, next: () => new Response("page"), keys: [constant("user", "a")] });
  const statuses = [];
  for (let call = 0; call < 3; call++) {
    statuses.push((await limit(new Request("http://app.example/"))).status);
  }
  expect(statuses).toEqual([200, 200, 429]);
  const denied = await client.limit({ user: "a" });
  expect([denied.reason, denied.error !== undefined, denied.retryAfterMs !== undefined]).toEqual([
    "failed_closed",
    true,
    true,
  ]);
  expect((await client.limit({ user: "b" })).allowed).toBe(true);
  expect((await client.limit({ team: "a" })).remaining, "not of the fallback").toBeUndefined();
});

test("a local limit that cannot be is refused", () => {
  expect(() => counting([{ keys: [], requests: 1, perMs: 1 }])).toThrow("at least one key");
  expect(() => counting([{ keys: ["a"], requests: 0, perMs: 1 }])).toThrow("above 0");
});
