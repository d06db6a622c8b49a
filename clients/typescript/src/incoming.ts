import type { IncomingMessage, ServerResponse } from "node:http";
import type { Header } from "./decision.js";
import { isList, type Admission } from "./guard.js";

/** When the slots of a request are released; see `SlotOptions`. */
export type HoldUntil = "handler" | "connection";

/** Settings of middleware for frameworks that do not cancel the handler of a client that has left. */
export interface SlotOptions {
  /**
   * The time until which a request holds its slots. `handler`, unless set: until the handler has ended its response, even if the client
   * leaves before. Otherwise clients that connect and leave could occupy the application beyond its limit. A handler that never ends its
   * response holds them until the response is garbage, or for `max_hold` of the rule. `connection`: until the client leaves.
   * response holds them until the response is garbage, or for `max_hold` of the rule. `connection`: until the client leaves.
   */
  readonly holdUntil?: HoldUntil;
}

/** The headers of a request of Node.js over HTTP/1.1 or HTTP/2, or of an adapter that makes requests from events. */
interface WithHeaders {
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  /** Names and values in turn, as they arrived. Adapters may omit them, or leave them empty. */
  readonly rawHeaders?: readonly string[];
}

/** Returns all values of a header, in order. */
export function headerValues(request: WithHeaders, name: string): readonly string[] {
  const wanted = name.toLowerCase();
  const raw = request.rawHeaders ?? [];
  const values = raw.filter((_, index) => index % 2 === 1 && raw[index - 1]?.toLowerCase() === wanted);
  if (values.length > 0) {
    return values;
  }
  const [, value] = Object.entries(request.headers).find(([key]) => key.toLowerCase() === wanted) ?? [];
  // Platforms behind adapters join repeated headers.
  return typeof value === "string" ? value.split(",") : (value ?? []);
}

/** Sets headers of a decision in a request of Node.js, instead of the client's. */
export function mark(request: IncomingMessage, marks: readonly Header[]): void {
  const names = new Set(marks.map(([name]) => name.toLowerCase()));
  if (names.size === 0) {
    return;
  }
  const { headers } = request;
  // Requests of HTTP/2 and of adapters lack some of these.
  const rawHeaders = request.rawHeaders as string[] | undefined;
  const distinct = request.headersDistinct as NodeJS.Dict<string[]> | undefined;
  for (const name of names) {
    const values = marks.filter(([marked]) => marked.toLowerCase() === name).map(([, value]) => value);
    headers[name] = values.join(", ");
    if (distinct !== undefined) {
      distinct[name] = values;
    }
  }
  if (rawHeaders !== undefined) {
    const kept = rawHeaders.filter((_, index) => !names.has((rawHeaders[index & ~1] ?? "").toLowerCase()));
    rawHeaders.splice(0, rawHeaders.length, ...kept, ...marks.flat());
  }
}

/** Whether a request is over before its handler begins: its client has left, or other middleware has responded. */
export function isOver(response: ServerResponse): boolean {
  return response.destroyed || response.writableEnded;
}

/** Ends the request of a response that is garbage: its handler has ended without a response. */
const forgotten = new FinalizationRegistry<(status: undefined) => void>((end) => {
  end(undefined);
});

/**
 * Ends a request when its response is over and its handler has ended, or when its client has left.
 *
 * `finish` is the end of a response, `close` that of its connection or stream. Adapters may emit only one of them. If a handler has
 * hijacked its response, as for a WebSocket, the request ends with its socket.
 */
export function endWith(
  response: ServerResponse,
  admission: Admission,
  holdUntil: HoldUntil = "handler",
  isHijacked: () => boolean = () => false,
): void {
  if (!admission.hasEnd) {
    return;
  }
  const end = admission.end;
  const over = (): void => {
    end(response.statusCode);
  };
  response.once("finish", over);
  const request = response.req as (IncomingMessage & { readonly upgrade?: boolean }) | undefined;
  if (request?.upgrade === true) {
    // The header alone, which any client may send, is no upgrade, and a handler may respond to an upgrade as to other requests.
    request.socket.once("close", () => {
      if (isHijacked()) {
        over();
      }
    });
  }
  response.once("close", () => {
    if (response.writableEnded || holdUntil === "connection" || isHijacked()) {
      over();
      return;
    }
    // The client has left, and the handler continues.
    response.once("unpipe", over);
    const write = response.end.bind(response) as (...given: unknown[]) => ServerResponse;
    response.end = (...given: unknown[]) => {
      over();
      return write(...given);
    };
    forgotten.register(response, end);
  });
}

/** The headers of a decision, to be set beside those of another middleware: lists name the limits of both. */
export function beside(
  present: Readonly<Record<string, unknown>>,
  decided: Readonly<Record<string, string>>,
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(decided).map(([name, value]) => {
      const other = present[name.toLowerCase()];
      return [name, isList(name) && typeof other === "string" ? `${other}, ${value}` : value];
    }),
  );
}
