import { getRequestListener } from "@hono/node-server";
import express from "express";
import Fastify from "fastify";
import { Hono } from "hono";
import { once } from "node:events";
import { createServer, request as send, type IncomingMessage, type RequestListener } from "node:http";
import { expect, onTestFinished, test } from "vitest";
import { rateLimit as expressRateLimit } from "../src/express.js";
import { rateLimit as fastifyRateLimit } from "../src/fastify.js";
import { rateLimit as honoRateLimit } from "../src/hono.js";
import { clientAddress, constant, header, Tidegate, type Key, type Missing, type OnFailure } from "../src/index.js";
import { rateLimit as nextRateLimit } from "../src/next.js";
import { cases, misbehaving, serve } from "./servers.js";

type CaseKey =
  | { readonly header: string; readonly entry: string; readonly missing: Missing }
  | { readonly client_address: "x-forwarded-for" | "forwarded"; readonly entry: string; readonly missing: Missing }
  | { readonly constant: string; readonly entry: string };

interface Case {
  readonly name: string;
  readonly rules: string;
  readonly fault: string | null;
  readonly on_failure: OnFailure;
  readonly descriptors: readonly (readonly CaseKey[])[];
  readonly requests: readonly {
    readonly headers: readonly (readonly [string, string])[];
    readonly times: number;
    readonly expect: {
      readonly status: number;
      readonly headers?: Readonly<Record<string, string>>;
      readonly headers_present?: readonly string[];
      readonly headers_absent?: readonly string[];
      readonly body?: string;
      readonly seen?: readonly string[];
    };
  }[];
}

function keyOf(key: CaseKey): Key {
  if ("constant" in key) {
    return constant(key.entry, key.constant);
  }
  return "header" in key
    ? header(key.header, key)
    : clientAddress({ ...key, trustedProxies: 1, forwarded: key.client_address });
}

const MARK = "x-rate-limited";

interface Options {
  readonly client: Tidegate;
  readonly keys: readonly (readonly Key[])[];
}

/** A request of the Fetch API, with the headers as a platform passes them on. */
function fetched(incoming: IncomingMessage): Request {
  const headers = new Headers();
  for (let index = 0; index < incoming.rawHeaders.length; index += 2) {
    headers.append(incoming.rawHeaders[index] ?? "", incoming.rawHeaders[index + 1] ?? "");
  }
  return new Request(`http://application.example${incoming.url ?? "/"}`, { headers });
}

/** Serves a function of the Fetch API. */
function listenerOf(handle: (request: Request) => Response | Promise<Response>): RequestListener {
  return (incoming, outgoing) => {
    void (async () => {
      const response = await handle(fetched(incoming));
      outgoing.writeHead(response.status, Object.fromEntries(response.headers));
      outgoing.end(await response.text());
    })();
  };
}

function honoApplication(options: Options): Hono {
  const application = new Hono();
  application.use(honoRateLimit(options));
  application.get("/", (context) => {
    // Strict types know the variable.
    const { reason } = context.get("rateLimit") ?? { reason: "none" };
    return context.text(context.req.header(MARK) ?? "", 200, { "x-reason": reason });
  });
  return application;
}

/** An application for each middleware: it responds with the values of the mark that it reads. */
const FRAMEWORKS: Readonly<Record<string, (options: Options) => Promise<RequestListener>>> = {
  express: (options) => {
    const application = express();
    application.use(expressRateLimit(options));
    application.get("/", (request, response) => {
      const read = [request.get(MARK) ?? "", (request.headersDistinct[MARK] ?? []).join(",")];
      expect(read[1]).toBe(read[0]);
      response.send(read[0]);
    });
    return Promise.resolve(application);
  },
  fastify: async (options) => {
    const application = Fastify();
    await application.register(fastifyRateLimit, options);
    application.get("/", (request) => String(request.headers[MARK] ?? ""));
    await application.ready();
    return (request, response) => {
      application.routing(request, response);
    };
  },
  "hono on Node.js": (options) => Promise.resolve(getRequestListener(honoApplication(options).fetch)),
  "hono elsewhere": (options) => Promise.resolve(listenerOf((request) => honoApplication(options).fetch(request))),
  next: (options) => {
    const next = ({ request }: { readonly request: { readonly headers: Headers } }): Response =>
      new Response(request.headers.get(MARK) ?? "");
    return Promise.resolve(listenerOf(nextRateLimit({ ...options, next })));
  },
};

interface Received {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

function get(port: number, headers: Case["requests"][number]["headers"]): Promise<Received> {
  return new Promise((done, fail) => {
    const raw = [["Host", "127.0.0.1"], ["Connection", "close"], ...headers].flat();
    const options = { host: "127.0.0.1", port, agent: false, headers: raw as unknown as Record<string, string> };
    send(options, (response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (part: string) => (body += part));
      response.on("end", () => {
        done({ status: response.statusCode ?? 0, headers: response.headers, body });
      });
    })
      .on("error", fail)
      .end();
  });
}

async function serverOf(given: Case): Promise<string> {
  return given.fault === null ? (await serve(given.rules)).address : misbehaving(given.fault);
}

const COMBINED = Object.keys(FRAMEWORKS).flatMap((framework) => {
  // Next.js does not report the end of a request.
  const given = cases<Case>("middleware").filter(({ name }) => framework !== "next" || !name.startsWith("slots_"));
  return given.map((one) => ({ ...one, framework }));
});

test.each(COMBINED)("middleware: $name with $framework", async (given) => {
  const client = new Tidegate(await serverOf(given), {
    domain: "d",
    timeoutMs: 5_000,
    onFailure: given.on_failure,
    logger: { info: () => undefined, warn: () => undefined },
  });
  onTestFinished(() => {
    client.close();
  });
  const keys = given.descriptors.map((descriptor) => descriptor.map(keyOf));
  const listener = await FRAMEWORKS[given.framework]?.({ client, keys });
  const server = createServer(listener).listen(0, "127.0.0.1");
  onTestFinished(() => {
    server.close();
  });
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  for (const [number, request] of given.requests.entries()) {
    for (let time = 0; time < request.times; time++) {
      const { status, headers, body } = await get(port, request.headers);
      const where = `request ${number}: ${status} ${JSON.stringify(headers)} ${body}`;
      const expected = request.expect;
      expect(status, where).toBe(expected.status);
      for (const name of expected.headers_present ?? []) {
        expect(headers[name], where).toBeDefined();
      }
      for (const name of expected.headers_absent ?? []) {
        expect(headers[name], where).toBeUndefined();
      }
      for (const [name, value] of Object.entries(expected.headers ?? {})) {
        // Some frameworks add a charset.
        expect([value, `${value}; charset=utf-8`], where).toContain(headers[name]);
      }
      expect(body, where).toBe(expected.body ?? body);
      expect(body, where).toBe(expected.seen?.join(",") ?? body);
    }
  }
});
