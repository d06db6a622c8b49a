import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { BytesValueSchema, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { Client, credentials } from "@grpc/grpc-js";
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { onTestFinished } from "vitest";

const REPOSITORY = resolve(import.meta.dirname, "../../..");
export const BINARY = process.env["TIDEGATE_BIN"] ?? join(REPOSITORY, "target/debug/tidegate");

/** A `tidegate` process that listens on a free port of loopback; it ends with the test. */
export interface Server {
  readonly address: string;
  /** URL of the HTTP port; empty without `--http-listen`. */
  readonly url: string;
  kill(): Promise<void>;
  /** Suspends and continues the process. */
  signal(signal: "SIGSTOP" | "SIGCONT"): void;
}

/** Starts a program that logs its address as JSON, once it serves. */
export async function start(program: string, args: readonly string[]): Promise<Server> {
  const child = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
  onTestFinished(() => kill(child));
  const log: string[] = [];
  let address = "";
  let url = "";
  for await (const line of createInterface(child.stderr)) {
    log.push(line);
    const event = line.startsWith("{") ? (JSON.parse(line) as { message?: string; address?: string }) : {};
    if (event.message === "listening") {
      address = event.address ?? "";
    } else if (event.message === "HTTP port listening") {
      url = `http://${event.address ?? ""}`;
    } else if (event.message === "serving") {
      child.stderr.resume();
      return { address, url, kill: () => kill(child), signal: (signal) => void child.kill(signal) };
    }
  }
  throw new Error(`the server does not serve: ${log.join("\n")}`);
}

export async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) {
    const ended = new Promise((done) => child.once("exit", done));
    child.kill("SIGKILL");
    await ended;
  }
}

/** Makes an empty folder, which is removed with the test. */
export function folder(): string {
  const made = mkdtempSync(join(tmpdir(), "tidegate-"));
  onTestFinished(() => {
    rmSync(made, { recursive: true, force: true });
  });
  return made;
}

/** Starts `tidegate serve` with rules. */
export function serve(rules: string, args: readonly string[] = [], listen = "127.0.0.1:0"): Promise<Server> {
  const path = join(folder(), "rules.yaml");
  writeFileSync(path, rules);
  return start(BINARY, ["serve", "--rules", path, "--listen", listen, "--log-format", "json", ...args]);
}

/** The address of a server with a fault. */
export async function misbehaving(fault: string): Promise<string> {
  if (fault === "refused") {
    return `127.0.0.1:${await unusedPort()}`;
  }
  return (await start(join(dirname(BINARY), "faulty-server"), [fault])).address;
}

export function unusedPort(): Promise<number> {
  return new Promise((done) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => {
        done(typeof address === "object" && address !== null ? address.port : 0);
      });
    });
  });
}

/** Runs a program in the package's folder, and returns its output. */
export function run(
  program: string,
  args: readonly string[],
  environment: Record<string, string> = {},
): Promise<string> {
  const options = { cwd: resolve(import.meta.dirname, ".."), env: { ...process.env, ...environment } };
  return new Promise((done, fail) => {
    execFile(program, args, options, (error, stdout) => {
      if (error === null) {
        done(stdout);
      } else {
        fail(new Error(`${program}: ${error.message}`));
      }
    });
  });
}

/** Sends a GET request with curl. */
export async function curl(url: string, headers: Record<string, string>): Promise<Response> {
  const sent = Object.entries(headers).flatMap(([name, value]) => ["--header", `${name}: ${value}`]);
  const printed = await run("curl", ["--silent", "--include", ...sent, url]);
  const [head = "", ...body] = printed.split("\r\n\r\n");
  const [statusLine = "", ...lines] = head.split("\r\n");
  const pairs = lines.map((line): [string, string] => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon), line.slice(colon + 1).trim()];
  });
  return new Response(body.join("\r\n\r\n"), { status: Number(statusLine.split(" ")[1]), headers: pairs });
}

/** Returns a function that sets the clock of a server with --test-clock. */
export function clockOf(address: string): (unixNs: bigint) => Promise<void> {
  const client = new Client(address, credentials.createInsecure(), { "grpc.use_local_subchannel_pool": 1 });
  onTestFinished(() => {
    client.close();
  });
  return (unixNs) =>
    new Promise((done, fail) => {
      const now = create(TimestampSchema, { seconds: unixNs / 1_000_000_000n, nanos: Number(unixNs % 1_000_000_000n) });
      client.makeUnaryRequest(
        "/tidegate.test.v1.Clock/Set",
        // SetRequest { Timestamp now = 1; } has the shape of BytesValue { bytes value = 1; }.
        (value: Uint8Array) => Buffer.from(toBinary(BytesValueSchema, create(BytesValueSchema, { value }))),
        (bytes) => fromBinary(BytesValueSchema, bytes),
        toBinary(TimestampSchema, now),
        (error) => {
          if (error === null) {
            done();
          } else {
            fail(error);
          }
        },
      );
    });
}

/** Reads the cases of a file. */
export function cases<T>(name: string, key = "cases"): T[] {
  const text = readFileSync(join(REPOSITORY, "clients/conformance/cases", `${name}.json`), "utf8");
  return (JSON.parse(text) as Record<string, T[]>)[key] ?? [];
}

/** The rules that all cases of a file share. */
export function caseRules(name: string): string {
  const text = readFileSync(join(REPOSITORY, "clients/conformance/cases", `${name}.json`), "utf8");
  return (JSON.parse(text) as { readonly rules: string }).rules;
}
