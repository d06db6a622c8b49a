import { create } from "@bufbuild/protobuf";
import type { LocalPart } from "./local.js";
import { RateLimitDescriptor_Unit as Unit, RateLimitRequestSchema, type RateLimitRequest } from "./proto/rls_pb.js";

const COST_MAX = 2n ** 64n - 1n;

const UNITS: Readonly<Record<string, Unit>> = {
  second: Unit.SECOND,
  minute: Unit.MINUTE,
  hour: Unit.HOUR,
  day: Unit.DAY,
  month: Unit.MONTH,
  year: Unit.YEAR,
};

/** Entries as an object, or in an order of their own. */
export type Entries = Readonly<Record<string, string>> | readonly (readonly [key: string, value: string])[];

/** Hits: a whole number of 0 or more; bigint beyond 2^53. */
export type Cost = number | bigint;

/** The subject of a limit: more than entries. */
export class Descriptor {
  readonly entries: readonly (readonly [key: string, value: string])[];
  /** Hits of this descriptor; undefined for those of the call. */
  readonly cost: bigint | undefined;
  /** A limit of the request, instead of the rule's. */
  readonly limit: { readonly requests: number; readonly unit: string } | undefined;
  /** Whether hits are given back instead of taken. */
  readonly givesBack: boolean;

  constructor(
    entries: Entries,
    options: {
      readonly cost?: Cost | undefined;
      readonly limit?: { readonly requests: number; readonly unit: string } | undefined;
      readonly giveBack?: boolean;
    } = {},
  ) {
    if (typeof entries !== "object" || (entries as unknown) === null) {
      throw new TypeError(`a descriptor is ${JSON.stringify(entries)}; use its entries, such as { api_key: id }`);
    }
    this.entries = Array.isArray(entries)
      ? (entries as readonly (readonly [string, string])[])
      : Object.entries(entries);
    this.cost = options.cost === undefined ? undefined : checked(options.cost);
    this.limit = options.limit;
    this.givesBack = options.giveBack ?? false;
    if (this.entries.length === 0) {
      throw new TypeError("a descriptor without entries; name at least one");
    }
    for (const [key, value] of this.entries) {
      if (typeof key !== "string" || typeof value !== "string") {
        throw new TypeError(`the entry ${key} is ${JSON.stringify(value)}; keys and values are strings`);
      }
      if (key === "") {
        throw new TypeError("an entry without key; name the key of the rules");
      }
      if (!isText(key) || !isValue(value)) {
        throw new TypeError(`the entry ${JSON.stringify(key)} is no UTF-8; keys and values are sent as UTF-8`);
      }
    }
    if (this.limit !== undefined && UNITS[this.limit.unit] === undefined) {
      throw new TypeError(`the unit of a limit is ${this.limit.unit}; use one of ${Object.keys(UNITS).join(", ")}`);
    }
  }
}

/** A descriptor, or the entries of one. */
export type DescriptorLike = Descriptor | Readonly<Record<string, string>>;

/** The descriptors that renew the slots and estimates of a ticket. */
export function renewalOf(
  descriptors: DescriptorLike | readonly DescriptorLike[],
  ticket: string,
): readonly Descriptor[] {
  const given = Array.isArray(descriptors)
    ? (descriptors as readonly DescriptorLike[])
    : [descriptors as DescriptorLike];
  return given.map((one) => {
    const { entries, limit } = one instanceof Descriptor ? one : new Descriptor(one);
    // Zero hits are a peek, which renews nothing.
    return new Descriptor([...entries, ["renew", ticket]], { cost: 1, limit });
  });
}

/** One request: its message, and its identity among kept denials. */
export class Request {
  readonly #domain: string;
  readonly #descriptors: readonly Descriptor[];
  readonly costs: readonly bigint[];
  readonly givesBack: boolean;
  #identity: string | undefined;

