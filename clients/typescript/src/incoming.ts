import type { IncomingMessage, ServerResponse } from "node:http";
import type { Header } from "./decision.js";
import type { Slot } from "./slot.js";

/** Sets headers of a decision in a request of Node.js, instead of those of the client. */
export function mark(request: IncomingMessage, marks: readonly Header[]): void {
  const names = new Set(marks.map(([name]) => name.toLowerCase()));
  if (names.size === 0) {
    return;
  }
  const { headers, headersDistinct, rawHeaders } = request;
  for (const name of names) {
    const values = marks.filter(([marked]) => marked.toLowerCase() === name).map(([, value]) => value);
    headers[name] = values.join(", ");
    headersDistinct[name] = values;
  }
  const kept = rawHeaders.filter((_, index) => !names.has((rawHeaders[index & ~1] ?? "").toLowerCase()));
  rawHeaders.splice(0, rawHeaders.length, ...kept, ...marks.flat());
}

/** Releases slots when the response was sent, or its client has gone. */
export function releaseAtEnd(response: ServerResponse, slot: Slot): void {
  if (response.destroyed) {
    void slot.release();
  } else {
    response.once("close", () => void slot.release());
  }
}
