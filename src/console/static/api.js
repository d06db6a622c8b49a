// Calls of the control API, and what of its JSON needs conversion.

const TOKEN = "tidegate-token";

/** A response other than 200, or none at all (status 0). */
export class ApiError extends Error {
  constructor(status, body) {
    super(body?.message || (status ? `HTTP status ${status}` : "the server does not respond"));
    this.status = status;
    this.code = body?.code || "";
    this.fields = body?.fields || [];
  }
}

/** Kept for as long as the tab is open. */
export const token = {
  get: () => sessionStorage.getItem(TOKEN) || "",
  set: (text) => (text ? sessionStorage.setItem(TOKEN, text) : sessionStorage.removeItem(TOKEN)),
};

async function send(method, request, signal) {
  const headers = { "content-type": "application/json" };
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  let response;
  try {
    response = await fetch(`control/v1/${method}`, { method: "POST", headers, body: JSON.stringify(request), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0);
  }
  if (!response.ok) throw new ApiError(response.status, await response.json().catch(() => null));
  return response;
}

/** One call; the request and the response are protobuf's JSON. */
export async function call(method, request = {}, signal) {
  const response = await send(method, request, signal);
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0);
  }
}

/** Events of `Tail` until the stream ends; `onEvent` receives each. */
export async function tail(request, onEvent, signal) {
  const response = await send("Tail", request, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line) onEvent(JSON.parse(line));
  }
}

/** Seconds of a duration such as `1.5s`. */
export const seconds = (duration) => (duration ? Number.parseFloat(duration) : 0);

/** A 64-bit integer, which is a string in JSON; absent if it is 0. */
export const number = (text) => Number(text || 0);
