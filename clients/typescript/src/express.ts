/**
 * Middleware for Express.
 *
 * @packageDocumentation
 */
import type { NextFunction, Request, RequestHandler, Response } from "express";
import { endUnserved, Guard, type Outcome, type RateLimitOptions } from "./guard.js";
import { beside, endWith, isOver, headerValues, mark, type SlotOptions } from "./incoming.js";
import type { RequestInfo } from "./keys.js";

export type { DeniedBody, RateLimitOptions } from "./guard.js";
export type { HoldUntil, SlotOptions } from "./incoming.js";

/**
 * Returns middleware that limits requests; the decision is at `response.locals.rateLimit`. If a route has several, the last middleware's
 * decision is there.
 */
export function rateLimit(options: RateLimitOptions<Request> & SlotOptions): RequestHandler {
  const guard = new Guard(options);
  return (request: Request, response: Response, next: NextFunction): void => {
    const serve = (outcome: Outcome): void => {
      if (outcome === undefined) {
        next();
        return;
      }
      if (isOver(response)) {
        // The handler is not started.
        endUnserved(outcome);
        return;
      }
      if ("refusal" in outcome) {
        const { status, headers, body } = outcome.refusal;
        response.status(status).set(beside(response.getHeaders(), headers)).send(body);
        return;
      }
      endWith(response, outcome, options.holdUntil);
      response.set(beside(response.getHeaders(), outcome.headers));
      response.locals["rateLimit"] = outcome.decision;
      mark(request, outcome.decision.requestHeaders);
      next();
    };
    // Setting headers fails if other middleware has begun a response.
    guard.decide(infoOf(request)).then(serve).catch(next);
  };
}

function infoOf(request: Request): RequestInfo<Request> {
  return {
    // Requests of adapters may have no socket.
    peer: (request.socket as { readonly remoteAddress?: string } | undefined)?.remoteAddress,
    method: request.method,
    path: request.path,
    native: request,
    header: (name) => headerValues(request, name),
  };
}
