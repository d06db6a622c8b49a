// Calls without a decision, whatever responds instead of the server, and cancelled calls.
import { createServer as createHttp2 } from "node:http2";
import { connect, createServer, type AddressInfo } from "node:net";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { Server as GrpcServer, ServerCredentials, status, type handleUnaryCall } from "@grpc/grpc-js";
import { expect, onTestFinished, test } from "vitest";
import { constant, Tidegate, type Decision, type TidegateOptions } from "../src/index.js";
import { rateLimit } from "../src/next.js";
import { Renewals } from "../src/renewal.js";
import { serve } from "./servers.js";

const HUNDRED = "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100000}}]}";

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

/** A proxy that itself answers each request. */
async function proxy(httpStatus: number): Promise<string> {
  const server = createHttp2((_, response) => {
    response.writeHead(httpStatus, { "content-type": "text/html" });
    response.end("a page");
  }).listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A gRPC server whose one method ends with a status. */
async function grpcServer(code: status): Promise<string> {
  const server = new GrpcServer();
  onTestFinished(() => {
    server.forceShutdown();
  });
  const bytes = (value: Buffer): Buffer => value;
  const end: handleUnaryCall<Buffer, Buffer> = (_, callback) => {
    callback({ code, details: "of the test" });
  };
  server.addService(
    {
      ShouldRateLimit: {
        path: "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        requestStream: false,
        responseStream: false,
        requestSerialize: bytes,
        requestDeserialize: bytes,
        responseSerialize: bytes,
        responseDeserialize: bytes,
      },
    },
    { ShouldRateLimit: end },
  );
  const port = await new Promise<number>((done, fail) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) => {
      if (error === null) {
        done(bound);
      } else {
        fail(error);
      }
    });
  });
  return `127.0.0.1:${port}`;
}

test.each([
  [404, "UNIMPLEMENTED"],
  [401, "UNAUTHENTICATED"],
  [403, "PERMISSION_DENIED"],
])("failing open covers a proxy that answers with %i", async (httpStatus, code) => {
  const [logger, seen] = [new Lines(), [] as (string | undefined)[]];
  const onDecision = (decision: Decision): void => void seen.push(decision.error);
  const client = clientOf(await proxy(httpStatus), { logger, onDecision, breakerFailures: 0 });
  const next = (): Response => new Response("page");
  const limit = rateLimit({ client, next, keys: [constant("user", "a")] });
  for (let call = 0; call < 3; call++) {
    expect((await limit(new Request("http://app.example/"))).status).toBe(200);
  }
  expect(seen).toEqual([code, code, code]);
  expect(logger.lines).toHaveLength(1);
  expect(logger.lines[0]).toContain(code);
  const closed = await client.limit({ user: "a" }, { onFailure: "closed" });
  expect([closed.allowed, closed.reason]).toEqual([false, "failed_closed"]);
});

