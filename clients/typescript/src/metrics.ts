/**
 * Metrics of decisions for the Prometheus client library (`prom-client`) and for OpenTelemetry, and the trace context of calls.
 * The libraries are those of the application: this module imports none.
 *
 * @packageDocumentation
 */
import type { Decision } from "./decision.js";

/** A function that is called with each decision and the milliseconds it took: the option `onDecision` of a client. */
export type Observer = (decision: Decision, tookMs: number) => void;

/** Labels of a metric of `prom-client`. */
export type Labels = Record<string, string>;
/** Attributes of a measurement of OpenTelemetry. */
export type Attributes = Record<string, string | boolean>;

/** The part of `prom-client` that is used. */
export interface PromClient<R> {
  readonly Counter: new (settings: { name: string; help: string; labelNames: string[]; registers: R[] }) => {
    inc(labels: Labels): void;
  };
  readonly Histogram: new (settings: {
    name: string;
    help: string;
    labelNames: string[];
    buckets: number[];
    registers: R[];
  }) => { observe(labels: Labels, value: number): void };
}

/** The part of a `Meter` of `@opentelemetry/api` that is used. */
export interface MeterLike {
  createCounter(name: string, options: { description: string }): { add(value: number, attributes: Attributes): void };
  createHistogram(
    name: string,
    options: { description: string; unit: string; advice: { explicitBucketBoundaries: number[] } },
  ): { record(value: number, attributes: Attributes): void };
}

/** Seconds: a local denial takes microseconds, a timeout 50 ms unless set. */
const BUCKETS = [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1];
const DECISIONS = "Decisions about rate limits, by their reason";
const DURATION = "Time until a decision";

/**
 * Counts decisions in `tidegate_client_decisions_total`, with the labels `allowed`, `reason` and `error`, and measures them in
 * `tidegate_client_seconds`.
 *
 * @param promClient - The module `prom-client`.
 * @param registry - The registry of the metrics.
 */
export function prometheus<R>(promClient: PromClient<R>, registry: R): Observer {
  const registers = [registry];
  const decisions = new promClient.Counter({
    name: "tidegate_client_decisions_total",
    help: DECISIONS,
    labelNames: ["allowed", "reason", "error"],
    registers,
  });
  const seconds = new promClient.Histogram({
    name: "tidegate_client_seconds",
    help: DURATION,
    labelNames: ["reason"],
    buckets: BUCKETS,
    registers,
  });
  return (decision, tookMs) => {
    const { allowed, reason, error = "" } = decision;
    decisions.inc({ allowed: String(allowed), reason, error });
    seconds.observe({ reason }, tookMs / 1e3);
  };
}

/**
 * Counts decisions in `tidegate.client.decisions`, with the attributes `allowed`, `reason` and `error`, and measures them in
 * `tidegate.client.duration`.
 */
export function openTelemetry(meter: MeterLike): Observer {
  const decisions = meter.createCounter("tidegate.client.decisions", { description: DECISIONS });
  const duration = meter.createHistogram("tidegate.client.duration", {
    description: DURATION,
    unit: "s",
    advice: { explicitBucketBoundaries: BUCKETS },
  });
  return (decision, tookMs) => {
    const { allowed, reason, error = "" } = decision;
    decisions.add(1, { allowed, reason, error });
    duration.record(tookMs / 1e3, { reason });
  };
}

/**
 * Passes the trace context on: the option `metadata` of a client.
 *
 * @param api - The module `@opentelemetry/api`.
 */
export function traceContext<C>(api: {
  readonly context: { active(): C };
  readonly propagation: { inject(context: C, carrier: Record<string, string>): void };
}): () => Record<string, string> {
  return () => {
    const carrier: Record<string, string> = {};
    api.propagation.inject(api.context.active(), carrier);
    return carrier;
  };
}
