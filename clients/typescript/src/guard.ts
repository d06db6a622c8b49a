import type { Decision, Header } from "./decision.js";
import { RequestError, type RateLimiter } from "./engine.js";
import { BadKeyError, type Key, type RequestInfo } from "./keys.js";
import { Descriptor, isValue, type Cost } from "./request.js";
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
  /** The body of a denial, and its content type: instead of `Too Many Requests`, and of the rule's own. */
  readonly deniedBody?: (decision: Decision, request: RequestInfo<T>) => DeniedBody;
  /**
   * The requests that count, by the status of their responses. The hits of other requests are given back at their end: for limits without
   * `reserve` only, such as `(status) => status === 401` for wrong passwords. All count unless set.
   */
  readonly counts?: (status: number) => boolean;
}

/** The body of a denial. */
export interface DeniedBody {
  readonly contentType: string;
  readonly body: string;
}

/** A response instead of the application's. */
export interface Refusal {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** A request that is admitted. */
export interface Admission {
  readonly decision: Decision;
  /** Headers of the response. */
  readonly headers: Readonly<Record<string, string>>;
  /** Whether its end has to be reported: it holds slots or estimates, or may not count. */
  readonly hasEnd: boolean;
  /** Reports its end, once, with the status of its response; undefined if it had none. */
  readonly end: (status: number | undefined) => void;
}

/** The result for a request that is refused. */
export interface Refused {
  readonly refusal: Refusal;
}

/** The result for a request: refused, admitted, or (undefined) not limited. */
export type Outcome = Refused | Admission | undefined;

/** Ends a request whose handler is not started. It counts, and holds nothing. */
export function endUnserved(outcome: Refused | Admission): void {
  if ("end" in outcome) {
    outcome.end(undefined);
  }
}

const PLAIN = { "content-type": "text/plain" };

/** Middleware apart from its framework. */
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
    const wanted = descriptors.read.map((entries) => new Descriptor(entries, { cost: hits }));
    let slot: Slot;
    try {
      slot = await client.acquire(wanted, { localDenials: true });
    } catch (error) {
      // A value of the request, which its client has caused.
      if (error instanceof RequestError && (error.code === "INVALID_ARGUMENT" || error.code === "OUT_OF_RANGE")) {
        return badRequest("a key of the request is too long or malformed");
      }
      throw error;
    }
    const { decision } = slot;
    if (decision.reason === "failed_closed" && decision.statuses.length === 0) {
      return { refusal: { status: 503, headers: PLAIN, body: "Service Unavailable\n" } };
    }
    const headers = decision.headers({ legacy: legacyHeaders ?? false });
    if (decision.allowed) {
      return this.#admission(slot, wanted, headers);
    }
    const made = this.#options.deniedBody?.(decision, request);
    if (made !== undefined) {
      const others = Object.entries(headers).filter(([name]) => name.toLowerCase() !== "content-type");
      const complete = { ...Object.fromEntries(others), "content-type": made.contentType };
      return { refusal: { status: 429, headers: complete, body: made.body } };
    }
    const hasType = Object.keys(headers).some((name) => name.toLowerCase() === "content-type");
    const body = decision.body.length > 0 ? new TextDecoder().decode(decision.body) : "Too Many Requests\n";
    return { refusal: { status: 429, headers: hasType ? headers : { ...headers, ...PLAIN }, body } };
  }

  #admission(slot: Slot, wanted: readonly Descriptor[], headers: Readonly<Record<string, string>>): Admission {
    const { client, counts } = this.#options;
    const { decision } = slot;
    let isOver = false;
    const end = (status: number | undefined): void => {
      if (isOver) {
        return;
      }
      isOver = true;
      void slot.release();
      // Without an answer nothing was taken.
      if (counts !== undefined && status !== undefined && decision.error === undefined && !counts(status)) {
        client.giveBack(wanted).catch((error: unknown) => {
          client.warnOnce(`hits of requests that do not count cannot be given back: ${String(error)}`);
        });
      }
    };
    return { decision, headers, hasEnd: slot.ticket !== undefined || counts !== undefined, end };
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

/** The value of a key; empty if the request has none, or only spaces. */
function valueOf<T>(key: Key<T>, request: RequestInfo<T>): string {
  const value = key.read(request) ?? "";
  if (!isValue(value)) {
    throw new BadKeyError(`the value of ${key.entry} is no UTF-8`);
  }
  return value.trim() === "" ? "" : value;
}

function badRequest(message: string): { refusal: Refusal } {
  return { refusal: { status: 400, headers: PLAIN, body: `${message}\n` } };
}

/** Whether a header lists limits, so that those of several middlewares are joined. */
export function isList(name: string): boolean {
  return ["ratelimit", "ratelimit-policy"].includes(name.toLowerCase());
}

/**
 * Adds headers of a decision to a response that may have those of an inner middleware. Returns that response, or a copy if its headers are
 * immutable, as those of `fetch` and `Response.redirect`.
 */
export function withHeaders(response: Response, decided: Readonly<Record<string, string>>): Response {
  try {
    addHeaders(response.headers, decided);
    return response;
  } catch {
    const copy = new Response(response.body, response);
    addHeaders(copy.headers, decided);
    return copy;
  }
}

function addHeaders(response: Headers, decided: Readonly<Record<string, string>>): void {
  for (const [name, value] of Object.entries(decided)) {
    const inner = response.get(name);
    if (inner === null) {
      response.set(name, value);
    } else if (isList(name)) {
      response.set(name, `${value}, ${inner}`);
    }
  }
}

/** Sets headers of a decision instead of the client's. */
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