test.each([
  [status.UNIMPLEMENTED, "UNIMPLEMENTED"],
  [status.UNAUTHENTICATED, "UNAUTHENTICATED"],
  [status.PERMISSION_DENIED, "PERMISSION_DENIED"],
  [status.NOT_FOUND, "NOT_FOUND"],
  [status.FAILED_PRECONDITION, "FAILED_PRECONDITION"],
  [status.RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED"],
])("failing open covers status %i", async (number, code) => {
  const client = clientOf(await grpcServer(number), { breakerFailures: 2 });
  expect((await client.limit({ user: "a" })).error).toBe(code);
  await client.limit({ user: "a" });
  const decision = await client.limit({ user: "a" });
  expect([decision.error, decision.errorMessage]).toEqual(["BREAKER_OPEN", `${code}: of the test`]);
});

test("a descriptor that the server refuses rejects the call, and is logged once", async () => {
  const logger = new Lines();
  const client = clientOf((await serve(HUNDRED)).address, { logger });
  const entries = Object.fromEntries(Array.from({ length: 1_000 }, (_, entry) => [`key${entry}`, "a"]));
  for (let call = 0; call < 2; call++) {
    await expect(client.limit(entries)).rejects.toThrow("INVALID_ARGUMENT");
  }
  expect(logger.lines).toHaveLength(1);
});

test("arguments that are no descriptors are named", async () => {
  const client = clientOf("127.0.0.1:1");
  await expect(client.limit("x" as never)).rejects.toThrow('a descriptor is "x"; use its entries');
  await expect(client.limit(null as never)).rejects.toThrow("a descriptor is null");
});

const LISTEN =
  "const [host, port] = process.argv.slice(1); \
require('net').createServer().listen({ host, port, backlog: 1 }, () => process.stdout.write('listening'))";

/** Makes an address dead: nothing listens, its kernel drops each SYN, or it accepts and stays silent. */
async function dead(kind: string, host: string, port: number): Promise<void> {
  if (kind === "refuses") {
    return;
  }
  if (kind === "hangs") {
    const server = createServer().listen(port, host);
    await once(server, "listening");
    onTestFinished(() => void server.close());
    server.on("connection", (socket) => {
      onTestFinished(() => void socket.destroy());
    });
    return;
  }
  const child = spawn(process.execPath, ["-e", LISTEN, host, String(port)]);
  onTestFinished(() => void child.kill("SIGKILL"));
  await once(child.stdout, "data");
  child.kill("SIGSTOP");
  // Connections that only the kernel accepts fill its queue.
  for (let isFull = false; !isFull;) {
    const socket = connect(port, host).on("error", () => undefined);
    onTestFinished(() => void socket.destroy());
    isFull = !(await Promise.race([once(socket, "connect"), sleep(300).then(() => false)]));
  }
}

test.each(["refuses", "swallows", "hangs"])(
  "a dead address of a name costs at most two seconds (%s)",
  { timeout: 20_000 },
  async (kind) => {
    const { address } = await serve(HUNDRED);
    const port = Number(address.split(":")[1]);
    await dead(kind, "127.0.0.2", port);
    const client = clientOf(`ipv4:127.0.0.2:${port},127.0.0.1:${port}`, { timeoutMs: 500, localDenials: 0 });
    const began = performance.now();
    const late: boolean[] = [];
    while (performance.now() < began + 3_000) {
      const { error } = await client.limit({ user: "a" });
      if (performance.now() > began + 2_000) {
        late.push(error !== undefined);
      }
      await sleep(5);
    }
    // A loaded machine exceeds the timeout now and then. The dead address would cost half of the calls.
    expect(late.filter(Boolean).length).toBeLessThan(late.length / 10);
  },
);

test("a server that hangs beside another costs at most two seconds", { timeout: 60_000 }, async () => {
  const other = await serve(HUNDRED);
  const port = other.address.split(":")[1] ?? "";
  const hung = await serve(HUNDRED, [], `127.0.0.2:${port}`);
  const addresses = [`ipv4:127.0.0.2:${port},127.0.0.1:${port}`, [hung.address, other.address]];
  const runs = addresses.flatMap((address) =>
    [5, 1_000].map((everyMs) => {
      // The timeout is for loaded machines.
      const client = clientOf(address, { timeoutMs: 1_000, localDenials: 0 });
      return { name: `${String(address)} ${everyMs}`, client, everyMs, undecidedMs: [] as number[] };
    }),
  );
  const useBoth = async ({ name, client }: (typeof runs)[number]): Promise<void> => {
    const seen = new Set<number | undefined>();
    for (let call = 0; call < 2_000; call++) {
      const { remaining } = await client.limit({ user: name });
      if (seen.has(remaining)) {
        return;
      }
      seen.add(remaining);
      await sleep(5);
    }
    throw new Error(`one server counted all calls of ${name}`);
  };
  const call = async ({ name, client, everyMs, undecidedMs }: (typeof runs)[number]): Promise<void> => {
    const endMs = performance.now() + 4_000;
    for (let sentMs = performance.now(); sentMs < endMs; sentMs = performance.now()) {
      if ((await client.limit({ user: name })).error !== undefined) {
        undecidedMs.push(performance.now());
      }
      await sleep(Math.max(0, sentMs + everyMs - performance.now()));
    }
  };
  await Promise.all(runs.map(useBoth));
  hung.signal("SIGSTOP");
  await Promise.all(runs.map(call));
  for (const { name, undecidedMs } of runs) {
    expect(undecidedMs.length, name).toBeGreaterThan(0);
    expect((undecidedMs.at(-1) ?? 0) - (undecidedMs[0] ?? 0), `${name}: ${undecidedMs.join()}`).toBeLessThan(2_000);
  }
});

test("renewals that do not help become rare", () => {
  const renewals = new Renewals();
  const begun: number[] = [];
  for (let second = 0; second < 300; second++) {
    if (renewals.begin(second * 1_000)) {
      expect(renewals.begin(second * 1_000), "one at a time").toBe(false);
      renewals.ended(true, second * 1_000);
      begun.push(second);
    }
  }
  expect(begun).toEqual([0, 1, 3, 7, 15, 31, 63, 123, 183, 243]);
});

test("a call that is aborted at any moment keeps no slot", { timeout: 30_000 }, async () => {
  const rules =
    "{domain: d, descriptors: [{key: user, rate_limit: {algorithm: concurrency, requests_in_flight: 1000, max_hold: 1h}}]}";
  const client = clientOf((await serve(rules)).address);
  await client.peek({ user: "a" });
  let aborted = 0;
  for (let call = 0; call < 300; call++) {
    const controller = new AbortController();
    const acquiring = client.acquire({ user: "a" }, { signal: controller.signal });
    for (let turn = 0; turn < call % 12; turn++) {
      await new Promise((done) => setImmediate(done));
    }
    controller.abort(new Error("gone"));
    await acquiring.then(
      (slot) => slot.release(),
      () => {
        aborted += 1;
      },
    );
  }
  expect(aborted).toBeGreaterThan(0);
  const deadline = Date.now() + 5_000;
  while ((await client.peek({ user: "a" })).remaining !== 1_000) {
    expect(Date.now(), "slots stay held").toBeLessThan(deadline);
    await sleep(5);
  }
});
