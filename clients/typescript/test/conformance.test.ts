import { expect, onTestFinished, test } from "vitest";
import {
  addressOf,
  forwardedAddressOf,
  Decision,
  Descriptor,
  Tidegate,
  type CallOptions,
  type Slot,
  type RateLimiter,
  type Header,
  type Limit,
  type Mode,
  type OnFailure,
  type Reason,
  type TidegateOptions,
} from "../src/index.js";
import { Tidegate as HttpTidegate } from "../src/http.js";
import { unitNs } from "../src/limit.js";
import { cases, clockOf, misbehaving, serve, type Server } from "./servers.js";

type Time = readonly [milliseconds: number, nanoseconds: number] | null;

interface CaseLimit {
  readonly requests: number;
  readonly unit: string;
  readonly name?: string;
  readonly window?: Time;
}

interface CaseDescriptor {
  readonly entries: readonly [string, string][];
  readonly cost?: number | string;
  readonly give_back?: boolean;
  readonly limit?: CaseLimit;
}

interface CaseStatus {
  readonly over_limit: boolean;
  readonly limit?: CaseLimit | null;
  readonly remaining?: number;
  readonly reset_after?: Time;
  readonly mode?: Mode | "";
}

function nanos(time: Time): bigint | undefined {
  return time === null ? undefined : BigInt(time[0]) * 1_000_000n + BigInt(time[1]);
}

function limitOf(limit: CaseLimit | null): Limit | undefined {
  if (limit === null) {
    return undefined;
  }
  const { requests, unit, name = "", window } = limit;
  return { requests, unit, name, windowNs: window === undefined ? unitNs(unit) : nanos(window) };
}

function descriptorOf(given: CaseDescriptor): Descriptor {
  const cost = given.cost === undefined ? undefined : BigInt(given.cost);
  return new Descriptor(given.entries, { cost, limit: given.limit, giveBack: given.give_back ?? false });
}

function clientOf(address: string, options: TidegateOptions): Tidegate {
  const client = new Tidegate(address, { domain: "d", timeoutMs: 5_000, ...options });
  onTestFinished(() => {
    client.close();
  });
  return client;
}

/** Both transports; a server has a port for each. */
const TRANSPORTS = ["gRPC", "HTTP"] as const;

function clientOver(transport: (typeof TRANSPORTS)[number], server: Server, options: TidegateOptions): RateLimiter {
  return transport === "gRPC"
    ? clientOf(server.address, options)
    : new HttpTidegate(server.url, { domain: "d", timeoutMs: 5_000, ...options });
}

/** Each case with each transport. */
function overBoth<T extends object>(given: readonly T[]): (T & { readonly transport: (typeof TRANSPORTS)[number] })[] {
  return TRANSPORTS.flatMap((transport) => given.map((one) => ({ ...one, transport })));
}

const SILENT = { info: () => undefined, warn: () => undefined };

const HTTP_PORT = ["--http-listen", "127.0.0.1:0"];

interface Scenario {
  readonly name: string;
  readonly needs: readonly string[];
  readonly start_unix_ms: number;
  readonly compat: string | null;
  readonly rules: string;
  readonly steps: readonly {
    readonly at: readonly [number, number];
    readonly times: number;
    readonly every_ms: number;
    readonly descriptors: readonly CaseDescriptor[];
    readonly decision: {
      readonly allowed: boolean;
      readonly statuses: readonly CaseStatus[];
      readonly request_headers: readonly Header[];
      readonly response_headers: readonly Header[];
      readonly body: string;
    };
  }[];
}

test.each(overBoth(cases<Scenario>("vectors", "scenarios").filter(({ needs }) => needs.length === 0)))(
  "vectors: $name over $transport",
  async (scenario) => {
    const compat = scenario.compat === null ? [] : ["--compat", scenario.compat];
    const server = await serve(scenario.rules, ["--test-clock", ...HTTP_PORT, ...compat]);
    const setClock = clockOf(server.address);
    const client = clientOver(scenario.transport, server, { localDenials: 0 });
    for (const [number, step] of scenario.steps.entries()) {
      for (let repetition = 0; repetition < step.times; repetition++) {
        const millis = BigInt(scenario.start_unix_ms + step.at[0] + repetition * step.every_ms);
        await setClock(millis * 1_000_000n + BigInt(step.at[1]));
        const decision = await client.limit(step.descriptors.map(descriptorOf));
        const expected = step.decision;
        const where = `step ${number}`;
        expect(decision.reason, where).toBe("decided");
        expect(decision.allowed, where).toBe(expected.allowed);
        expect(decision.requestHeaders, where).toEqual(expected.request_headers);
        expect(decision.responseHeaders, where).toEqual(expected.response_headers);
        expect(new TextDecoder().decode(decision.body), where).toBe(expected.body);
        expect(decision.statuses.length, where).toBe(expected.statuses.length);
        for (const [index, status] of decision.statuses.entries()) {
          const ofCase = expected.statuses[index];
          expect(status.overLimit, where).toBe(ofCase?.over_limit);
          if (ofCase?.remaining !== undefined) {
            expect(status.remaining, where).toBe(ofCase.remaining);
          }
          if (ofCase?.reset_after !== undefined) {
            expect(status.resetAfterNs, where).toBe(nanos(ofCase.reset_after));
          }
          if (ofCase?.limit !== undefined) {
            expect(status.limit, where).toEqual(limitOf(ofCase.limit));
          }
        }
      }
    }
  },
);

