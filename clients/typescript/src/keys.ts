/**
 * The treatment of a request without the value of a key: refused with 400 (`reject`), not limited here (`allow`), or one
 * counter shared by all such requests (`shared`). There is no default: it is a decision about security.
 */
export type Missing = "reject" | "allow" | "shared";

/** The parts of a request that keys read, for any framework. `T` is the framework's own request. */
export interface RequestInfo<T> {
  /** The address of the other end of the connection; undefined if it has none. */
  readonly peer: string | undefined;
  readonly method: string;
  readonly path: string;
  /** The framework's own request. */
  readonly native: T;
  /** All values of a header, in order, a character for each byte. */
  header(name: string): readonly string[];
  /** Whether the platform joins the values of a repeated header by commas. */
  readonly joinsHeaders?: boolean;
}

/** One entry of a descriptor, read from requests. */
export interface Key<T = unknown> {
  /** The entry's key, as in the rules. */
  readonly entry: string;
  readonly missing: Missing;
  read(request: RequestInfo<T>): string | undefined;
}

/** Returns a key with the same value for each request, such as the name of a route. */
export function constant(entry: string, value: string): Key {
  return { entry, missing: "shared", read: () => value };
}

/** A request has a value that is no key, such as a repeated header. */
export class BadKeyError extends Error {}

/**
 * Returns a key with the value of a header, as UTF-8.
 *
 * A request that repeats the header is refused with 400, whatever the values: the application may read another value. Where the
 * platform joins repeated headers (`Headers` of the Fetch API), a value with a comma is one; `custom` reads others.
 */
export function header(name: string, options: { readonly entry: string; readonly missing: Missing }): Key {
  return {
    ...options,
    read: (request) => {
      const values = request.header(name);
      const value = values[0];
      if (values.length > 1 || (request.joinsHeaders === true && value?.includes(",") === true)) {
        throw new BadKeyError(`the header ${name} is repeated`);
      }
      return value === undefined ? undefined : utf8(value).trim();
    },
  };
}

/** Returns a string of bytes, as platforms read headers, as UTF-8; if it is not, bytes beyond ASCII become surrogates. */
function utf8(value: string): string {
  const codes = Array.from({ length: value.length }, (_, index) => value.charCodeAt(index));
  const highest = Math.max(0, ...codes);
  if (highest < 0x80 || highest > 0xff) {
    // Not only bytes: the platform has decoded it.
    return value;
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(codes));
  } catch {
    return String.fromCharCode(...codes.map((code) => (code < 0x80 ? code : 0xdc00 + code)));
  }
}

/**
 * Returns a key with a value that is read from the framework's own request; numbers become text. An empty value, or only spaces, counts as
 * missing.
 */
export function custom<T>(
  entry: string,
  read: (request: T) => string | number | bigint | null | undefined,
  options: { readonly missing: Missing },
): Key<T> {
  return {
    entry,
    missing: options.missing,
    read: (request) => {
      const value = read(request.native) ?? undefined;
      if (typeof value === "number" || typeof value === "bigint") {
        return String(value);
      }
      if (value !== undefined && typeof value !== "string") {
        throw new TypeError(`the key ${entry} is ${JSON.stringify(value)}; return a string, a number or undefined`);
      }
      return value;
    },
  };
}

/**
 * Returns a key with the client's address, IPv6 cut to its /64 network.
 *
 * `trustedProxies` is the number of your own proxies that append to `X-Forwarded-For`. With 0 the header is not read at all, since any
 * client can write it. `forwarded` is the header to which they append: `Forwarded` (RFC 7239) instead.
 */
export function clientAddress(options: {
  readonly trustedProxies: number;
  readonly forwarded?: "x-forwarded-for" | "forwarded";
  readonly entry?: string;
  readonly missing: Missing;
}): Key {
  if (!Number.isSafeInteger(options.trustedProxies) || options.trustedProxies < 0) {
    throw new RangeError(`trustedProxies is ${options.trustedProxies}; use 0 or more`);
  }
  return {
    entry: options.entry ?? "client_address",
    missing: options.missing,
    read: (request) => {
      const lines = request.header(options.forwarded ?? "x-forwarded-for");
      return options.forwarded === "forwarded" && options.trustedProxies > 0
        ? forwardedAddressOf(lines, options.trustedProxies)
        : addressOf(request.peer, lines, options.trustedProxies);
    },
  };
}

/** Returns the client's address for a peer and the `X-Forwarded-For` lines; undefined if it is not known. */
export function addressOf(
  peer: string | undefined,
  forwardedFor: readonly string[],
  trustedProxies: number,
): string | undefined {
  if (trustedProxies === 0) {
    return peer === undefined ? undefined : normalized(peer);
  }
  // Each trusted proxy appended the address that it saw; the client wrote everything left of them.
  const written = forwardedFor.flatMap((line) => line.split(","));
  const address = written.at(-trustedProxies);
  return address === undefined ? undefined : normalized(address);
}

