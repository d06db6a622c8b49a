import type { Decision, Header } from "./decision.js";
import { RequestError, type RateLimiter } from "./engine.js";
import { BadKeyError, type Key, type RequestInfo } from "./keys.js";
import { Descriptor, isText, type Cost } from "./request.js";
import type { Slot } from "./slot.js";

/** The requests that middleware limits, and how. `T` is the framework's own request. */
export interface RateLimitOptions<T> {
  /** The client, over gRPC or HTTP. */
  readonly client: RateLimiter;
  /** The entries of the descriptor, in order; for several descriptors a list of each one's. */
  readonly keys: readonly Key<T>[] | readonly (readonly Key<T>[])[];
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

/** The result for a request: refused, admitted with what it holds until its end, or (undefined) not limited. */
export type Outcome =
  | { readonly refusal: Refusal }
  | { readonly slot: Slot; readonly decision: Decision; readonly headers: Readonly<Record<string, string>> }
  | undefined;

const PLAIN = { "content-type": "text/plain" };

/** Middleware without its framework. */
export class Guard<T> {
  readonly #options: RateLimitOptions<T>;
  readonly #descriptors: readonly (readonly Key<T>[])[];

  constructor(options: RateLimitOptions<T>) {
    const { keys } = options;
    const lists = keys.filter((one): one is readonly Key<T>[] => Array.isArray(one));
    const single = keys.filter((one): one is Key<T> => !Array.isArray(one));
    if (lists.length > 0 && single.length > 0) {
      throw new TypeError("keys has keys and lists of keys; use a list for each descriptor");
    }
    this.#descriptors = single.length > 0 ? [single] : lists;
    if (this.#descriptors.length === 0 || this.#descriptors.some((list) => list.length === 0)) {
      throw new TypeError('keys is empty; use at least one, such as constant("route", "all")');
    }
    this.#options = options;
  }

  async decide(request: RequestInfo<T>): Promise<Outcome> {
    const { client, cost, skip, legacyHeaders } = this.#options;
    if (skip?.(request) === true) {
      return undefined;
    }
    const descriptors = this.#descriptorsOf(request);
    if ("refusal" in descriptors || descriptors.read.length === 0) {
      return "refusal" in descriptors ? descriptors : undefined;
    }
    const hits = typeof cost === "function" ? cost(request) : cost;
    let slot: Slot;
    try {
      const wanted = descriptors.read.map((entries) => new Descriptor(entries, { cost: hits }));
      slot = await client.acquire(wanted, { localDenials: true });
    } catch (error) {
      // A value of the request, of which its client is the cause.
      if (error instanceof RequestError && (error.code === "INVALID_ARGUMENT" || error.code === "OUT_OF_RANGE")) {
        return badRequest("a key of the request is too long or malformed");
      }
      throw error;
    }
    const { decision } = slot;
    if (decision.reason === "failed_closed") {
      return { refusal: { status: 503, headers: PLAIN, body: "Service Unavailable\n" } };
    }
    const headers = decision.headers({ legacy: legacyHeaders ?? false });
    if (decision.allowed) {
      return { slot, decision, headers };
    }
    const hasType = Object.keys(headers).some((name) => name.toLowerCase() === "content-type");
    const body = decision.body.length > 0 ? new TextDecoder().decode(decision.body) : "Too Many Requests\n";
    return { refusal: { status: 429, headers: hasType ? headers : { ...headers, ...PLAIN }, body } };
  }

  /** Reads the entries of each descriptor that limits the request. */
  #descriptorsOf(request: RequestInfo<T>): { refusal: Refusal } | { read: [string, string][][] } {
    const read: [string, string][][] = [];
    try {
      for (const keys of this.#descriptors) {
        const values = keys.map((key): [string, string] => [key.entry, valueOf(key, request)]);
        const missing = keys.filter((_, index) => values[index]?.[1] === "");
        const refused = missing.find((key) => key.missing === "reject");
        if (refused !== undefined) {
          return badRequest(`the request has no ${refused.entry}`);
        }
        if (missing.every((key) => key.missing === "shared")) {
          read.push(values);
        }
      }
    } catch (error) {
      if (error instanceof BadKeyError) {
        return badRequest(error.message);
      }
      throw error;
    }
    return { read };
  }
}

function valueOf<T>(key: Key<T>, request: RequestInfo<T>): string {
  const value = key.read(request) ?? "";
  if (!isText(value)) {
    throw new BadKeyError(`the value of ${key.entry} is no UTF-8`);
  }
  return value;
}

function badRequest(message: string): { refusal: Refusal } {
  return { refusal: { status: 400, headers: PLAIN, body: `${message}\n` } };
}

/** Sets headers of a decision instead of those of the client. */
export function markHeaders(headers: Headers, marks: readonly Header[]): void {
  for (const [name] of marks) {
    headers.delete(name);
  }
  for (const [name, value] of marks) {
    headers.append(name, value);
  }
}

/** A body that calls `ended` once when it was read to its end, has failed, or is cancelled. */
export function endingWith(body: ReadableStream<Uint8Array>, ended: () => void): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) {
          ended();
          controller.close();
        } else {
          controller.enqueue(value);
        }
      } catch (error) {
        ended();
        controller.error(error);
      }
    },
    cancel(reason) {
      ended();
      return reader.cancel(reason);
    },
  });
}
