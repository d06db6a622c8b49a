// Calls of the control API, and conversions of its JSON.

const TOKEN = "tidegate-token";
const MESSAGES = { 0: "the server does not respond", 413: "the request is longer than --http-max-body-bytes of the server allows" };

/** A response other than 200, or none at all (status 0). */
export class ApiError extends Error {
  constructor(status, body) {
    super(body?.message || MESSAGES[status] || `HTTP status ${status}`);
    this.status = status;
    this.code = body?.code || "";
    this.fields = body?.fields || [];
  }
}

/** Kept until the tab is closed. */
export const token = {
  get: () => sessionStorage.getItem(TOKEN) || "",
  set: (text) => (text ? sessionStorage.setItem(TOKEN, text) : sessionStorage.removeItem(TOKEN)),
};

/** Whether a text has only characters that a header and a token may have. */
export const isToken = (text) => /^[!-~]+$/.test(text);

async function request(path, options) {
  const headers = { ...options.headers };
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0);
  }
  if (!response.ok) throw new ApiError(response.status, await response.json().catch(() => null));
  return response;
}

const send = (method, message, signal) => request(`control/v1/${method}`,
  { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(message), signal });

/** Whether every call of this browser needs a token. */
export async function needsToken() {
  return (await (await request("console/access.json", {})).json()).needsToken;
}

/** The declarations of the rules in force, as one YAML stream. */
export async function rulesInForce(signal) {
  return (await request("rules", { headers: { accept: "application/yaml" }, signal })).text();
}

/** One call; the request and the response are protobuf's JSON. */
export async function call(method, message = {}, signal) {
  const response = await send(method, message, signal);
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0);
  }
}

/** Events of `Tail` until the stream ends; `onEvent` receives each. */
export async function tail(filter, onEvent, signal) {
  const response = await send("Tail", filter, signal);
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
