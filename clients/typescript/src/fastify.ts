/**
 * A plugin for Fastify.
 *
 * @packageDocumentation
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Decision } from "./decision.js";
import { Guard, type RateLimitOptions } from "./guard.js";
import { mark, releaseAtEnd } from "./incoming.js";
import type { RequestInfo } from "./keys.js";

export type { RateLimitOptions } from "./guard.js";

declare module "fastify" {
  interface FastifyRequest {
    /** The decision about the request; undefined if it is not limited. */
    rateLimit: Decision | undefined;
  }
}

/** Limits the requests of an application and of all its plugins; the decision is at `request.rateLimit`. */
export function rateLimit(
  fastify: FastifyInstance,
  options: RateLimitOptions<FastifyRequest>,
  done: (error?: Error) => void,
): void {
  const guard = new Guard(options);
  fastify.decorateRequest("rateLimit", undefined);
  fastify.addHook("onRequest", async (request: FastifyRequest, reply: FastifyReply) => {
    const outcome = await guard.decide(infoOf(request));
    if (outcome === undefined) {
      return undefined;
    }
    if ("refusal" in outcome) {
      return reply.code(outcome.refusal.status).headers(outcome.refusal.headers).send(outcome.refusal.body);
    }
    releaseAtEnd(reply.raw, outcome.slot);
    reply.headers(outcome.headers);
    request.rateLimit = outcome.decision;
    mark(request.raw, outcome.decision.requestHeaders);
    return undefined;
  });
  done();
}

// As fastify-plugin does: the hook belongs to the application, not to an encapsulated context.
Object.defineProperty(rateLimit, Symbol.for("skip-override"), { value: true });

function infoOf(request: FastifyRequest): RequestInfo<FastifyRequest> {
  return {
    peer: request.raw.socket.remoteAddress,
    method: request.method,
    path: request.url.split("?")[0] ?? "",
    native: request,
    header: (name) => request.raw.headersDistinct[name.toLowerCase()] ?? [],
  };
}
