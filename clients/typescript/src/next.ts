/**
 * Middleware for Next.js. Use the client of `@tidegate/client/http` in edge runtimes.
 *
 * @packageDocumentation
 */
import { Guard, markHeaders, withHeaders, type RateLimitOptions } from "./guard.js";
import type { RequestInfo } from "./keys.js";

export type { DeniedBody, RateLimitOptions } from "./guard.js";

/** Settings of the middleware. */
export interface NextRateLimitOptions extends Omit<RateLimitOptions<Request>, "counts"> {
  /** Passes a request on: `(init) => NextResponse.next(init)`, of `next/server`. */
  readonly next: (init: { readonly request: { readonly headers: Headers } }) => Response;
  /** Returns the peer of a request, where the platform has it; `clientAddress` with 0 trusted proxies reads it. */
  readonly peer?: (request: Request) => string | undefined;
}

/**
 * Returns the function to export as `middleware` (`proxy` since Next.js 16).
 *
 * Next.js does not report the end of a request to it, so that it can hold no slots: it releases slots of limits of requests in flight at
 * once, and logs this once. Use `acquire` in the handler for such limits.
 */
export function rateLimit(options: NextRateLimitOptions): (request: Request) => Promise<Response> {
  const guard = new Guard(options);
  return async (request) => {
    const outcome = await guard.decide(infoOf(request, options.peer?.(request)));
    if (outcome !== undefined && "refusal" in outcome) {
      const { body, status, headers } = outcome.refusal;
      return new Response(body, { status, headers });
    }
    if (outcome?.hasEnd === true) {
      outcome.end(undefined);
      options.client.warnOnce(
        "middleware of Next.js holds no slots of limits of requests in flight, which deny no request there; use acquire in the handler",
      );
    }
    const headers = new Headers(request.headers);
    markHeaders(headers, outcome?.decision.requestHeaders ?? []);
    return withHeaders(options.next({ request: { headers } }), outcome?.headers ?? {});
  };
}

function infoOf(request: Request, peer: string | undefined): RequestInfo<Request> {
  return {
    peer,
    method: request.method,
    path: new URL(request.url).pathname,
    native: request,
    joinsHeaders: true,
    header: (name) => {
      const value = request.headers.get(name);
      return value === null ? [] : [value];
    },
  };
}
