/**
 * Rate limits that a Tidegate server decides.
 *
 * @packageDocumentation
 */

export { Tidegate, type TidegateOptions } from "./client.js";
export {
  RateLimiter,
  RequestError,
  type CallOptions,
  type ClientOptions,
  type Logger,
  type OnFailure,
} from "./engine.js";
export { Decision, type Extras, type Header, type Limit, type Mode, type Reason, type Status } from "./decision.js";
export {
  addressOf,
  BadKeyError,
  clientAddress,
  constant,
  custom,
  forwardedAddressOf,
  header,
  type Key,
  type Missing,
  type RequestInfo,
} from "./keys.js";
export type { LocalLimit } from "./local.js";
export { Descriptor, type Cost, type DescriptorLike, type Entries } from "./request.js";
export { Slot } from "./slot.js";
