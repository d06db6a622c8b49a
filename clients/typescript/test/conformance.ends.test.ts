import { getRequestListener } from "@hono/node-server";
import express from "express";
import Fastify from "fastify";
import { Hono } from "hono";
import { timeout } from "hono/timeout";
import { once } from "node:events";
import {
  createServer,
  request as send,
  type ClientRequest,
  type IncomingMessage,
  type RequestListener,
} from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { rateLimit as expressRateLimit } from "../src/express.js";
import { rateLimit as fastifyRateLimit } from "../src/fastify.js";
import { rateLimit as honoRateLimit } from "../src/hono.js";
import { constant, Tidegate } from "../src/index.js";
import { cases, caseRules, serve } from "./servers.js";

interface Case {
  readonly name: string;
  readonly method: string;
  readonly path: string;
  readonly client: "reads" | "leaves" | "aborts";
  readonly status: readonly number[];
}

const KEYS = [constant("route", "all")];
const LARGE = "x".repeat(8 << 20);

/** The gate that the handlers of an application wait for. */
class Gate {
  readonly opened: Promise<void>;
  readonly reached: Promise<void>;
  open: () => void = () => undefined;
  #reach: () => void = () => undefined;

  constructor() {
    this.opened = new Promise((done) => (this.open = done));
    this.reached = new Promise((done) => (this.#reach = done));
  }

  pass(): Promise<void> {
    this.#reach();
    return this.opened;
  }
}

const FRAMEWORKS: Readonly<Record<string, (client: Tidegate, gate: Gate) => Promise<RequestListener>>> = {
  express: (client, gate) => {
    const application = express();
    application.use(expressRateLimit({ client, keys: KEYS }));
    application.get("/body", (_, response) => void response.send("body"));
    application.get("/none", (_, response) => void response.status(204).end());
    application.get("/same", (_, response) => void response.status(304).end());
    application.get("/error", (_, response) => void response.status(500).send("an error"));
    application.get("/large", (_, response) => void response.send(LARGE));
    application.get("/raise", () => {
      throw new Error("of the handler");
    });
    application.get("/slow", async (_, response) => {
      await gate.pass();
      response.send("slow");
    });
    application.get("/late", (_, response) => {
      response.setTimeout(20, () => void response.status(503).end());
    });
    application.use(((error, _request, response, next) => {
      if (response.headersSent) {
        next(error);
      } else {
        response.status(500).send("an exception");
      }
    }) as express.ErrorRequestHandler);
    return Promise.resolve(application);
  },
  fastify: async (client, gate) => {
    const application = Fastify();
    await application.register(fastifyRateLimit, { client, keys: KEYS });
    application.get("/body", () => "body");
    application.get("/none", (_, reply) => reply.code(204).send());
    application.get("/same", (_, reply) => reply.code(304).send());
    application.get("/error", (_, reply) => reply.code(500).send("an error"));
    application.get("/large", () => LARGE);
    application.get("/raise", () => {
      throw new Error("of the handler");
    });
    application.get("/slow", async () => {
      await gate.pass();
      return "slow";
    });
    application.get("/late", (_, reply) => {
      reply.raw.setTimeout(20, () => void reply.code(503).send());
    });
    await application.ready();
    return (request, response) => {
      application.routing(request, response);
    };
  },
  "hono on Node.js": (client, gate) => Promise.resolve(getRequestListener(honoOf(client, gate).fetch)),
  "hono elsewhere": (client, gate) => {
    const application = honoOf(client, gate);
    // Without the platform's request and response.
    return Promise.resolve(getRequestListener((request) => application.fetch(request)));
  },
};

function honoOf(client: Tidegate, gate: Gate): Hono {
  const application = new Hono();
  application.use(honoRateLimit({ client, keys: KEYS }));
  application.get("/body", (context) => context.text("body"));
  application.get("/none", (context) => context.body(null, 204));
  application.get("/same", (context) => context.body(null, 304));
  application.get("/error", (context) => context.text("an error", 500));
  application.get("/large", (context) => context.text(LARGE));
  application.get("/raise", () => {
    throw new Error("of the handler");
  });
  application.get("/slow", async (context) => {
    await gate.pass();
    return context.text("slow");
  });
  application.get("/late", timeout(20), () => new Promise<Response>(() => undefined));
  application.onError((error, context) =>
    "getResponse" in error ? (error as { getResponse(): Response }).getResponse() : context.text("an exception", 500),
  );
  return application;
}

function begin(port: number, method: string, path: string, headers: Record<string, string> = {}): ClientRequest {
  return send({ host: "127.0.0.1", port, agent: false, method, path, headers })
    .on("error", () => undefined)
    .end();
}

async function finish(request: ClientRequest): Promise<number> {
  const [response] = (await once(request, "response")) as [IncomingMessage];
  response.resume();
  await once(response, "end");
  return response.statusCode ?? 0;
}

const COMBINED = Object.keys(FRAMEWORKS).flatMap((framework) =>
  cases<Case>("ends").map((one) => ({ ...one, framework })),
);

test.each(COMBINED)("middleware ends: $name with $framework", async (given) => {
  const client = new Tidegate((await serve(caseRules("ends"))).address, { domain: "d", timeoutMs: 5_000 });
  onTestFinished(() => {
    client.close();
  });
  const gate = new Gate();
  const server = createServer(await FRAMEWORKS[given.framework]?.(client, gate)).listen(0, "127.0.0.1");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await once(server, "listening");
  const { port } = server.address() as { readonly port: number };
  const left = async (): Promise<number | undefined> => (await client.peek({ route: "all" })).remaining;

  // A header that claims an upgrade ends no slot.
  const claimed = given.client === "aborts" ? { connection: "upgrade", upgrade: "websocket" } : {};
  const request = begin(port, given.method, given.path, claimed);
  if (given.client === "aborts") {
    await gate.reached;
    request.destroy();
    while ((await connections(server)) > 0) {
      await sleep(1);
    }
    expect(await left(), "while the handler runs").toBe(0);
    expect(await finish(begin(port, "GET", "/body"))).toBe(429);
    gate.open();
  } else if (given.client === "leaves") {
    const [response] = (await once(request, "response")) as [IncomingMessage];
    expect(given.status).toContain(response.statusCode);
    response.destroy();
  } else {
    expect(given.status).toContain(await finish(request));
  }
  const deadline = Date.now() + 5_000;
  while ((await left()) !== 1) {
    expect(Date.now(), "the slot stays held").toBeLessThan(deadline);
    await sleep(5);
  }
  expect(await finish(begin(port, "GET", "/body"))).toBe(200);
});

function connections(server: ReturnType<typeof createServer>): Promise<number> {
  return new Promise((done, fail) => {
    server.getConnections((error, count) => {
      if (error === null) {
        done(count);
      } else {
        fail(error);
      }
    });
  });
}
