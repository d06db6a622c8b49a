// Elements, formats and dialogs. Texts become text nodes only: no text is parsed as markup.

import { seconds } from "./api.js";

/** An element. Properties: `class`, `on…` listeners, `style` (an object), other attributes; null and false are left out. */
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const LONG = 160;

/** A text of a client, with invisible and reordering characters in a visible form, and shortened. */
export function visible(text, long = LONG) {
  const shown = String(text).slice(0, long).replace(INVISIBLE, (c) => `\u27e8U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`);
  return text.length > long ? `${shown}\u2026 (${text.length} characters)` : shown;
}

/** Characters at the end of a text that `middle` keeps; console.css has the same number. */
const END = 14;

/** A text whose middle is left out if the cell is too narrow: the ends of paths and places differ most. */
export function middle(text, long = 400) {
  const cut = text.length > long ? `${text.slice(0, long / 2)}\u2026${text.slice(-long / 2)}` : text;
  const whole = visible(cut, cut.length);
  if (whole.length <= END) return whole;
  return h("span", { class: "middle mono", title: whole }, h("span", {}, whole.slice(0, -END)), whole.slice(-END));
}

/** Entries of a descriptor. */
export function entries(list) {
  const shown = (list || []).map(({ key, value }, index) => [
    index ? ", " : "",
    h("span", { class: "k" }, visible(key || ""), "="),
    h("bdi", {}, visible(value || "")),
  ]);
  return h("span", { class: "entry mono" }, shown);
}

