import { isIPv4, isIPv6 } from "node:net";

/**
 * What becomes of a request that lacks the value of a key: it is refused with 400 (`reject`), not limited here (`allow`), or
 * shares one counter with all such requests (`shared`). There is no default: it is a decision about security.
 */
export type Missing = "reject" | "allow" | "shared";

/** What keys read of a request, whatever the framework. `T` is the framework's own request. */
export interface RequestInfo<T> {
  /** The address of the other end of the connection; undefined if it has none. */
  readonly peer: string | undefined;
  readonly method: string;
  readonly path: string;
  /** The framework's own request. */
  readonly native: T;
  /** All values of a header, in order. */
  header(name: string): readonly string[];
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

/** Returns a key with the value of a header, the last one if it is repeated. */
export function header(name: string, options: { readonly entry: string; readonly missing: Missing }): Key {
  return { ...options, read: (request) => request.header(name).at(-1)?.trim() };
}

/** Returns a key with a value that is read from the framework's own request. */
export function custom<T>(
  entry: string,
  read: (request: T) => string | undefined,
  options: { readonly missing: Missing },
): Key<T> {
  return { entry, missing: options.missing, read: (request) => read(request.native) };
}

/**
 * Returns a key with the client's address, IPv6 cut to its /64 network.
 *
 * `trustedProxies` is how many proxies of your own append to `X-Forwarded-For` on the way. With 0 the header is not read
 * at all, since any client can write it.
 */
export function clientAddress(options: {
  readonly trustedProxies: number;
  readonly entry?: string;
  readonly missing: Missing;
}): Key {
  if (!Number.isSafeInteger(options.trustedProxies) || options.trustedProxies < 0) {
    throw new RangeError(`trustedProxies is ${options.trustedProxies}; use 0 or more`);
  }
  return {
    entry: options.entry ?? "client_address",
    missing: options.missing,
    read: (request) => addressOf(request.peer, request.header("x-forwarded-for"), options.trustedProxies),
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
  // Each trusted proxy has appended the address it saw; what stands left of them came from the client.
  const written = forwardedFor.flatMap((line) => line.split(","));
  const address = written.at(-trustedProxies);
  return address === undefined ? undefined : normalized(address);
}

function normalized(address: string): string | undefined {
  let text = address.trim();
  if (text.startsWith("[")) {
    text = text.slice(1).split("]")[0] ?? "";
  } else if (text.split(":").length === 2) {
    text = text.split(":")[0] ?? "";
  }
  text = text.split("%")[0] ?? "";
  if (isIPv4(text)) {
    return text;
  }
  if (!isIPv6(text)) {
    return undefined;
  }
  const groups = groupsOf(text);
  if (groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff) {
    return groups
      .slice(6)
      .flatMap((group) => [group >> 8, group & 0xff])
      .join(".");
  }
  return `${network(groups.slice(0, 4))}/64`;
}

/** The eight groups of a valid IPv6 address. */
function groupsOf(address: string): number[] {
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(address);
  let text = address;
  if (dotted !== null) {
    const [a = 0, b = 0, c = 0, d = 0] = dotted.slice(2).map(Number);
    text = `${dotted[1] ?? ""}${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
  }
  const [left = "", right] = text.split("::");
  const parse = (part: string): number[] =>
    part === "" ? [] : part.split(":").map((group) => Number.parseInt(group, 16));
  const before = parse(left);
  const after = right === undefined ? [] : parse(right);
  const zeros = right === undefined ? 0 : 8 - before.length - after.length;
  return [...before, ...new Array<number>(zeros).fill(0), ...after];
}

/**
 * The network of four groups as RFC 5952 writes it: the second half is zero, so that the longest run of zeros is always the
 * one at the end.
 */
function network(groups: readonly number[]): string {
  const kept = [...groups];
  while (kept.at(-1) === 0) {
    kept.pop();
  }
  return `${kept.map((group) => group.toString(16)).join(":")}::`;
}
