/**
 * Middleware for Hono on Node.js.
 *
 * @packageDocumentation
 */
import type { Context, MiddlewareHandler } from "hono";
import type { Decision, Header } from "./decision.js";
import { endingWith, Guard, markHeaders, withHeaders, type Admission, type RateLimitOptions } from "./guard.js";
import { headerValues } from "./incoming.js";
import type { RequestInfo } from "./keys.js";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

export type { DeniedBody, RateLimitOptions } from "./guard.js";

declare module "hono" {
  interface ContextVariableMap {
    /** The decision about the request; undefined if it is not limited. */
    rateLimit: Decision | undefined;
  }
}

/**
 * Returns middleware that limits requests; the decision is at `context.get("rateLimit")`.
 *
 * Hono does not know the peer of a connection: `peer` reads it, on Node.js with `getConnInfo` of `@hono/node-server/conninfo`.
 */
export function rateLimit(
  options: RateLimitOptions<Context> & { readonly peer?: (context: Context) => string | undefined },
): MiddlewareHandler {
  const guard = new Guard(options);
  return async (context, next) => {
    const outcome = await guard.decide(infoOf(context, options.peer?.(context)));
    if (outcome !== undefined && "refusal" in outcome) {
      return new Response(outcome.refusal.body, {
        status: outcome.refusal.status,
        headers: outcome.refusal.headers,
      });
    }
    if (outcome === undefined) {
      await next();
      return undefined;
    }
    try {
      context.set("rateLimit", outcome.decision);
      mark(context, outcome.decision.requestHeaders);
      await next();
      complete(context, outcome);
    } catch (error) {
      outcome.end(500);
      throw error;
    }
    return undefined;
  };
}

/** The request and the response of Node.js, which other platforms lack. An upgrade has no response. */
interface Platform {
  readonly incoming?: IncomingMessage;
  readonly outgoing?: ServerResponse;
}

function platformOf(context: Context): Platform {
  return (context.env ?? {}) as Platform;
}

/** Adds the headers of a decision to the response of the handler, and ends the request with it. */
function complete(context: Context, admission: Admission): void {
  // On runtimes other than Node.js, the platform makes the response to an upgrade, which cannot be copied.
  if (context.res.status !== 101) {
    const response = withHeaders(context.res, admission.headers);
    if (response !== context.res) {
      // Hono would set the headers of the replaced response again.
      context.res = undefined;
      context.res = response;
    }
  }
  endWithResponse(context, admission);
}

/** Ends a request whose handler has ended, once its response was sent or its client has left. */
function endWithResponse(context: Context, admission: Admission): void {
  if (!admission.hasEnd) {
    return;
  }
  const { body, status } = context.res;
  const end = (): void => {
    admission.end(status);
  };
  const { incoming, outgoing } = platformOf(context);
  if (incoming !== undefined && outgoing === undefined) {
    // An upgrade has no response of Node.js. It lasts until its WebSocket, or its refusal, is over.
    endWithSocket(incoming.socket, end);
  } else if (body === null || context.req.method === "HEAD" || outgoing?.destroyed === true) {
    // Hono leaves the body of a response to HEAD unread.
    end();
  } else if (outgoing !== undefined) {
    // This response is sent, whatever replaces Hono's.
    outgoing.once("finish", end).once("close", end);
  } else {
    context.res = new Response(endingWith(body, end), context.res);
  }
}

function endWithSocket(socket: Socket, end: () => void): void {
  if (socket.destroyed || socket.writableFinished) {
    end();
  } else {
    // A client that keeps its side open after the last frame holds no slot.
    socket.once("finish", end).once("close", end);
  }
}

function mark(context: Context, marks: readonly Header[]): void {
  if (marks.length > 0) {
    // The headers of a request from a platform may be immutable.
    const headers = new Headers(context.req.raw.headers);
    markHeaders(headers, marks);
    const { raw } = context.req;
    // A request whose body was read cannot be copied. Hono has kept what it read of it.
    const { method, signal } = raw;
    context.req.raw = raw.bodyUsed ? new Request(raw.url, { method, headers, signal }) : new Request(raw, { headers });
  }
}

function infoOf(context: Context, peer: string | undefined): RequestInfo<Context> {
  // On Node.js the platform's request has repeated headers separately; elsewhere they are joined.
  const { incoming } = platformOf(context);
  return {
    peer,
    method: context.req.method,
    path: context.req.path,
    native: context,
    joinsHeaders: incoming === undefined,
    header: (name) => {
      if (incoming !== undefined) {
        return headerValues(incoming, name);
      }
      const value = context.req.header(name);
      return value === undefined ? [] : [value];
    },
  };
}