export const entriesText = (list) => (list || []).map(({ key, value }) => `${visible(key || "", 60)}=${visible(value || "", 60)}`).join(", ");

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (n) => whole.format(Math.round(n));
export const counted = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
export const compact = (n) => (n < 1000 && !Number.isInteger(n) ? n.toFixed(1) : short.format(n));
export const rate = (n) => (n ? `${compact(n)}/s` : "0/s");
export const percent = (part, all) => (all ? `${((100 * part) / all).toFixed(1)} %` : "\u2013");

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; n >= 1024 && unit < units.length - 1; unit += 1) n /= 1024;
  return `${unit && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

/** A duration in seconds, in at most two units. */
export function duration(s) {
  if (s <= 0) return "0 s";
  if (s < 1e-3) return `${(s * 1e6).toFixed(0)} \u00b5s`;
  if (s < 1) return `${(s * 1e3).toFixed(s < 0.01 ? 1 : 0)} ms`;
  if (s < 60) return `${s < 10 ? s.toFixed(1).replace(/\.0$/, "") : Math.round(s)} s`;
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  let rest = Math.round(s);
  const parts = [];
  for (const [length, name] of units) {
    if (rest >= length) parts.push(`${Math.floor(rest / length)} ${name}`);
    rest %= length;
  }
  return parts.slice(0, 2).join(" ");
}

const names = { 1: "second", 60: "minute", 3600: "hour", 86400: "day", 604800: "week", 2592000: "month", 31536000: "year" };
export const UNITS = Object.values(names);

/** A window as in `10 per minute`. */
export const window_ = (s) => names[s] || duration(s);

const CAUSES = {
  counters_full: "the counters are full, and no limit is exceeded: raise --max-counters",
  store_away: "the shared store does not decide, and no limit is known to be exceeded",
};

/** Why a descriptor is denied, or admitted uncounted, if not by its limit. */
export const causeText = ({ code, cause }) =>
  `${code === "OVER_LIMIT" ? "Denied" : "Admitted, and not counted,"} because ${CAUSES[cause] || visible(cause)}.`;

/** A limit in words. The algorithm of requests in flight has no window: slots end at the latest after it. */
export const limitText = ({ requests = 0, window, algorithm = "" }) => (isInFlight(algorithm)
  ? `${count(requests)} in flight, held for at most ${duration(seconds(window))}`
  : `${count(requests)} per ${window_(seconds(window))}`);

export const isInFlight = (algorithm) => algorithm === "concurrency";

/** The slots of a key: how long each has been held. */
export function slotsText(counter) {
  const ages = (counter.slots || []).slice(0, 10).map((slot) => duration(seconds(slot.age)) + (slot.hits > 1 ? ` \u00d7 ${count(slot.hits)} hits` : ""));
  const more = (counter.slotCount || 0) - ages.length;
  return ages.length ? `${counted(counter.slotCount, "slot")}, held for ${ages.join(", ")}${more > 0 ? ` and ${count(more)} more` : ""}` : "";
}

/** What is reserved of a key: estimates of requests whose cost is not known yet. The API has the hits as a text. */
export const reservedText = ({ reserved, reservationCount = 0 }) => (reservationCount
  ? `${count(Number(reserved))} reserved by ${counted(reservationCount, "request")}` : "");

/** The path of a rule with the names of its limits that differ from it, as metrics have them: `user (per-user)`. */
export function named(rule = "", limits = []) {
  const names = limits.filter((name) => name && name !== rule);
  return names.length ? `${rule} (${names.join(", ")})` : rule;
}

/** The same as the API expects it: a unit, or a length, which is a whole number of milliseconds at least. */
export const unit = (s) => names[s] || (Number.isInteger(s) ? `${s}s` : `${Math.round(1000 * s)}ms`);

const LOCAL = { day: "2-digit", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" };
const local = new Intl.DateTimeFormat("en-GB", LOCAL);

/** A time of the browser's zone, which is named. */
export const dateTime = (time) => (time ? local.format(new Date(time)) : "");

/** The name of the browser's zone at present. */
export const zone = () => local.formatToParts(new Date()).find(({ type }) => type === "timeZoneName").value;

export const verdict = (code) =>
  code === "OVER_LIMIT" ? h("span", { class: "tag denied" }, "denied") : h("span", { class: "tag admitted" }, "admitted");

export function bar(part, all, kind = "") {
  const share = all > 0 ? Math.min(1, part / all) : 0;
  return h("div", { class: `bar ${kind}` }, h("i", { style: { width: `${100 * share}%` } }));
}

/** A table; a column is [name, cell(row), is number]. */
export function table(columns, rows, label) {
  const of = (column) => (column[2] ? { class: "n" } : null);
  const cells = (row) => columns.map((column) => h("td", of(column), column[1](row)));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", {},
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { ...of(column), scope: "col" }, column[0])))),
      h("tbody", {}, rows.map((row) => h("tr", {}, cells(row))))));
}

let noticeTimer;
/** Shows a message for some seconds. */
export function notice(text) {
  const place = document.getElementById("notice");
  place.textContent = text;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => { place.textContent = ""; }, 5000);
}

/** Closes an open dialog, when its page is left. */
export const closeDialogs = () => document.querySelectorAll("dialog").forEach((dialog) => dialog.close());

/** A dialog with fields; `act` receives their values. It stays open with the message if that fails. */
export function ask({ title, about, fields = [], verb, danger = false, act }) {
  const opener = document.activeElement;
  const message = h("p", { class: "error", role: "alert" });
  const inputs = fields.map((field) => {
    const control = field.options
      ? h("select", { name: field.name }, field.options.map(([value, text]) => h("option", { value }, text)))
      : h("input", { name: field.name, type: field.type || "text", value: field.value ?? "", required: field.required, min: field.min, autocomplete: "off", maxlength: field.maxlength, list: field.suggested && `${field.name}-suggested` });
    const suggested = field.suggested && h("datalist", { id: `${field.name}-suggested` }, field.suggested.map((value) => h("option", { value })));
    return h("label", {}, field.label, control, suggested);
  });
  const button = h("button", { class: danger ? "danger" : "primary" }, verb);
  const form = h("form", { onsubmit: submit }, h("h2", { id: "dialog-title" }, title), about, inputs, message,
    h("div", { class: "row" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), button));
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => { dialog.remove(); opener?.focus(); } }, form);
  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    try {
      notice((await act(Object.fromEntries(new FormData(form)))) || "Done");
      dialog.close();
    } catch (error) {
      message.textContent = failure(error);
      button.disabled = false;
    }
  }
  document.body.append(dialog);
  dialog.showModal();
}

/** The message of an error, with the fields that it is about. */
export function failure(error) {
  const fields = (error.fields || []).map(({ field, message }) => `${field}: ${message}`);
  return [error.message, ...fields.filter((text) => !error.message.includes(text))].join("; ");
}

export const EXPIRIES = [["600s", "10 minutes"], ["3600s", "1 hour"], ["86400s", "1 day"], ["604800s", "1 week"], ["", "never"]];

export const REASON = { name: "reason", label: "Reason, for the audit log", required: true, maxlength: 500 };

/** Inputs for the entries of one descriptor. `read()` has those with a key. */
export function entriesEditor(initial, label) {
  const rows = h("div", { class: "entries" });
  const add = ({ key = "", value = "" } = {}) => rows.append(h("div", { class: "row" },
    h("input", { "aria-label": `${label}: key`, placeholder: "key", value: key, autocomplete: "off", spellcheck: "false" }),
    h("input", { "aria-label": `${label}: value`, placeholder: "value", value, autocomplete: "off", spellcheck: "false" }),
    h("button", { type: "button", "aria-label": `${label}: remove this entry`, onclick: (event) => event.currentTarget.parentNode.remove() }, "\u00d7")));
  (initial?.length ? initial : [{}]).forEach(add);
  const element = h("div", {}, rows, h("button", { type: "button", class: "link", onclick: () => { add(); rows.lastChild.querySelector("input").focus(); } }, "Add an entry"));
  const read = () => [...rows.children].map((row) => [...row.querySelectorAll("input")].map((input) => input.value))
    .filter(([key]) => key).map(([key, value]) => ({ key, value }));
  return { element, read };
}

/** Entries as parameters of an address, and back. */
export const entriesToParams = (list) => (list || []).map(({ key, value }) => ["e", `${encodeURIComponent(key || "")}=${value || ""}`]);
export const entriesFromParams = (params) => params.getAll("e").map((text) => {
  const at = text.includes("=") ? text.indexOf("=") : text.length;
  const [key, value] = [text.slice(0, at), text.slice(at + 1)];
  try {
    return { key: decodeURIComponent(key), value };
  } catch {
    // An address that was edited by hand.
    return { key, value };
  }
});

/** A list of which only the rows in view are elements. `draw(element, index)` fills a row that is reused. */
export class VirtualList {
  constructor({ height, label, draw, onOpen, columns }) {
    Object.assign(this, { height, draw, onOpen, length: 0, selected: -1, pool: [] });
    this.space = h("div", { class: "space", role: "rowgroup" });
    this.element = h("div", { class: "list", tabindex: "0", role: "table", "aria-label": label, "aria-colcount": columns },
      this.space);
    this.element.addEventListener("scroll", () => this.schedule(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.observer = new ResizeObserver(() => this.schedule());
    this.observer.observe(this.element);
  }

  setLength(length) {
    this.length = length;
    this.space.style.height = `${length * this.height}px`;
    this.element.setAttribute("aria-rowcount", String(length));
    this.schedule();
  }

  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => { this.frame = 0; this.render(); });
  }

  /** Indexes of the rows in view. */
  range() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / this.height) - 4);
    const shown = Math.ceil(this.element.clientHeight / this.height) + 8;
    return [first, Math.min(this.length, first + shown)];
  }

  render() {
    const [first, end] = this.range();
    while (this.pool.length < end - first) {
      const row = h("div", { class: "item", role: "row" });
      row.addEventListener("click", () => this.open(row.index));
      this.space.append(row);
      this.pool.push(row);
    }
    this.pool.forEach((row, at) => {
      const index = first + at;
      row.hidden = index >= end;
      if (row.hidden) return;
      row.index = index;
      row.style.transform = `translateY(${index * this.height}px)`;
      row.setAttribute("aria-rowindex", String(index + 1));
      if (this.onOpen) row.setAttribute("aria-selected", String(index === this.selected));
      this.draw(row, index);
    });
  }

  open(index) {
    if (!this.onOpen) return;
    this.selected = index;
    this.onOpen(index);
    this.schedule();
  }

  key(event) {
    if (!this.onOpen) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && this.selected >= 0) this.open(this.selected);
    if (!(event.key in moves) || !this.length) return;
    event.preventDefault();
    this.selected = Math.min(this.length - 1, Math.max(0, this.selected + moves[event.key]));
    const top = this.selected * this.height;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + this.height > scrollTop + clientHeight) this.element.scrollTop = top + this.height - clientHeight;
    this.schedule();
  }

  close() {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
  }
}

/** Puts texts or elements into the cells of a reused row. */
export function fill(row, cells) {
  while (row.children.length < cells.length) row.append(h("span", { role: "cell" }));
  cells.forEach((cell, index) => {
    const place = row.children[index];
    if (typeof cell === "string") {
      if (place.textContent !== cell || place.firstElementChild) place.textContent = cell;
    } else if (place.textContent !== cell.textContent || !place.firstElementChild) place.replaceChildren(cell);
  });
}
