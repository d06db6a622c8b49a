// Middleware whose framework runs without a socket of HTTP/1.1, or several times on one request.
import awsLambda from "@fastify/aws-lambda";
import websocket from "@fastify/websocket";
import { serve as serveHono, upgradeWebSocket, type WebSocketServerLike } from "@hono/node-server";
import express from "express";
import Fastify, { type FastifyInstance } from "fastify";
import { Hono } from "hono";
import { createServer as createHttp } from "node:http";
import { connect, createServer as createHttp2 } from "node:http2";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import serverless from "serverless-http";
import { expect, onTestFinished, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { rateLimit as expressRateLimit } from "../src/express.js";
import { rateLimit as fastifyRateLimit } from "../src/fastify.js";
import { rateLimit as honoRateLimit } from "../src/hono.js";
import {
  clientAddress,
  constant,
  custom,
  Decision,
  header,
  RequestError,
  Tidegate,
  type Missing,
} from "../src/index.js";
import { rateLimit as nextRateLimit } from "../src/next.js";
import { admitted, denied, FakeTidegate } from "../src/testing.js";
import { serve } from "./servers.js";

const byKey = (missing: Missing) => [header("x-api-key", { entry: "api_key", missing })];

/** Values of the key that reached the client. */
const valuesOf = (client: FakeTidegate): unknown[] => client.calls.map(({ entries }) => entries[0]?.["api_key"]);

async function fastifyOf(client: FakeTidegate, missing: Missing): Promise<FastifyInstance> {
  const application = Fastify();
  await application.register(fastifyRateLimit, { client, keys: byKey(missing) });
  application.get("/", () => "hello");
  return application;
}

const LAMBDA_EVENT = {
  version: "2.0",
  rawPath: "/",
  rawQueryString: "",
  requestContext: { http: { method: "GET", path: "/", sourceIp: "192.0.2.7" } },
  isBase64Encoded: false,
};

test.each(["reject", "allow"] as const)("headers are read from app.inject (%s)", async (missing) => {
  const client = new FakeTidegate();
  const application = await fastifyOf(client, missing);
  expect((await application.inject({ url: "/", headers: { "x-api-key": "a" } })).statusCode).toBe(200);
  expect((await application.inject("/")).statusCode).toBe(missing === "reject" ? 400 : 200);
  expect(valuesOf(client)).toEqual(["a"]);
});

test("the address of app.inject is that of the request, behind proxies too", async () => {
  const client = new FakeTidegate();
  for (const trustedProxies of [0, 1]) {
    const application = Fastify();
    await application.register(fastifyRateLimit, {
      client,
      keys: [clientAddress({ trustedProxies, missing: "reject", entry: "api_key" })],
    });
    application.get("/", () => "hello");
    const headers = { "x-forwarded-for": "198.51.100.1, 203.0.113.9" };
    expect((await application.inject({ url: "/", headers, remoteAddress: "192.0.2.7" })).statusCode).toBe(200);
  }
  expect(valuesOf(client)).toEqual(["192.0.2.7", "203.0.113.9"]);
});

test.each(["reject", "allow"] as const)("headers are read from @fastify/aws-lambda (%s)", async (missing) => {
  const client = new FakeTidegate();
  const proxy = awsLambda(await fastifyOf(client, missing));
  const call = (headers: Record<string, string>) =>
    proxy({ ...LAMBDA_EVENT, headers }, {}) as Promise<{ statusCode: number }>;
  expect((await call({ "x-api-key": "a" })).statusCode).toBe(200);
  expect((await call({})).statusCode).toBe(missing === "reject" ? 400 : 200);
  expect(valuesOf(client)).toEqual(["a"]);
});

test.each(["reject", "allow"] as const)("headers are read from serverless-http with Express (%s)", async (missing) => {
  const client = new FakeTidegate(admitted({ ticket: "slot-1" }));
  const application = express();
  application.use(expressRateLimit({ client, keys: byKey(missing) }));
  application.get("/", (_, response) => void response.send("hello"));
  const handler = serverless(application);
  const call = (headers: Record<string, string>) =>
    handler({ ...LAMBDA_EVENT, headers }, {}) as Promise<{ statusCode?: number }>;
  expect((await call({ "X-Api-Key": "a" })).statusCode).toBe(200);
  expect((await call({ "x-api-key": "a,b" })).statusCode).toBe(400);
  expect((await call({})).statusCode).toBe(missing === "reject" ? 400 : 200);
  // The slot of the one request that was limited is released.
  expect(client.calls.map(({ entries }) => entries[0])).toEqual([{ api_key: "a" }, { slot: "slot-1" }]);
});

test("headers are read, and slots released, over HTTP/2", async () => {
  const client = new FakeTidegate(admitted({ ticket: "slot-1" }));
  const application = Fastify({ http2: true });
  await application.register(fastifyRateLimit, { client, keys: byKey("reject") });
  application.get("/", () => "hello");
  await application.ready();
  const server = createHttp2((request, response) => {
    application.routing(request, response);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { readonly port: number };
  const session = connect(`http://127.0.0.1:${port}`);
  const get = async (headers: Record<string, string | string[]>): Promise<unknown> => {
    const stream = session.request({ ":path": "/", ...headers });
    const [responded] = (await once(stream, "response")) as [Record<string, unknown>];
    stream.resume();
    await once(stream, "close");
    return responded[":status"];
  };
  expect(await get({ "x-api-key": "a" })).toBe(200);
  expect(await get({ "x-api-key": ["a", "b"] })).toBe(400);
  expect(await get({})).toBe(400);
  session.close();
  server.close();
  expect(client.calls.map(({ entries }) => entries[0])).toEqual([{ api_key: "a" }, { slot: "slot-1" }]);
});

test("a WebSocket of Fastify holds its slot until it is closed", async () => {
  const server = await serve(
    "{domain: d, descriptors: [{key: route, rate_limit: {algorithm: concurrency, requests_in_flight: 1}}]}",
  );
  const client = new Tidegate(server.address, { domain: "d", timeoutMs: 5_000 });
  const application = Fastify();
  onTestFinished(async () => {
    await application.close();
    client.close();
  });
  await application.register(websocket);
  await application.register(fastifyRateLimit, { client, keys: [constant("route", "all")] });
  application.get("/", { websocket: true }, (socket) => {
    socket.on("message", (message: Buffer) => {
      socket.send(message);
    });
  });
  const url = (await application.listen({ host: "127.0.0.1", port: 0 })).replace("http", "ws");
  const one = new WebSocket(url);
  await once(one, "open");
  one.send("hello");
  await once(one, "message");
  const other = new WebSocket(url);
  const [error] = (await once(other, "error")) as [Error];
  expect(error.message).toContain("429");
  one.close();
  const deadline = Date.now() + 5_000;
  while ((await client.peek({ route: "all" })).remaining !== 1) {
    expect(Date.now(), "the slot stays held").toBeLessThan(deadline);
    await sleep(5);
  }
});

/** A Hono application on Node.js with a WebSocket at `/`, and `/refused` that upgrades nothing; its URL. */
async function webSocketsOfHono(client: Tidegate): Promise<string> {
  const application = new Hono();
  application.use(honoRateLimit({ client, keys: [constant("route", "all")] }));
  application.get("/refused", (context) => context.text("not here", 403));
  application.get(
    "/",
    upgradeWebSocket(() => ({
      onMessage: (_, socket) => {
        socket.send("hello");
      },
    })),
  );
  const wss = new WebSocketServer({ noServer: true });
  const server = serveHono({
    fetch: application.fetch,
    hostname: "127.0.0.1",
    port: 0,
    websocket: { server: wss as WebSocketServerLike },
  });
  onTestFinished(() => {
    wss.clients.forEach((socket) => {
      socket.terminate();
    });
    server.close();
  });
  await once(server, "listening");
  return `ws://127.0.0.1:${(server.address() as { readonly port: number }).port}`;
}

test("a WebSocket of Hono on Node.js holds its slot until it is closed", async () => {
  const server = await serve(
    "{domain: d, descriptors: [{key: route, rate_limit: {algorithm: concurrency, requests_in_flight: 1}}]}",
  );
  const client = new Tidegate(server.address, { domain: "d", timeoutMs: 5_000 });
  onTestFinished(() => {
    client.close();
  });
  const url = await webSocketsOfHono(client);
  const isFree = async (): Promise<void> => {
    const deadline = Date.now() + 5_000;
    while ((await client.peek({ route: "all" })).remaining !== 1) {
      expect(Date.now(), "the slot stays held").toBeLessThan(deadline);
      await sleep(5);
    }
  };
  const refusal = async (path: string): Promise<string> => {
    const [error] = (await once(new WebSocket(url + path), "error")) as [Error];
    return error.message;
  };
  for (const leave of ["close", "terminate"] as const) {
    const one = new WebSocket(url);
    await once(one, "open");
    one.send("hello");
    await once(one, "message");
    expect((await client.peek({ route: "all" })).remaining, "while it is open").toBe(0);
    expect(await refusal("/")).toContain("429");
    one[leave]();
    await isFree();
  }
  expect(await refusal("/refused")).toContain("403");
  await isFree();
});

const OUTER = { keys: [constant("route", "outer")] };
const INNER = { keys: [constant("route", "inner")] };

/** Admits with limits named after their route; the inner limit denies every second request. */
function layered(): FakeTidegate {
  let inner = 0;
  return new FakeTidegate(({ entries }) => {
    const rule = entries[0]?.["route"] ?? "";
    return rule === "inner" && ++inner % 2 === 0
      ? denied({ rule, retryAfterMs: 5_000 })
      : admitted({ rule, remaining: 7 });
  });
}

const BOTH = '"outer";r=7, "inner";r=7';
const BOTH_DENIED = '"outer";r=7, "inner";r=0;t=5';

test("a limit of a child plugin of Fastify is beside that of its parent", async () => {
  const client = layered();
  const application = Fastify();
  await application.register(fastifyRateLimit, { client, ...OUTER });
  await application.register(async (child) => {
    await child.register(fastifyRateLimit, { client, ...INNER });
    child.get("/", ({ rateLimit }) => rateLimit?.rule);
  });
  const responses = [await application.inject("/"), await application.inject("/")];
  expect(responses.map(({ statusCode, headers }) => [statusCode, headers["ratelimit"]])).toEqual([
    [200, BOTH],
    [429, BOTH_DENIED],
  ]);
  expect(responses[0]?.body).toBe("inner");
});

test("a limit of a route of Hono is beside that of the application", async () => {
  const client = layered();
  const application = new Hono();
  application.use(honoRateLimit({ client, ...OUTER }));
  application.get("/", honoRateLimit({ client, ...INNER }), (context) => context.text("hello"));
  const responses = [await application.request("/"), await application.request("/")];
  expect(responses.map(({ status, headers }) => [status, headers.get("ratelimit")])).toEqual([
    [200, BOTH],
    [429, BOTH_DENIED],
  ]);
  expect(responses[1]?.headers.get("retry-after")).toBe("5");
});

test("a limit of a route of Express is beside that of the application", async () => {
  const client = layered();
  const application = express();
  application.use(expressRateLimit({ client, ...OUTER }));
  application.get("/", expressRateLimit({ client, ...INNER }), (_, response) => void response.send("hello"));
  const server = application.listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  const { port } = server.address() as { readonly port: number };
  for (const [status, limits] of [
    [200, BOTH],
    [429, BOTH_DENIED],
  ]) {
    const response = await fetch(`http://127.0.0.1:${port}/`);
    expect([response.status, response.headers.get("ratelimit")]).toEqual([status, limits]);
  }
});

/** Decides when the test makes it. */
class Late extends FakeTidegate {
  decideNow = (): void => undefined;
  readonly #isTime = new Promise<void>((resolve) => (this.decideNow = resolve));

  override async limit(...call: Parameters<FakeTidegate["limit"]>): ReturnType<FakeTidegate["limit"]> {
    const decision = await super.limit(...call);
    await this.#isTime;
    return decision;
  }
}

const isReleased = (client: FakeTidegate): Promise<void> =>
  expect.poll(() => client.calls.map(({ entries }) => entries[0]?.["slot"])).toEqual([undefined, "slot-1"]);

// Headers could no longer be set: the rejection ended the process, and the slot stayed held.
test.each(["whole", "begun"])("a response (%s) before a late decision of Express keeps no slot", async (kind) => {
  const client = new Late(admitted({ ticket: "slot-1" }));
  const application = express();
  let served = 0;
  application.use((_, response, next) => {
    next();
    response.status(503).write("late");
    if (kind === "whole") {
      response.end();
    }
    response.once(kind === "whole" ? "close" : "finish", () => {
      client.decideNow();
    });
    if (kind === "begun") {
      client.decideNow();
      setImmediate(() => response.end());
    }
  });
  application.use(expressRateLimit({ client, keys: [constant("route", "all")] }));
  application.get("/", () => {
    served++;
  });
  const server = application.listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  const { port } = server.address() as { readonly port: number };
  const fetched = fetch(`http://127.0.0.1:${port}/`).then((response) => response.text());
  await fetched.catch(() => "the connection is closed");
  await isReleased(client);
  expect(served).toBe(0);
});

test("a response before a late decision of Fastify keeps no slot", async () => {
  const client = new Late(admitted({ ticket: "slot-1" }));
  const application = Fastify();
  application.addHook("onRequest", (_, reply, done) => {
    reply.raw.once("close", () => {
      client.decideNow();
    });
    setImmediate(() => void reply.code(503).send("late"));
    done();
  });
  await application.register(fastifyRateLimit, { client, keys: [constant("route", "all")] });
  application.get("/", () => "hello");
  const address = await application.listen({ port: 0, host: "127.0.0.1" });
  onTestFinished(() => application.close());
  expect((await fetch(address)).status).toBe(503);
  await isReleased(client);
});

/** The URL of a server that responds with `Ratelimit: "upstream";r=9`. */
async function upstream(): Promise<string> {
  const server = createHttp((_, response) => {
    response.setHeader("ratelimit", '"upstream";r=9').setHeader("set-cookie", ["a=1", "b=2"]).end("fetched");
  }).listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  return `http://127.0.0.1:${(server.address() as { readonly port: number }).port}/`;
}

// The headers of such a response are immutable: the client got 500, and the slot stayed held.
test("a handler of Hono that returns the response of fetch gets the headers and keeps no slot", async () => {
  const client = new FakeTidegate(admitted({ ticket: "slot-1", rule: "all", remaining: 7 }));
  const application = new Hono();
  application.use(honoRateLimit({ client, keys: [constant("route", "all")] }));
  const url = await upstream();
  application.get("/", () => fetch(url));
  const response = await application.request("/");
  expect([response.status, response.headers.get("ratelimit"), response.headers.getSetCookie()]).toEqual([
    200,
    '"all";r=7, "upstream";r=9',
    ["a=1", "b=2"],
  ]);
  expect(await response.text()).toBe("fetched");
  await isReleased(client);
});

test("a request of Hono is marked after its body was read, and keeps no slot", async () => {
  const marked = { ticket: "slot-1", requestHeaders: [["x-over", "yes"]] } as const;
  const client = new FakeTidegate(new Decision(true, "decided", [], marked));
  const application = new Hono();
  application.use(async (context, next) => {
    await context.req.json();
    await next();
  });
  application.use(honoRateLimit({ client, keys: [constant("route", "all")] }));
  application.post("/", async ({ req }) => Response.json([req.header("x-over"), await req.json(), await req.text()]));
  const response = await application.request("/", { method: "POST", body: '{"a":1}' });
  expect(await response.json()).toEqual(["yes", { a: 1 }, '{"a":1}']);
  await isReleased(client);
});

test("a request of Hono whose response cannot have the headers keeps no slot", async () => {
  const malformed = { ticket: "slot-1", responseHeaders: [["x-name", "two\nlines"]] } as const;
  const client = new FakeTidegate(new Decision(true, "decided", [], malformed));
  const application = new Hono();
  application.use(honoRateLimit({ client, keys: [constant("route", "all")] }));
  application.get("/", (context) => context.text("hello"));
  application.onError((_, context) => context.text("failed", 500));
  expect((await application.request("/")).status).toBe(500);
  await isReleased(client);
});

test("middleware of Next.js adds headers to a response whose headers are immutable", async () => {
  const client = new FakeTidegate(admitted({ rule: "all", remaining: 7 }));
  const fetched = await fetch(await upstream());
  const limit = nextRateLimit({ client, next: () => fetched, keys: [constant("route", "all")] });
  const response = await limit(new Request("http://app.example/"));
  expect(response.headers.get("ratelimit")).toBe('"all";r=7, "upstream";r=9');
});

test("middleware of Next.js keeps no slot, and logs that", async () => {
  const client = new FakeTidegate(admitted({ ticket: "slot-1" }));
  const lines: string[] = [];
  client.warnOnce = (message) => void lines.push(message);
  const limit = nextRateLimit({ client, next: () => new Response("page"), keys: [constant("route", "all")] });
  expect((await limit(new Request("http://app.example/"))).status).toBe(200);
  expect(client.calls.map(({ entries }) => entries[0])).toEqual([{ route: "all" }, { slot: "slot-1" }]);
  expect(lines).toHaveLength(1);
});

test("an application makes the bodies of its denials, for each request", async () => {
  const application = Fastify();
  await application.register(fastifyRateLimit, {
    client: new FakeTidegate(denied({ retryAfterMs: 5_000 })),
    keys: [constant("route", "all")],
    deniedBody: ({ retryAfterMs }, { path }) => ({
      contentType: "application/problem+json",
      body: JSON.stringify({ title: "Too many requests", instance: path, retryAfterMs }),
    }),
  });
  application.get("/", () => "hello");
  const { statusCode, headers, body } = await application.inject("/");
  expect([statusCode, headers["content-type"], headers["retry-after"]]).toEqual([
    429,
    "application/problem+json; charset=utf-8",
    "5",
  ]);
  expect(JSON.parse(body)).toEqual({ title: "Too many requests", instance: "/", retryAfterMs: 5_000 });
});

test("requests that do not count give their hits back at their end", async () => {
  const client = new FakeTidegate();
  const application = Fastify();
  await application.register(fastifyRateLimit, {
    client,
    keys: [constant("route", "login")],
    counts: (status) => status === 401,
  });
  application.get("/:status", ({ params }, reply) => reply.code(Number((params as { status: string }).status)).send());
  for (const status of ["401", "200", "302", "401"]) {
    await application.inject(`/${status}`);
  }
  expect(client.calls.map(({ operation }) => operation)).toEqual([
    "limit",
    "limit",
    "giveBack",
    "limit",
    "giveBack",
    "limit",
  ]);
});

test("a custom key may be a number, and nothing else than a number or a string", async () => {
  const client = new FakeTidegate();
  const values: unknown[] = [7, 8n, null, { a: 1 }];
  const application = Fastify();
  await application.register(fastifyRateLimit, {
    client,
    keys: [custom("api_key", () => values.shift() as number, { missing: "reject" })],
  });
  application.get("/", () => "hello");
  const statuses = [];
  for (let call = 0; call < 4; call++) {
    statuses.push((await application.inject("/")).statusCode);
  }
  expect(statuses).toEqual([200, 200, 400, 500]);
  expect(valuesOf(client)).toEqual(["7", "8"]);
});

test.each([
  ["reject", 400, []],
  ["allow", 200, []],
  ["shared", 200, [""]],
] as const)("a custom key of only spaces is missing: %s", async (missing, status, values) => {
  const client = new FakeTidegate();
  const application = Fastify();
  await application.register(fastifyRateLimit, { client, keys: [custom("api_key", () => " \t ", { missing })] });
  application.get("/", () => "hello");
  expect((await application.inject("/")).statusCode).toBe(status);
  expect(valuesOf(client)).toEqual(values);
});

test("a key that the server refuses is a bad request", async () => {
  const client = new FakeTidegate(() => {
    throw new RequestError("INVALID_ARGUMENT", "too long");
  });
  expect(
    (await (await fastifyOf(client, "reject")).inject({ url: "/", headers: { "x-api-key": "a" } })).statusCode,
  ).toBe(400);
});
