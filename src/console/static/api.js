// Calls of the control API, and conversions of its JSON.

const TOKEN = "tidegate-token";

/** Milliseconds for a response; a replay of recent decisions takes ten seconds. */
const TIMEOUT = 30_000;
/** Milliseconds without a line after which a stream is given up: the server sends one every 15 s, if only a sign of life. */
const SILENCE = 45_000;

/** A response other than 200, or none at all (status 0). */
export class ApiError extends Error {
  constructor(status, body) {
    super(body?.message || (status ? `HTTP status ${status}` : "the server does not respond"));
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
  if (!response.ok) throw new ApiError(response.status, await refusal(response));
  return response;
}

/** The error of the API, or the plain text by which the port refuses a request. A proxy's page is left out. */
async function refusal(response) {
  const text = await response.text().catch(() => "");
  if (response.headers.get("content-type")?.startsWith("text/plain")) return { message: text.trim() };
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** A signal for a call that ends. */
const timed = (signal) => AbortSignal.any([AbortSignal.timeout(TIMEOUT), ...(signal ? [signal] : [])]);

const send = (method, message, signal) => request(`control/v1/${method}`,
  { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(message), signal });

/** Whether every call of this browser needs a token. */
export async function needsToken() {
  return (await (await request("console/access.json", { signal: timed() })).json()).needsToken;
}

/** The declarations of the rules in force, as one YAML stream. */
export async function rulesInForce(signal) {
  return (await request("rules", { headers: { accept: "application/yaml" }, signal: timed(signal) })).text();
}

/** One call; the request and the response are protobuf's JSON. */
export async function call(method, message = {}, signal) {
  const response = await send(method, message, timed(signal));
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0);
  }
}

/** Events of `Tail` until the stream ends; `onEvent` receives each. Fails if the server or the path to it hangs. */
export async function tail(filter, onEvent, signal) {
  const silence = new AbortController();
  const wait = () => setTimeout(() => silence.abort(), SILENCE);
  let timer = wait();
  try {
    const response = await send("Tail", filter, AbortSignal.any([signal, silence.signal]));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = wait();
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line) onEvent(JSON.parse(line));
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Seconds of a duration such as `1.5s`. */
export const seconds = (duration) => (duration ? Number.parseFloat(duration) : 0);

/** A 64-bit integer, which is a string in JSON; absent if it is 0. */
export const number = (text) => Number(text || 0);
