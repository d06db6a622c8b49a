const NANOS_PER_SECOND = 1_000_000_000n;

/** Seconds of each unit, as the server counts them. */
const UNIT_SECONDS: Readonly<Record<string, bigint>> = {
  second: 1n,
  minute: 60n,
  hour: 3600n,
  day: 86_400n,
  week: 604_800n,
  month: 2_592_000n,
  year: 31_536_000n,
};

/** Units in which a window is written, the largest first. */
const SCALES = [
  [86_400n * NANOS_PER_SECOND, "d"],
  [3600n * NANOS_PER_SECOND, "h"],
  [60n * NANOS_PER_SECOND, "m"],
  [NANOS_PER_SECOND, "s"],
  [1_000_000n, "ms"],
  [1000n, "us"],
] as const;

/** A number of requests per window. */
export interface Limit {
  /** Hits that fit into one window. */
  readonly requests: number;
  /** `second`, `minute`, `hour`, `day`, `week`, `month`, `year`; empty if the window is not one unit. */
  readonly unit: string;
  /** The limit's name in the rules; empty if it has none. */
  readonly name: string;
  /** Nanoseconds of the window; undefined if the server does not send it. A month has 30 days, a year 365. */
  readonly windowNs: bigint | undefined;
}

/** Nanoseconds of a unit; undefined if it has no name here. */
export function unitNs(unit: string): bigint | undefined {
  const seconds = UNIT_SECONDS[unit];
  return seconds === undefined ? undefined : seconds * NANOS_PER_SECOND;
}

/** The limit as an item of `RateLimit-Policy`. */
export function policy(limit: Limit): string {
  const { windowNs } = limit;
  // The draft's windows are whole seconds.
  const isShown = windowNs !== undefined && windowNs % NANOS_PER_SECOND === 0n;
  return `${quoted(limit)};q=${limit.requests}${isShown ? `;w=${windowNs / NANOS_PER_SECOND}` : ""}`;
}

/** The limit's name as a structured String (RFC 9651). */
export function quoted(limit: Limit): string {
  let text = "";
  for (const byte of new TextEncoder().encode(limit.name || numbersOf(limit))) {
    const character = String.fromCharCode(byte);
    if (character === '"' || character === "\\") {
      text += `\\${character}`;
    } else if (byte >= 0x20 && byte < 0x7f) {
      text += character;
    } else {
      text += `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
    }
  }
  return `"${text}"`;
}

/** The name of an unnamed limit: `5-per-minute`, `5-per-10s`, or `5` if its window is not known. */
export function numbersOf({ requests, unit, windowNs }: Limit): string {
  if (unit !== "") {
    return `${requests}-per-${unit}`;
  }
  return windowNs === undefined ? String(requests) : `${requests}-per-${windowText(windowNs)}`;
}

/** A window as a whole number of the largest possible unit. */
function windowText(windowNs: bigint): string {
  const scale = SCALES.find(([length]) => windowNs % length === 0n);
  return scale === undefined ? `${windowNs}ns` : `${windowNs / scale[0]}${scale[1]}`;
}
