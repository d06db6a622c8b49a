/**
 * Middleware for Hono on Node.js.
 *
 * @packageDocumentation
 */
import type { Context, MiddlewareHandler } from "hono";
import type { Decision } from "./decision.js";
import { Guard, type RateLimitOptions } from "./guard.js";
import type { RequestInfo } from "./keys.js";

export type { RateLimitOptions } from "./guard.js";

/** The variables that the middleware sets: `context.get("rateLimit")`. */
export interface RateLimitVariables {
  Variables: { rateLimit: Decision };
}

/**
 * Returns middleware that limits requests.
 *
 * Hono does not know the peer of a connection: `peer` reads it, on Node.js with `getConnInfo` of `@hono/node-server/conninfo`.
 */
export function rateLimit(
  options: RateLimitOptions<Context> & { readonly peer?: (context: Context) => string | undefined },
): MiddlewareHandler<RateLimitVariables> {
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
    }
    await next();
    for (const [name, value] of Object.entries(outcome?.headers ?? {})) {
      context.header(name, value);
    }
    return undefined;
  };
}

function infoOf(context: Context, peer: string | undefined): RequestInfo<Context> {
  return {
    peer,
    method: context.req.method,
    path: context.req.path,
    native: context,
    header: (name) => {
      const value = context.req.header(name);
      return value === undefined ? [] : [value];
    },
  };
}
