// Measures the client beside the bare gRPC stub, for `cargo xtask clients --bench`. Needs `npm run build`.
//
// The server at TIDEGATE_ADDR has the domain `bench` with a key `admitted`, which is never denied, and a key `denied`, which
// always is after its first hit.
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import assert from "node:assert/strict";
import { Tidegate } from "../dist/esm/index.js";
import {
  RateLimitRequestSchema,
  RateLimitResponse_Code as Code,
  RateLimitResponseSchema,
} from "../dist/esm/proto/rls_pb.js";

const ROUNDS = 10;
const SEQUENTIAL_CALLS = 500;
const CALLERS = 64;
const CALLS_PER_CALLER = 50;
const LOCAL_DENIALS = 200_000;
const TIMEOUT_MS = 5_000;

const address = process.env["TIDEGATE_ADDR"] ?? "127.0.0.1:8081";
const client = new Tidegate(address, { domain: "bench", timeoutMs: TIMEOUT_MS });
const connection = new Client(address, credentials.createInsecure());

/** One call of the stub, with the message and metadata that the library sends. */
function bare() {
  const metadata = new Metadata();
  metadata.set("tidegate-precision", "exact");
  const message = create(RateLimitRequestSchema, {
    domain: "bench",
    descriptors: [{ entries: [{ key: "admitted", value: new TextEncoder().encode("alice") }] }],
  });
  return new Promise((resolve, reject) => {
    connection.makeUnaryRequest(
      "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
      (request) => Buffer.from(toBinary(RateLimitRequestSchema, request)),
      (bytes) => fromBinary(RateLimitResponseSchema, bytes),
      message,
      metadata,
      { deadline: Date.now() + TIMEOUT_MS },
      (error, response) => {
        if (error !== null || response.overallCode !== Code.OK) {
          reject(error ?? new Error("denied"));
        } else {
          resolve(response);
        }
      },
    );
  });
}

async function ours() {
  const decision = await client.limit({ admitted: "alice" });
  assert(decision.allowed && decision.reason === "decided");
}

const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];

/** The median times of calls one after the other, in microseconds. */
async function sequential() {
  const times = [[], []];
  for (let round = 0; round <= ROUNDS; round++) {
    for (const [index, call] of [bare, ours].entries()) {
      for (let calls = 0; calls < SEQUENTIAL_CALLS; calls++) {
        const started = performance.now();
        await call();
        // The first round opens connections and compiles.
        if (round > 0) {
          times[index].push((performance.now() - started) * 1e3);
        }
      }
    }
  }
  return times.map(median);
}

/** The median numbers of calls per second. */
async function concurrent() {
  const rates = [[], []];
  for (let round = 0; round < ROUNDS; round++) {
    for (const [index, call] of [bare, ours].entries()) {
      const started = performance.now();
      const caller = async () => {
        for (let calls = 0; calls < CALLS_PER_CALLER; calls++) {
          await call();
        }
      };
      await Promise.all(Array.from({ length: CALLERS }, caller));
      rates[index].push((CALLERS * CALLS_PER_CALLER) / ((performance.now() - started) / 1e3));
    }
  }
  return rates.map(median);
}

/** The mean time of a denial without a call, in microseconds. */
async function localDenial() {
  const deny = () => client.limit({ denied: "alice" });
  while ((await deny()).allowed);
  const started = performance.now();
  for (let denials = 0; denials < LOCAL_DENIALS; denials++) {
    assert.equal((await deny()).reason, "denied_locally");
  }
  return ((performance.now() - started) * 1e3) / LOCAL_DENIALS;
}

const local_denial_us = await localDenial();
const [stub_p50_us, client_p50_us] = await sequential();
const [stub_per_s, client_per_s] = await concurrent();
console.log(JSON.stringify({ stub_p50_us, client_p50_us, stub_per_s, client_per_s, local_denial_us }));
client.close();
connection.close();
