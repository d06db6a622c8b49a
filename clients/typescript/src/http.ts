/**
 * The client over `POST /json` by `fetch`, for runtimes without HTTP/2 clients, such as edge runtimes.
 *
 * @packageDocumentation
 */
import { fromJson, toJson, type JsonValue } from "@bufbuild/protobuf";
import { RateLimiter, type ClientOptions } from "./engine.js";
import {
  RateLimitRequestSchema,
  RateLimitResponseSchema,
  type RateLimitRequest,
  type RateLimitResponse,
} from "./proto/rls_pb.js";
import { textOf } from "./request.js";
import { CallError, TIMER_MAX_MS, type CallSettings, type Transport } from "./transport.js";

export {
  RateLimiter,
  RequestError,
  type CallOptions,
  type ClientOptions,
  type Logger,
  type OnFailure,
} from "./engine.js";
export { Decision, type Extras, type Header, type Limit, type Mode, type Reason, type Status } from "./decision.js";
export {
  BadKeyError,
  clientAddress,
  constant,
  custom,
  header,
  type Key,
  type Missing,
  type RequestInfo,
} from "./keys.js";
export type { LocalLimit } from "./local.js";
export { Descriptor, type Cost, type DescriptorLike, type Entries } from "./request.js";

/** Settings of a client over HTTP. */
export interface TidegateOptions extends ClientOptions {
  /** Headers of each request, such as credentials for a proxy in front of the server. */
  readonly headers?: Readonly<Record<string, string>>;
  /** The function that sends requests; the global `fetch` unless set. */
  readonly fetch?: typeof fetch;
}

/** A client of a Tidegate server over its HTTP port (`--http-listen`). */
export class Tidegate extends RateLimiter {
  /**
   * Creates a client.
   *
   * @param url - The server's HTTP port, such as `http://127.0.0.1:8082`, or a path of a gateway that leads there.
   * @param options - The settings.
   */
  constructor(url = "http://127.0.0.1:8082", options: TidegateOptions = {}) {
    super([new HttpTransport(jsonUrl(url), options)], options);
  }
}

/** The URL of calls: `/json` below the path of `url`, unless it is there already. */
function jsonUrl(url: string): URL {
  const parsed = new URL(url);
  parsed.pathname = parsed.pathname.replace(/(\/json)?\/*$/, "/json");
  return parsed;
}

/** The message of an error with those of its causes: `fetch` itself always reports `fetch failed`. */
function withCauses(error: unknown): string {
  const messages: string[] = [];
  for (let cause = error; cause !== undefined && messages.length < 4;) {
    // Errors of connections to several addresses have a code and no message.
    const { message, code } = cause as { readonly message?: string; readonly code?: string };
    messages.push(message || code || "an unknown error");
    cause = cause instanceof Error ? cause.cause : undefined;
  }
  return messages.join(": ");
}

/** The gRPC codes of HTTP statuses without a decision; every other status is UNAVAILABLE. */
const CODES: Readonly<Record<number, string>> = {
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "UNIMPLEMENTED",
  405: "UNIMPLEMENTED",
};

/** The name of a status, which proxies send as a text. */
const NAME_OF_STATUS = /^(\d{3} )?bad request\n$/i;

/**
 * The gRPC code if a response refuses the request for what the caller has sent. The server states its reason in a line of plain text; a
 * proxy that responds with 400 has a page, or the name of the status. 413 is for the length of this request, also from a proxy: failing
 * open would let an overlong key pass every limit.
 */
function refusalOf({ status, headers }: Response, body: string): string | undefined {
  if (status === 413) {
    return "OUT_OF_RANGE";
  }
  const isText = headers.get("content-type")?.toLowerCase() === "text/plain; charset=utf-8";
  const isOfServer = isText && body.endsWith("\n") && !NAME_OF_STATUS.test(body);
  return status === 400 && isOfServer ? "INVALID_ARGUMENT" : undefined;
}

/** The length of a body in the message of an error: enough for a reason, less than the page of a proxy. */
const SHOWN_MAX = 300;

/** The JSON of a message, whose values become text: of values that are not UTF-8, bytes beyond ASCII are written as `\xff`. */
function jsonOf(message: RateLimitRequest): JsonValue {
  const json = toJson(RateLimitRequestSchema, message) as {
    descriptors?: { entries?: { value?: string }[] }[];
  };
  message.descriptors.forEach(({ entries }, descriptor) => {
    entries.forEach(({ value }, entry) => {
      const written = json.descriptors?.[descriptor]?.entries?.[entry];
      if (written !== undefined) {
        written.value = textOf(value);
      }
    });
  });
  return json;
}

class HttpTransport implements Transport {
  readonly #url: URL;
  readonly #options: TidegateOptions;

  constructor(url: URL, options: TidegateOptions) {
    this.#url = url;
    this.#options = options;
  }

  async call(message: RateLimitRequest, { timeoutMs, metadata, signal }: CallSettings): Promise<RateLimitResponse> {
    const timeout = AbortSignal.timeout(Math.min(Math.ceil(timeoutMs), TIMER_MAX_MS));
    const send = this.#options.fetch ?? fetch;
    let response: Response;
    let body: string;
    try {
      response = await send(this.#url, {
        method: "POST",
        headers: {
          ...this.#options.headers,
          ...metadata,
          "content-type": "application/json",
          // For a queue: requests that would have to wait longer are denied at once.
          "grpc-timeout": `${Math.min(Math.max(Math.floor(timeoutMs), 1), 99_999_999)}m`,
          "tidegate-precision": "exact",
        },
        body: JSON.stringify(jsonOf(message)),
        signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
      });
      body = await response.text();
    } catch (error) {
      throw this.#failure(timeout.aborted ? "DEADLINE_EXCEEDED" : "UNAVAILABLE", withCauses(error));
    }
    const { status } = response;
    const reason = body.trim().slice(0, SHOWN_MAX);
    const refusal = refusalOf(response, body);
    if (refusal !== undefined) {
      throw new CallError(refusal, reason);
    }
    // 429 is OVER_LIMIT, with a message like that of 200.
    if (status !== 200 && status !== 429) {
      throw this.#failure(CODES[status] ?? "UNAVAILABLE", `HTTP status ${status}${reason && `: ${reason}`}`);
    }
    try {
      return fromJson(RateLimitResponseSchema, JSON.parse(body) as JsonValue, { ignoreUnknownFields: true });
    } catch (error) {
      throw this.#failure("INTERNAL", `the answer is not a RateLimitResponse: ${String(error)}`);
    }
  }

  /** A call without an answer; its message has the URL, without what may be secret. */
  #failure(code: string, message: string): CallError {
    const { origin, pathname } = this.#url;
    return new CallError(code, `${origin}${pathname}: ${message}`);
  }

  /** The runtime itself connects. */
  isConnected(): boolean {
    return true;
  }

  /** Nothing to close: the runtime owns the connections. */
  close(): void {
    return;
  }
}