/** Returns the client's address for the `Forwarded` lines (RFC 7239) of this number of proxies; undefined if it is not known. */
export function forwardedAddressOf(forwarded: readonly string[], trustedProxies: number): string | undefined {
  const pairs = split(fromTheRight(forwarded.join(","), trustedProxies) ?? "") ?? [];
  const found = pairs.map((pair) => /^\s*for=("?)(.*)\1\s*$/i.exec(pair)?.[2]).filter((node) => node !== undefined);
  const [address, another] = found;
  return address === undefined || another !== undefined ? undefined : normalized(address);
}

/**
 * The element of a list at this position, counted from the right. Quotes are paired from the right too: the elements of trusted proxies are
 * whole, and left of them a client may have left a quote open.
 */
function fromTheRight(list: string, position: number): string | undefined {
  let end = list.length;
  let left = position;
  let isQuoted = false;
  for (let index = end - 1; index >= 0; index--) {
    if (list[index] === '"' && !(isQuoted && isEscaped(list, index))) {
      isQuoted = !isQuoted;
    } else if (list[index] === "," && !isQuoted) {
      left -= 1;
      if (left === 0) {
        return list.slice(index + 1, end);
      }
      end = index;
    }
  }
  return left === 1 ? list.slice(0, end) : undefined;
}

/** Whether the character at this index is escaped, within quotes. */
function isEscaped(text: string, index: number): boolean {
  let first = index;
  while (text[first - 1] === "\\") {
    first -= 1;
  }
  return (index - first) % 2 === 1;
}

/** Splits a text at semicolons outside of quotes; undefined if a quote is open. */
function split(text: string): string[] | undefined {
  const parts = [""];
  let isQuoted = false;
  let isEscaped = false;
  for (const character of text) {
    if (character === ";" && !isQuoted) {
      parts.push("");
      continue;
    }
    isQuoted = character === '"' && !isEscaped ? !isQuoted : isQuoted;
    isEscaped = isQuoted && character === "\\" && !isEscaped;
    parts.push((parts.pop() ?? "") + character);
  }
  return isQuoted ? undefined : parts;
}

function normalized(address: string): string | undefined {
  let text = address.trim();
  if (text.startsWith("[")) {
    text = text.slice(1).split("]")[0] ?? "";
  } else if (text.split(":").length === 2) {
    text = text.split(":")[0] ?? "";
  }
  text = text.split("%")[0] ?? "";
  if (!text.includes(":")) {
    return octetsOf(text) === undefined ? undefined : text;
  }
  const groups = groupsOf(text);
  if (groups === undefined) {
    return undefined;
  }
  if (groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff) {
    return groups
      .slice(6)
      .flatMap((group) => [group >> 8, group & 0xff])
      .join(".");
  }
  return `${network(groups.slice(0, 4))}/64`;
}

/** The octets of an IPv4 address, without leading zeros; undefined if the text is no such address. */
function octetsOf(text: string): [number, number, number, number] | undefined {
  const parts = text.split(".");
  if (parts.length !== 4 || !parts.every((part) => /^(0|[1-9]\d{0,2})$/.test(part) && Number(part) <= 255)) {
    return undefined;
  }
  return parts.map(Number) as [number, number, number, number];
}

/** The eight groups of an IPv6 address; undefined if the text is no such address. */
function groupsOf(address: string): number[] | undefined {
  let text = address;
  if (address.includes(".")) {
    // The last two groups are written as an IPv4 address.
    const start = address.lastIndexOf(":") + 1;
    const octets = octetsOf(address.slice(start));
    if (octets === undefined) {
      return undefined;
    }
    const [a, b, c, d] = octets;
    text = `${address.slice(0, start)}${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
  }
  const [left = "", right, more] = text.split("::");
  const parts = [left, right ?? ""].map((half) => (half === "" ? [] : half.split(":")));
  const written = parts.flat();
  const isComplete = right === undefined ? written.length === 8 : written.length < 8;
  if (more !== undefined || !isComplete || !written.every((group) => /^[\da-f]{1,4}$/i.test(group))) {
    return undefined;
  }
  const [before = [], after = []] = parts.map((half) => half.map((group) => Number.parseInt(group, 16)));
  return [...before, ...new Array<number>(8 - written.length).fill(0), ...after];
}

/**
 * The network of four groups, as RFC 5952 writes it: the second half is zero, so that the longest run of zeros is always at the end.
 */
function network(groups: readonly number[]): string {
  const kept = [...groups];
  while (kept.at(-1) === 0) {
    kept.pop();
  }
  return `${kept.map((group) => group.toString(16)).join(":")}::`;
}
