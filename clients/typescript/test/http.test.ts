import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import { dirname, join, resolve } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { constant, header, Tidegate, type TidegateOptions } from "../src/http.js";
import { rateLimit } from "../src/next.js";
import { serve, unusedPort } from "./servers.js";

const RULES = `
domain: d
descriptors:
  - {key: user, rate_limit: {name: two, unit: day, requests_per_unit: 2}}
  - {key: marked, rate_limit: {unit: day, requests_per_unit: 1}, on_deny: {mark: {header: x-over, value: "yes"}}}
`;

async function served(options: TidegateOptions = {}): Promise<Tidegate> {
  const { url } = await serve(RULES, ["--http-listen", "127.0.0.1:0"]);
  return new Tidegate(url, { domain: "d", timeoutMs: 5_000, ...options });
}

/** A client of an HTTP server that is not Tidegate. */
async function clientOf(listener: RequestListener, options: TidegateOptions = {}): Promise<Tidegate> {
  const server = createServer(listener).listen(0, "127.0.0.1");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return new Tidegate(`http://127.0.0.1:${port}`, { domain: "d", timeoutMs: 5_000, ...options });
}

test("a denial over HTTP is a decision, and is kept", async () => {
  const client = await served();
  expect((await client.limit({ user: "a" }, { cost: 2 })).remaining).toBe(0);
  const denial = await client.limit({ user: "a" });
  expect([denial.allowed, denial.reason, denial.rule]).toEqual([false, "decided", "two"]);
  expect(denial.retryAfterNs).toBeGreaterThan(0n);
  expect((await client.limit({ user: "a" })).reason).toBe("denied_locally");
});

test("failures over HTTP have the codes of gRPC", async () => {
  const respond =
    (status: number, body: string): RequestListener =>
    (_, response) => {
      response.writeHead(status).end(body);
    };
  const error = async (client: Tidegate): Promise<string | undefined> => (await client.limit({ user: "a" })).error;
  expect(await error(await clientOf(respond(503, "starting")))).toBe("UNAVAILABLE");
  expect(await error(await clientOf(respond(200, "garbage")))).toBe("INTERNAL");
  expect(await error(await clientOf(respond(200, "{}")))).toBe("INTERNAL");
  expect(await error(await clientOf((request) => request.socket.destroy()))).toBe("UNAVAILABLE");
  const refused = await new Tidegate(`http://127.0.0.1:${await unusedPort()}`, { domain: "d" }).limit({ user: "a" });
  expect([refused.error, refused.errorMessage]).toEqual(["UNAVAILABLE", expect.stringContaining("ECONNREFUSED")]);
  const blackhole = await clientOf(() => undefined, { timeoutMs: 30, connectTimeoutMs: 0, onFailure: "closed" });
  const closed = await blackhole.limit({ user: "a" });
  expect([closed.reason, closed.error]).toEqual(["failed_closed", "DEADLINE_EXCEEDED"]);
  // A proxy, or another port: no decision.
  expect(await error(await clientOf(respond(404, "")))).toBe("UNIMPLEMENTED");
  expect(await error(await clientOf(respond(401, "")))).toBe("UNAUTHENTICATED");
  expect(await error(await clientOf(respond(403, "")))).toBe("PERMISSION_DENIED");
  await expect((await served()).limit({ user: "x".repeat(2_000_000) })).rejects.toThrow("OUT_OF_RANGE");
});

// An answer of nginx, of Envoy, and of servers in Go. All requests were answered with 400, although the policy was to fail open.
test.each([
  [400, "text/html", "<html><head><title>400 Bad Request</title></head></html>\r\n"],
  [400, "text/plain", "Bad Request"],
  [400, "text/plain; charset=utf-8", "400 Bad Request"],
  [400, "text/plain; charset=utf-8", "Bad Request\n"],
  [400, "text/plain; charset=utf-8", ""],
])("the policy decides if a proxy responds with %i, %s, %j", async (status, type, body) => {
  const client = await clientOf((_, response) => {
    response.writeHead(status, { "content-type": type }).end(body);
  });
  const decision = await client.limit({ user: "a" });
  expect([decision.reason, decision.error]).toEqual(["failed_open", "UNAVAILABLE"]);
  expect(decision.errorMessage).toMatch(new RegExp(`^http://127.0.0.1:\\d+/json: HTTP status ${status}`));
});

test("a request that is refused over HTTP for its content or length rejects, whatever the policy", async () => {
  const client = await served();
  const entries = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, key) => [`k${key}`, "a"]));
  await expect(client.limit(entries(1_000))).rejects.toThrow("INVALID_ARGUMENT: descriptors[0].entries");
  await expect(client.limit({ user: "x".repeat(2_000_000) })).rejects.toThrow("OUT_OF_RANGE: the body is longer");
  const proxy = await clientOf((request, response) => {
    request.resume().once("end", () => response.writeHead(413, { "content-type": "text/html" }).end("a page"));
  });
  await expect(proxy.limit({ user: "a" })).rejects.toThrow("OUT_OF_RANGE");
});

