import type { Decision } from "./decision.js";
import type { RateLimiter } from "./engine.js";
import type { Key, RequestInfo } from "./keys.js";
import { Descriptor, type Cost } from "./request.js";

/** The requests that middleware limits, and how. `T` is the framework's own request. */
export interface RateLimitOptions<T> {
  /** The client, over gRPC or HTTP. */
  readonly client: RateLimiter;
  /** The entries of the descriptor, in order; at least one. */
  readonly keys: readonly Key<T>[];
  /** Hits of a request, or a function of it; 1 unless set. */
  readonly cost?: Cost | ((request: RequestInfo<T>) => Cost);
  /** Requests for which it returns true are not limited, such as health checks. */
  readonly skip?: (request: RequestInfo<T>) => boolean;
  /** Whether `X-RateLimit-…` headers are sent as well. */
  readonly legacyHeaders?: boolean;
}

/** A response instead of the application's. */
export interface Refusal {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** The result for a request: refused, admitted with a decision, or (undefined) not limited. */
export type Outcome =
  | { readonly refusal: Refusal }
  | { readonly decision: Decision; readonly headers: Readonly<Record<string, string>> }
  | undefined;

const PLAIN = { "content-type": "text/plain" };

/** Middleware without its framework. */
export class Guard<T> {
  readonly #options: RateLimitOptions<T>;

  constructor(options: RateLimitOptions<T>) {
    if (options.keys.length === 0) {
      throw new TypeError('keys is empty; use at least one, such as constant("route", "all")');
    }
    this.#options = options;
  }

  async decide(request: RequestInfo<T>): Promise<Outcome> {
    const { client, keys, cost, skip, legacyHeaders } = this.#options;
    if (skip?.(request) === true) {
      return undefined;
    }
    const entries: [string, string][] = [];
    for (const key of keys) {
      const value = key.read(request) ?? "";
      if (value === "") {
        if (key.missing === "reject") {
          return { refusal: { status: 400, headers: PLAIN, body: `the request has no ${key.entry}\n` } };
        }
        if (key.missing === "allow") {
          return undefined;
        }
      }
      entries.push([key.entry, value]);
    }
    const hits = typeof cost === "function" ? cost(request) : cost;
    const decision = await client.limit(new Descriptor(entries, { cost: hits }));
    if (decision.reason === "failed_closed") {
      return { refusal: { status: 503, headers: PLAIN, body: "Service Unavailable\n" } };
    }
    const headers = decision.headers({ legacy: legacyHeaders ?? false });
    if (decision.allowed) {
      return { decision, headers };
    }
    const hasType = Object.keys(headers).some((name) => name.toLowerCase() === "content-type");
    const body = decision.body.length > 0 ? new TextDecoder().decode(decision.body) : "Too Many Requests\n";
    return { refusal: { status: 429, headers: hasType ? headers : { ...headers, ...PLAIN }, body } };
  }
}
