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

/** One call; the request and the response are protobuf's JSON. */
export async function call(method, request = {}, signal) {
  const headers = { "content-type": "application/json" };
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  try {
    const response = await fetch(`control/v1/${method}`, { method: "POST", headers, body: JSON.stringify(request), signal });
    if (response.ok) return await response.json();
    throw new ApiError(response.status, await response.json().catch(() => null));
  } catch (error) {
    // The request was given up by the page, or the server refused it; else there is no whole response.
    throw error.name === "AbortError" || error instanceof ApiError ? error : new ApiError(0);
  }
}

/** Seconds of a duration such as `1.5s`. */
export const seconds = (duration) => (duration ? Number.parseFloat(duration) : 0);

/** A 64-bit integer, which is a string in JSON; absent if it is 0. */
export const number = (text) => Number(text || 0);
