import { execFileSync, spawn, spawnSync } from "node:child_process";
import { cpSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createConnection } from "node:net";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { BINARY, curl, folder, kill, serve, start, unusedPort } from "./servers.js";

const PACKAGE = resolve(import.meta.dirname, "..");
const RULES =
  "{domain: demo, descriptors: [{key: api_key, rate_limit: {name: demo, unit: hour, requests_per_unit: 5, algorithm: token_bucket}}]}";
/** Whether a missing tool or registry fails the tests, instead of skipping some. */
const isRequired = (process.env["TIDEGATE_REQUIRE"] ?? "").split(",").includes("node");

/** An interpreter with grpcio-tools, if there is one. */
const python = ["python3", join(PACKAGE, "../python/.venv/bin/python")].find((interpreter) => {
  return spawnSync(interpreter, ["-m", "grpc_tools.protoc", "--version"]).status === 0;
});

function run(command: string, args: readonly string[], cwd: string): string {
  return execFileSync(command, args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
}

beforeAll(() => {
  run("node", ["scripts/build.mjs"], PACKAGE);
}, 120_000);

async function isListening(port: number): Promise<boolean> {
  return new Promise((done) => {
    const socket = createConnection(port, "127.0.0.1");
    socket.once("connect", () => {
      socket.destroy();
      done(true);
    });
    socket.once("error", () => {
      done(false);
    });
  });
}

describe.each(["express", "fastify", "hono"])("the sample of %s", (sample) => {
  // Samples have the timeout of 50 ms, which a machine under load exceeds: such a run is repeated.
  test("five requests pass and the sixth is denied", { retry: 2, timeout: 60_000 }, async () => {
    const { address } = await serve(RULES);
    const port = await unusedPort();
    const child = spawn(process.execPath, ["--import", "tsx", `samples/${sample}.ts`, String(port)], {
      cwd: PACKAGE,
      env: { ...process.env, TIDEGATE_ADDR: address, TSX_TSCONFIG_PATH: join(PACKAGE, "samples/tsconfig.json") },
      stdio: "ignore",
    });
    onTestFinished(() => kill(child));
    for (let wait = 0; wait < 400 && !(await isListening(port)); wait++) {
      await sleep(50);
    }
    const get = (headers: Record<string, string>): Promise<Response> => curl(`http://127.0.0.1:${port}/`, headers);
    for (let remaining = 4; remaining >= 0; remaining--) {
      const response = await get({ "x-api-key": "alice" });
      expect(response.status).toBe(200);
      expect(response.headers.get("ratelimit")).toMatch(`"demo";r=${remaining}`);
      expect(response.headers.get("retry-after")).toBeNull();
    }
    for (let denial = 0; denial < 2; denial++) {
      const response = await get({ "x-api-key": "alice" });
      expect(response.status).toBe(429);
      expect(response.headers.get("ratelimit-policy")).toBe('"demo";q=5;w=3600');
      expect(Number(response.headers.get("retry-after"))).toBeGreaterThanOrEqual(715);
      expect(Number(response.headers.get("retry-after"))).toBeLessThanOrEqual(720);
    }
    expect((await get({ "x-api-key": "bob" })).status).toBe(200);
    expect((await get({})).status).toBe(400);
  });
});

test("the README installs the file that `npm pack` makes of this version", () => {
  const read = (file: string): string => readFileSync(join(PACKAGE, file), "utf8");
  const { name, version } = JSON.parse(read("package.json")) as { name: string; version: string };
  const packed = `${name.replace("@", "").replace("/", "-")}-${version}.tgz`;
  expect(read("README.md").match(/[\w.-]+\.tgz/g)).toEqual([packed]);
});

test("the lock file has every optional package of its packages, those of other platforms included", () => {
  // A registry that lacks packages of a platform gives a lock file with which `npm ci` fails elsewhere.
  const text = readFileSync(join(PACKAGE, "package-lock.json"), "utf8");
  const { packages } = JSON.parse(text) as {
    packages: Record<string, { optionalDependencies?: Record<string, string>; resolved?: string }>;
  };
  const locked = new Set(Object.keys(packages).map((path) => path.split("node_modules/").at(-1)));
  for (const [path, { optionalDependencies, resolved }] of Object.entries(packages)) {
    expect(
      Object.keys(optionalDependencies ?? {}).filter((name) => !locked.has(name)),
      path,
    ).toEqual([]);
    expect(resolved ?? "https://registry.npmjs.org/", path).toMatch(/^https:\/\/registry\.npmjs\.org\//);
  }
});

test.skipIf(!isRequired && python === undefined)(
  "the generated code is that of the protos",
  () => {
    const output = folder();
    execFileSync("node", ["scripts/generate.mjs", output], {
      cwd: PACKAGE,
      env: { ...process.env, PYTHON: python ?? "python3" },
    });
    const generated = readFileSync(join(output, "rls_pb.ts"), "utf8");
    expect(readFileSync(join(PACKAGE, "src/proto/rls_pb.ts"), "utf8")).toBe(generated);
  },
  60_000,
);

test.skipIf(!isRequired)(
  "the sample of Next.js with the packed package: five requests pass and the sixth is denied",
  // The sample has the timeout of 50 ms too.
  { retry: 2, timeout: 240_000 },
  async () => {
    const { url } = await serve(RULES, ["--http-listen", "127.0.0.1:0"]);
    const project = folder();
    cpSync(join(PACKAGE, "samples/nextjs"), project, { recursive: true });
    run("npm", ["pack", "--pack-destination", project], PACKAGE);
    const packed = readdirSync(project).filter((name) => name.endsWith(".tgz"));
    run("npm", ["install", "--no-audit", "--no-fund", ...packed.map((name) => join(project, name))], project);
    const port = await unusedPort();
    const child = spawn(
      process.execPath,
      ["node_modules/next/dist/bin/next", "dev", "-p", String(port), "-H", "127.0.0.1"],
      // In its own group, so that the processes it starts end with it.
      {
        cwd: project,
        env: { ...process.env, TIDEGATE_URL: url, NEXT_TELEMETRY_DISABLED: "1" },
        stdio: "ignore",
        detached: true,
      },
    );
    onTestFinished(async () => {
      process.kill(-(child.pid ?? 0), "SIGKILL");
      await kill(child);
    });
    for (let wait = 0; wait < 600 && !(await isListening(port)); wait++) {
      await sleep(50);
    }
    const get = (headers: Record<string, string>): Promise<Response> => curl(`http://127.0.0.1:${port}/`, headers);
    // The first requests compile the route, and may be admitted without an answer in time.
    for (let wait = 0; wait < 100 && !(await get({ "x-api-key": "first" })).headers.has("ratelimit"); wait++) {
      await sleep(50);
    }
    for (let remaining = 4; remaining >= 0; remaining--) {
      const response = await get({ "x-api-key": "alice" });
      expect([response.status, await response.text()]).toEqual([200, expect.stringContaining("<p>hello</p>")]);
      expect(response.headers.get("ratelimit")).toMatch(`"demo";r=${remaining}`);
    }
    const denied = await get({ "x-api-key": "alice" });
    expect(denied.status).toBe(429);
    expect(denied.headers.get("ratelimit-policy")).toBe('"demo";q=5;w=3600');
    expect(Number(denied.headers.get("retry-after"))).toBeGreaterThan(600);
    expect((await get({})).status).toBe(400);
  },
);

test.skipIf(!isRequired)(
  "the README works with the packed package in an empty project, as a module and as CommonJS",
  async () => {
    const { address } = await start(BINARY, ["serve", "--listen", "127.0.0.1:0", "--log-format", "json"]);
    const project = folder();
    run("npm", ["pack", "--pack-destination", project], PACKAGE);
    const packed = readdirSync(project).filter((name) => name.endsWith(".tgz"));
    run("npm", ["init", "-y"], project);
    run("npm", ["install", ...packed.map((name) => join(project, name))], project);
    const lines = /```ts\n(.*?)```/s.exec(readFileSync(join(PACKAGE, "README.md"), "utf8"))?.[1] ?? "";
    const program = lines.replace("127.0.0.1:8081", address) + "tidegate.close();\n";
    writeFileSync(join(project, "first.mjs"), program);
    const printed = run("node", ["first.mjs"], project);
    expect(printed.trim()).toBe("true 4 undefined");
    const common = program.replace(/import (.*) from (.*);/, "const $1 = require($2);");
    writeFileSync(join(project, "second.cjs"), `(async () => {\n${common}})();\n`);
    const printedByCommon = run("node", ["second.cjs"], project);
    // The demo rule admits 5 a minute: on a slow machine the first hit may fit again.
    expect(printedByCommon.trim()).toMatch(/^true [34] undefined$/);
    const transcript = process.env["TIDEGATE_README_TRANSCRIPT"];
    if (transcript !== undefined) {
      writeFileSync(transcript, `${lines}\nOutput as a module, then as CommonJS:\n${printed}${printedByCommon}`);
    }
  },
  120_000,
);
