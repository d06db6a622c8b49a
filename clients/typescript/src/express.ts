/**
 * Middleware for Express.
 *
 * @packageDocumentation
 */
import type { NextFunction, Request, RequestHandler, Response } from "express";
import { Guard, type RateLimitOptions } from "./guard.js";
import { mark, releaseAtEnd } from "./incoming.js";
import type { RequestInfo } from "./keys.js";

export type { RateLimitOptions } from "./guard.js";

/** Returns middleware that limits requests; the decision is at `response.locals.rateLimit`. */
export function rateLimit(options: RateLimitOptions<Request>): RequestHandler {
  const guard = new Guard(options);
  return (request: Request, response: Response, next: NextFunction): void => {
    guard.decide(infoOf(request)).then((outcome) => {
      if (outcome !== undefined && "refusal" in outcome) {
        response.status(outcome.refusal.status).set(outcome.refusal.headers).send(outcome.refusal.body);
        return;
      }
      if (outcome !== undefined) {
        releaseAtEnd(response, outcome.slot);
        response.set(outcome.headers);
        response.locals["rateLimit"] = outcome.decision;
        mark(request, outcome.decision.requestHeaders);
      }
      next();
    }, next);
  };
}

function infoOf(request: Request): RequestInfo<Request> {
  return {
    peer: request.socket.remoteAddress,
    method: request.method,
    path: request.path,
    native: request,
    header: (name) => request.headersDistinct[name.toLowerCase()] ?? [],
  };
}