interface HeaderCase {
  readonly name: string;
  readonly decision: {
    readonly allowed: boolean;
    readonly reason: Reason;
    readonly statuses: readonly Required<CaseStatus>[];
    readonly response_headers: readonly Header[];
  };
  readonly fields: {
    readonly limit: number | null;
    readonly remaining: number | null;
    readonly reset_after: Time;
    readonly retry_after: Time;
    readonly rule: string;
  };
  readonly headers: Record<string, string>;
  readonly legacy: Record<string, string>;
}

function lower(headers: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
}

test.each([...cases<HeaderCase>("headers"), ...cases<HeaderCase>("quota")])(
  "headers: $name",
  ({ decision: given, fields, headers, legacy }) => {
    const statuses = given.statuses.map((status) => ({
      overLimit: status.over_limit,
      limit: limitOf(status.limit),
      remaining: status.remaining,
      resetAfterNs: nanos(status.reset_after),
      mode: status.mode || undefined,
    }));
    const decision = new Decision(given.allowed, given.reason, statuses, { responseHeaders: given.response_headers });
    expect(decision.limit ?? null).toBe(fields.limit);
    expect(decision.remaining ?? null).toBe(fields.remaining);
    expect(decision.resetAfterNs).toBe(nanos(fields.reset_after));
    expect(decision.retryAfterNs).toBe(nanos(fields.retry_after));
    expect(decision.rule).toBe(fields.rule);
    expect(lower(decision.headers())).toEqual(lower(headers));
    expect(lower(decision.headers({ legacy: true }))).toEqual(lower({ ...headers, ...legacy }));
  },
);

interface DenialCase {
  readonly name: string;
  readonly rules: string;
  readonly client: { readonly local_denials_max?: number; readonly local_denials_for_ms?: number };
  readonly steps: readonly {
    readonly at: readonly [number, number];
    readonly op: "limit" | "peek" | "give_back";
    readonly descriptors: readonly CaseDescriptor[];
    readonly cost: number;
    readonly local_denials: boolean;
    readonly timeout_ms?: number;
    readonly expect: {
      readonly allowed: boolean;
      readonly reason: Reason;
      readonly retry_after?: Time;
      readonly headers?: Record<string, string>;
    };
  }[];
}

const DENIALS = [...cases<DenialCase>("local_denials"), ...cases<DenialCase>("retention")];

test.each(overBoth(DENIALS))("local denials: $name over $transport", async (given) => {
  const startNs = 1_700_006_400_000_000_000n;
  const server = await serve(given.rules, ["--test-clock", ...HTTP_PORT]);
  const setClock = clockOf(server.address);
  let nowNs = 0n;
  const client = clientOver(given.transport, server, {
    localDenials: given.client.local_denials_max ?? 10_000,
    ...(given.client.local_denials_for_ms !== undefined && { localDenialsForMs: given.client.local_denials_for_ms }),
    clock: () => nowNs,
  });
  for (const [number, step] of given.steps.entries()) {
    nowNs = nanos(step.at) ?? 0n;
    await setClock(startNs + nowNs);
    const descriptors = step.descriptors.map(descriptorOf);
    const options: CallOptions = {
      cost: step.cost,
      localDenials: step.local_denials,
      ...(step.timeout_ms !== undefined && { timeoutMs: step.timeout_ms }),
    };
    const decision = await {
      limit: () => client.limit(descriptors, options),
      peek: () => client.peek(descriptors),
      give_back: () => client.giveBack(descriptors, { cost: step.cost }),
    }[step.op]();
    const where = `step ${number}`;
    expect([decision.allowed, decision.reason], where).toEqual([step.expect.allowed, step.expect.reason]);
    if (step.expect.retry_after !== undefined) {
      expect(decision.retryAfterNs, where).toBe(nanos(step.expect.retry_after));
    }
    expect(lower(decision.headers()), where).toMatchObject(lower(step.expect.headers ?? {}));
  }
});

