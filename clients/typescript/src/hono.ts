/**
 * Middleware for Hono on Node.js.
 *
 * @packageDocumentation
 */
import type { Context, MiddlewareHandler } from "hono";
import type { Decision, Header } from "./decision.js";
import { endingWith, Guard, markHeaders, type RateLimitOptions } from "./guard.js";
import type { RequestInfo } from "./keys.js";
import type { Slot } from "./slot.js";

export type { RateLimitOptions } from "./guard.js";

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
    if (outcome !== undefined) {
      context.set("rateLimit", outcome.decision);
      mark(context, outcome.decision.requestHeaders);
    }
    try {
      await next();
    } catch (error) {
      void outcome?.slot.release();
      throw error;
    }
    for (const [name, value] of Object.entries(outcome?.headers ?? {})) {
      context.header(name, value);
    }
    if (outcome?.slot.ticket !== undefined) {
      release(context, outcome.slot);
    }
    return undefined;
  };
}

/** Releases slots when the response was sent, or its client has gone. */
function release(context: Context, slot: Slot): void {
  const { body } = context.res;
  if (body === null) {
    void slot.release();
  } else {
    context.res = new Response(
      endingWith(body, () => void slot.release()),
      context.res,
    );
  }
}

function mark(context: Context, marks: readonly Header[]): void {
  if (marks.length > 0) {
    // The headers of a request that a platform passes in may be immutable.
    const headers = new Headers(context.req.raw.headers);
    markHeaders(headers, marks);
    context.req.raw = new Request(context.req.raw, { headers });
  }
}

function infoOf(context: Context, peer: string | undefined): RequestInfo<Context> {
  // On Node.js the request of the platform has repeated headers apart; elsewhere they are joined.
  const { incoming } = (context.env ?? {}) as { readonly incoming?: { readonly headersDistinct?: Distinct } };
  const distinct = incoming?.headersDistinct;
  return {
    peer,
    method: context.req.method,
    path: context.req.path,
    native: context,
    joinsHeaders: distinct === undefined,
    header: (name) => {
      if (distinct !== undefined) {
        return distinct[name.toLowerCase()] ?? [];
      }
      const value = context.req.header(name);
      return value === undefined ? [] : [value];
    },
  };
}

type Distinct = Readonly<Record<string, readonly string[] | undefined>>;