  constructor(domain: string, descriptors: DescriptorLike | readonly DescriptorLike[], cost: Cost, giveBack: boolean) {
    if (domain === "") {
      throw new TypeError("no domain; name it in the client or in the call");
    }
    const ofCall = checked(cost);
    const given = Array.isArray(descriptors)
      ? (descriptors as readonly DescriptorLike[])
      : [descriptors as DescriptorLike];
    if (given.length === 0) {
      throw new TypeError("no descriptor; name one, such as { api_key: id }");
    }
    this.#domain = domain;
    this.#descriptors = given.map((one) => {
      const descriptor = one instanceof Descriptor ? one : new Descriptor(one);
      return giveBack && !descriptor.givesBack
        ? new Descriptor(descriptor.entries, { cost: descriptor.cost, limit: descriptor.limit, giveBack })
        : descriptor;
    });
    this.costs = this.#descriptors.map((descriptor) => descriptor.cost ?? ofCall);
    this.givesBack = this.#descriptors.some((descriptor) => descriptor.givesBack);
  }

  /** A text that differs between requests that differ in more than costs. */
  get identity(): string {
    this.#identity ??= JSON.stringify([
      this.#domain,
      ...this.#descriptors.map(({ entries, limit }) => [entries, limit?.requests, limit?.unit]),
    ]);
    return this.#identity;
  }

  /** A text for the domain and the keys of each descriptor, or only of descriptors that give back. */
  shapes(isGivingBack: boolean): string[] {
    return this.#descriptors
      .filter((descriptor) => descriptor.givesBack || !isGivingBack)
      .map(({ entries }) => JSON.stringify([this.#domain, ...entries.map(([key]) => key)]));
  }

  /** The entries and hits of each descriptor, for limits of this process. */
  parts(): readonly LocalPart[] {
    return this.#descriptors.map(({ entries, givesBack }, index) => {
      return { entries, givesBack, cost: this.costs[index] ?? 1n };
    });
  }

  message(): RateLimitRequest {
    return create(RateLimitRequestSchema, {
      domain: this.#domain,
      descriptors: this.#descriptors.map((descriptor, index) => {
        const cost = this.costs[index];
        return {
          entries: descriptor.entries.map(([key, value]) => ({ key, value: bytesOf(value) })),
          isNegativeHits: descriptor.givesBack,
          // An explicit 0 is a peek; an absent cost is 1.
          ...(cost === undefined || cost === 1n ? {} : { hitsAddend: cost }),
          ...(descriptor.limit === undefined
            ? {}
            : {
                limit: {
                  requestsPerUnit: descriptor.limit.requests,
                  unit: UNITS[descriptor.limit.unit] ?? Unit.UNKNOWN,
                },
              }),
        };
      }),
    });
  }
}

/** The UTF-8 of a value; a lone surrogate U+DC80 to U+DCFF is the byte 80 to ff. */
function bytesOf(value: string): Uint8Array<ArrayBuffer> {
  const encoder = new TextEncoder();
  if (isText(value)) {
    return encoder.encode(value);
  }
  const codes = Array.from(value, (character) => character.codePointAt(0) ?? 0);
  return Uint8Array.from(
    codes.flatMap((code) =>
      code >= 0xdc80 && code <= 0xdcff ? [code & 0xff] : [...encoder.encode(String.fromCodePoint(code))],
    ),
  );
}

/** The text of a value's bytes. If they are not UTF-8, bytes beyond ASCII are written as `\xff`. */
export function textOf(value: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(value);
  } catch {
    const write = (byte: number): string => (byte < 0x80 ? String.fromCharCode(byte) : `\\x${byte.toString(16)}`);
    return Array.from(value, write).join("");
  }
}

/** Whether a string is UTF-8, or has lone surrogates U+DC80 to U+DCFF for bytes that are not. */
export function isValue(text: string): boolean {
  return isText(text) || isText(text.replace(/[\udc80-\udcff]/gu, ""));
}

/** Whether a string is UTF-8: lone surrogates are not, and would all be sent as the same character. */
export function isText(text: string): boolean {
  return !/\p{Surrogate}/u.test(text);
}

function checked(cost: Cost): bigint {
  if (typeof cost === "number" && !Number.isSafeInteger(cost)) {
    throw new RangeError(`the cost is ${cost}; use a whole number, and bigint beyond 2^53`);
  }
  const hits = BigInt(cost);
  if (hits < 0n || hits > COST_MAX) {
    throw new RangeError(`the cost is ${hits.toString()}; use 0 to 2^64-1 (hits are returned by giveBack)`);
  }
  return hits;
}