interface SlotCase {
  readonly name: string;
  readonly rules: string;
  readonly steps: readonly {
    readonly op: "acquire" | "release" | "renew" | "commit" | "cancel" | "end" | "peek";
    readonly at: Time;
    readonly slot: string;
    readonly descriptors: readonly CaseDescriptor[];
    readonly cost: number | null;
    readonly expect: {
      readonly allowed: boolean;
      readonly ticket: boolean;
      readonly held: boolean;
      readonly remaining: number;
    };
  }[];
}

test.each(overBoth(cases<SlotCase>("slots")))("slots: $name over $transport", async (given) => {
  const server = await serve(given.rules, ["--test-clock", ...HTTP_PORT]);
  const setClock = clockOf(server.address);
  const client = clientOver(given.transport, server, {});
  const slots = new Map<string, Slot>();
  for (const [number, step] of given.steps.entries()) {
    await setClock(1_700_006_400_000_000_000n + (nanos(step.at) ?? 0n));
    const where = `step ${number}`;
    const slot = slots.get(step.slot);
    if (step.op === "acquire") {
      const acquired = await client.acquire(step.descriptors.map(descriptorOf), { cost: step.cost ?? 1 });
      expect([acquired.allowed, acquired.ticket !== undefined], where).toEqual([
        step.expect.allowed,
        step.expect.ticket,
      ]);
      slots.set(step.slot, acquired);
    } else if (step.op === "release") {
      await slot?.release(step.cost ?? undefined);
    } else if (step.op === "renew") {
      expect(await slot?.renew(), where).toBe(step.expect.held);
    } else if (step.op === "commit") {
      await slot?.commit(step.cost ?? 0);
    } else if (step.op === "cancel") {
      await slot?.cancel();
    } else if (step.op === "end") {
      await slot?.[Symbol.asyncDispose]();
    } else {
      const decision = await client.peek(step.descriptors.map(descriptorOf));
      expect([decision.allowed, decision.remaining], where).toEqual([step.expect.allowed, step.expect.remaining]);
    }
  }
});

interface FailureCase {
  readonly name: string;
  readonly fault: string;
  readonly client: {
    readonly deadline_ms: number;
    readonly on_failure: OnFailure;
    readonly breaker_failures: number;
    readonly breaker_open_ms: number;
  };
  readonly expect: readonly {
    readonly advance_ms?: number;
    readonly calls?: number;
    readonly allowed: boolean;
    readonly reason: Reason;
    readonly errors: readonly string[];
    readonly message?: string;
    readonly remaining?: number;
  }[];
  readonly elapsed_ms_max: number | null;
}

test.each(cases<FailureCase>("failures"))("failures: $name", async (given) => {
  let nowNs = 0n;
  const client = clientOf(await misbehaving(given.fault), {
    timeoutMs: given.client.deadline_ms,
    connectTimeoutMs: 0,
    onFailure: given.client.on_failure,
    breakerFailures: given.client.breaker_failures,
    breakerOpenMs: given.client.breaker_open_ms,
    clock: () => nowNs,
    logger: SILENT,
  });
  const started = performance.now();
  for (const expected of given.expect) {
    nowNs += BigInt(expected.advance_ms ?? 0) * 1_000_000n;
    for (let call = 0; call < (expected.calls ?? 0); call++) {
      const decision = await client.limit({ user: "a" });
      const where = `call ${call}: ${String(decision.error)}`;
      expect([decision.allowed, decision.reason], where).toEqual([expected.allowed, expected.reason]);
      if (expected.remaining !== undefined) {
        expect(decision.remaining, where).toBe(expected.remaining);
      }
      expect((decision.errorMessage ?? "").toLowerCase(), where).toContain(expected.message ?? "");
      if (expected.errors.length === 0) {
        expect(decision.error, where).toBeUndefined();
      } else {
        expect(expected.errors, where).toContain(decision.error);
      }
    }
  }
  expect(performance.now() - started).toBeLessThanOrEqual(given.elapsed_ms_max ?? Infinity);
});

interface AddressCase {
  readonly name: string;
  readonly trusted_proxies: number;
  readonly peer: string | null;
  readonly x_forwarded_for: readonly string[];
  readonly expect: string | null;
}

test.each(cases<AddressCase>("client_addresses"))("client addresses: $name", (given) => {
  expect(addressOf(given.peer ?? undefined, given.x_forwarded_for, given.trusted_proxies) ?? null).toBe(given.expect);
});

interface ForwardedCase {
  readonly name: string;
  readonly trusted_proxies: number;
  readonly forwarded: readonly string[];
  readonly expect: string | null;
}

test.each(cases<ForwardedCase>("forwarded"))("client addresses: $name of Forwarded", (given) => {
  expect(forwardedAddressOf(given.forwarded, given.trusted_proxies) ?? null).toBe(given.expect);
});