test.each([Infinity, 3e9, 4_999.5])("a timeout of %d ms is accepted over HTTP", async (timeoutMs) => {
  expect((await (await served({ timeoutMs })).limit({ user: "a" })).reason).toBe("decided");
});

test.each([
  ["", "/json"],
  ["/", "/json"],
  ["/json", "/json"],
  ["/tidegate", "/tidegate/json"],
  ["/tidegate/", "/tidegate/json"],
])("calls of a client for the path %j are sent to %j", async (path, expected) => {
  const seen: unknown[] = [];
  const options: TidegateOptions = {
    domain: "d",
    fetch: (url) => {
      seen.push(url);
      return Promise.resolve(Response.json({ overallCode: "OK" }));
    },
  };
  await new Tidegate(`http://gateway.example${path}`, options).limit({ user: "a" });
  expect(String(seen[0])).toBe(`http://gateway.example${expected}`);
});

test("an aborted call over HTTP rejects with the reason and is no failure", async () => {
  const seen: string[] = [];
  const client = await clientOf(() => undefined, { onDecision: ({ reason }) => seen.push(reason) });
  const controller = new AbortController();
  setTimeout(() => {
    controller.abort(new Error("gone"));
  }, 50);
  await expect(client.limit({ user: "a" }, { signal: controller.signal })).rejects.toThrow("gone");
  expect(seen).toEqual([]);
});

test("headers and metadata are sent over HTTP", async () => {
  const client = await clientOf(
    ({ headers }, response) => {
      const sent = [headers["authorization"], headers["traceparent"], headers["tidegate-precision"]];
      response.end(
        JSON.stringify({ overallCode: "OK", statuses: [{ currentLimit: { name: sent.join() } }], unknownField: 1 }),
      );
    },
    { headers: { authorization: "Bearer t" }, metadata: () => ({ traceparent: "00-1" }) },
  );
  expect((await client.limit({ user: "a" })).rule).toBe("Bearer t,00-1,exact");
});

test("the Next.js middleware passes requests on, marks them, and refuses them", async () => {
  const client = await served();
  const passedOn: Headers[] = [];
  const next = ({ request }: { request: { headers: Headers } }): Response => {
    passedOn.push(request.headers);
    return new Response("page");
  };
  const limit = (name: string): ((request: Request) => Promise<Response>) =>
    rateLimit({ client, next, keys: [header("x-user", { entry: name, missing: "reject" })] });
  const request = (headers: Record<string, string>): Request => new Request("http://app.example/path", { headers });
  const admitted = await limit("user")(request({ "x-user": "a" }));
  expect([admitted.status, admitted.headers.get("ratelimit-policy")]).toEqual([200, '"two";q=2;w=86400']);
  await limit("user")(request({ "x-user": "a" }));
  const denied = await limit("user")(request({ "x-user": "a" }));
  expect(denied.status).toBe(429);
  expect(Number(denied.headers.get("retry-after"))).toBeGreaterThan(0);
  expect((await limit("user")(request({}))).status).toBe(400);
  expect(passedOn.length).toBe(2);
  await limit("marked")(request({ "x-user": "a" }));
  await limit("marked")(request({ "x-user": "a" }));
  expect(passedOn.map((headers) => headers.get("x-over"))).toEqual([null, null, null, "yes"]);
  const skipping = rateLimit({ client, next, keys: [constant("user", "a")], skip: ({ path }) => path === "/path" });
  expect(await (await skipping(request({}))).text()).toBe("page");
});

test("the modules for edge runtimes import nothing of Node.js and no gRPC", () => {
  const imported = new Set<string>();
  const visit = (path: string): void => {
    for (const [, name = ""] of readFileSync(path, "utf8").matchAll(/ from "([^"]+)"/g)) {
      const found = name.startsWith(".") ? join(dirname(path), name.replace(/\.js$/, ".ts")) : name;
      if (!imported.has(found)) {
        imported.add(found);
        if (found !== name) {
          visit(found);
        }
      }
    }
  };
  for (const entry of ["http.ts", "next.ts"]) {
    visit(resolve(import.meta.dirname, "../src", entry));
  }
  const packages = [...imported].filter((name) => !name.startsWith("/"));
  expect(packages.sort()).toEqual(["@bufbuild/protobuf", "@bufbuild/protobuf/codegenv2", "@bufbuild/protobuf/wkt"]);
});
