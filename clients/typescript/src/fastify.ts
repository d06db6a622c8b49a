/**
 * A plugin for Fastify.
 *
 * @packageDocumentation
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Decision } from "./decision.js";
import { endUnserved, Guard, type RateLimitOptions } from "./guard.js";
import { beside, endWith, isOver, headerValues, mark, type SlotOptions } from "./incoming.js";
import type { RequestInfo } from "./keys.js";

export type { DeniedBody, RateLimitOptions } from "./guard.js";
export type { HoldUntil, SlotOptions } from "./incoming.js";

declare module "fastify" {
  interface FastifyRequest {
    /** The decision on the request by the innermost plugin; undefined if it is not limited. */
    rateLimit: Decision | undefined;
  }
}

/**
 * Limits the requests of an application and of all its plugins; the decision is at `request.rateLimit`. A plugin may register it again, for
 * stricter limits on its own routes.
 */
export function rateLimit(
  fastify: FastifyInstance,
  options: RateLimitOptions<FastifyRequest> & SlotOptions,
  done: (error?: Error) => void,
): void {
  const guard = new Guard(options);
  if (!fastify.hasRequestDecorator("rateLimit")) {
    fastify.decorateRequest("rateLimit", undefined);
  }
  fastify.addHook("onRequest", async (request: FastifyRequest, reply: FastifyReply) => {
    const outcome = await guard.decide(infoOf(request));
    if (outcome === undefined) {
      return undefined;
    }
    if (isOver(reply.raw)) {
      // The handler is not started.
      endUnserved(outcome);
      return reply.hijack();
    }
    if ("refusal" in outcome) {
      const { status, headers, body } = outcome.refusal;
      return reply.code(status).headers(beside(reply.getHeaders(), headers)).send(body);
    }
    endWith(reply.raw, outcome, options.holdUntil, () => reply.sent && !reply.raw.writableEnded);
    reply.headers(beside(reply.getHeaders(), outcome.headers));
    request.rateLimit = outcome.decision;
    mark(request.raw, outcome.decision.requestHeaders);
    return undefined;
  });
  done();
}

// Like fastify-plugin: the hook belongs to the application, not to an encapsulated context.
Object.defineProperty(rateLimit, Symbol.for("skip-override"), { value: true });

function infoOf(request: FastifyRequest): RequestInfo<FastifyRequest> {
  return {
    // Requests of adapters may have no socket.
    peer: (request.raw.socket as { readonly remoteAddress?: string } | undefined)?.remoteAddress,
    method: request.method,
    path: request.url.split("?")[0] ?? "",
    native: request,
    header: (name) => headerValues(request.raw, name),
  };
}
