import * as api from "@opentelemetry/api";
import * as promClient from "prom-client";
import { expect, test } from "vitest";
import { Decision } from "../src/index.js";
import { Tidegate } from "../src/http.js";
import { openTelemetry, prometheus, traceContext, type MeterLike } from "../src/metrics.js";

const ADMITTED = new Decision(true, "decided");
const FAILED = new Decision(false, "failed_closed", [], { error: "UNAVAILABLE" });

test("decisions are counted for Prometheus", async () => {
  const registry = new promClient.Registry();
  const observe = prometheus(promClient, registry);
  observe(ADMITTED, 0.2);
  observe(ADMITTED, 30);
  observe(FAILED, 50);
  const page = (await registry.metrics()).split("\n");
  expect(page).toContain('tidegate_client_decisions_total{allowed="true",reason="decided",error=""} 2');
  expect(page).toContain(
    'tidegate_client_decisions_total{allowed="false",reason="failed_closed",error="UNAVAILABLE"} 1',
  );
  expect(page).toContain('tidegate_client_seconds_bucket{le="0.00025",reason="decided"} 1');
  expect(page).toContain('tidegate_client_seconds_count{reason="failed_closed"} 1');
});

test("decisions are counted for OpenTelemetry", () => {
  const seen: unknown[] = [];
  const meter: MeterLike = {
    createCounter: (name) => ({ add: (value, attributes) => seen.push([name, value, attributes]) }),
    createHistogram: (name, { unit }) => ({
      record: (value, attributes) => seen.push([name, unit, value, attributes]),
    }),
  };
  openTelemetry(meter)(FAILED, 50);
  expect(seen).toEqual([
    ["tidegate.client.decisions", 1, { allowed: false, reason: "failed_closed", error: "UNAVAILABLE" }],
    ["tidegate.client.duration", "s", 0.05, { reason: "failed_closed" }],
  ]);
  // The type of the API is accepted too.
  openTelemetry(api.metrics.getMeter("test"))(FAILED, 50);
});

test("the trace context is passed on", async () => {
  api.propagation.setGlobalPropagator({
    inject: (_, carrier, setter) => {
      setter.set(carrier, "traceparent", "00-1");
    },
    extract: (context) => context,
    fields: () => ["traceparent"],
  });
  let sent: unknown;
  const client = new Tidegate("http://127.0.0.1:1", {
    domain: "d",
    metadata: traceContext(api),
    fetch: (_, init) => {
      sent = init?.headers;
      return Promise.resolve(Response.json({ overallCode: "OK" }));
    },
  });
  expect((await client.limit({ user: "a" })).allowed).toBe(true);
  expect(sent).toMatchObject({ traceparent: "00-1" });
});
