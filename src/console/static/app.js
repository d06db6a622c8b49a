// The frame of all pages: the address, the connection, the caller.

import { ApiError, call, isToken, needsToken, tail, token } from "./api.js";
import { recent } from "./chart.js";
import { closeDialogs, failure, h } from "./view.js";
import audit from "./audit.js";
import keys from "./keys.js";
import live from "./live.js";
import overview from "./overview.js";
import rules from "./rules.js";
import shares from "./shares.js";
import try_ from "./try.js";
import unlimited from "./unlimited.js";
import whatIf from "./what-if.js";

const PAGES = { overview, rules, keys, live, unlimited, shares, try: try_, "what-if": whatIf, audit };
const POLL = 2000;

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const listeners = new Set();
let closePage = null;
let pollTimer;
let failures = 0;

/** Shared with the pages. */
const console_ = {
  status: null,
  history: [],
  get mayOperate() { return this.status?.role === "OPERATE"; },
  /** Calls a method; a refused token leads to the form for another token. */
  async call(method, request, signal) {
    try {
      return await call(method, request, signal);
    } catch (error) {
      if (error.status === 401) login(error);
      throw error;
    }
  },
  tail,
  onStatus(listener, signal) {
    listeners.add(listener);
    signal.addEventListener("abort", () => listeners.delete(listener));
    if (this.status) listener(this.status);
  },
  /** The address of a page with parameters, which are pairs. */
  link: (page, parameters = []) => {
    const text = new URLSearchParams(parameters.filter(([, value]) => value !== "" && value !== undefined && value !== null)).toString();
    return `#/${page}${text ? `?${text}` : ""}`;
  },
  go(page, parameters) { location.hash = this.link(page, parameters); },
  /** Changes the parameters in the address without another entry in the history. */
  replace(page, parameters) { history.replaceState(null, "", this.link(page, parameters)); },
};

function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { name: Object.hasOwn(PAGES, path) ? path : "overview", parameters: new URLSearchParams(query) };
}

function open() {
  closePage?.abort();
  closeDialogs();
  closePage = new AbortController();
  const { name, parameters } = address();
  const page = PAGES[name];
  document.title = `${page.title} \u2013 Tidegate`;
  document.getElementById("pages").replaceChildren(...Object.entries(PAGES).map(([path, { title }]) =>
    h("a", { href: `#/${path}`, "aria-current": path === name ? "page" : null }, title)));
  main.replaceChildren();
  page.open(main, console_, parameters, closePage.signal);
}

/** Why a token was refused; in the words of this page if the server does not know it. */
function refusal(error) {
  if (error?.status === 401) return "The server does not know this token. Copy it again, or make another with: tidegate token NAME --role read --file FILE";
  return failure(error);
}

function login(error) {
  clearTimeout(pollTimer);
  closePage?.abort();
  closeDialogs();
  connection.hidden = true;
  // The next token may have another caller and another role.
  console_.status = null;
  document.title = "Tidegate";
  document.getElementById("caller").replaceChildren();
  document.getElementById("pages").replaceChildren();
  const input = h("input", { type: "password", autocomplete: "current-password", required: true, id: "token" });
  const refused = token.get() || error?.status === 403;
  const message = h("p", { class: "error", role: "alert" }, refused ? refusal(error) : null);
  main.replaceChildren(h("div", { class: "card login" }, h("h1", {}, "Token"), h("form", {
    onsubmit: (event) => {
      event.preventDefault();
      const text = input.value.trim();
      message.textContent = isToken(text) ? "" : "This is not a token: it has characters that no token has. Copy it again.";
      if (!isToken(text)) return;
      token.set(text);
      start();
    },
  }, h("p", { class: "faint" }, "The console acts with the role of a token: read, or operate. It is kept until this tab is closed."),
  h("label", {}, "Bearer token", input),
  message,
  h("button", { class: "primary" }, "Continue"))));
  input.focus();
}

function showCaller(status) {
  document.body.dataset.role = status.role || "NONE";
  const role = console_.mayOperate ? "operate" : "read only";
  const leave = token.get() ? h("button", { class: "link", onclick: () => { token.set(""); location.reload(); } }, "Forget the token") : null;
  document.getElementById("caller").replaceChildren(h("span", {}, `${status.actor || "caller"}, ${role}`), leave || "");
}

/** Reads the status. Open pages stay while the server is away, and are not built anew. */
async function poll() {
  try {
    const status = await call("Status");
    if (console_.status?.started !== status.started) console_.history = [];
    const isSameCaller = console_.status?.actor === status.actor && console_.status?.role === status.role;
    console_.status = status;
    console_.history = recent([...console_.history, { at: Date.parse(status.now), status }]);
    failures = 0;
    connection.hidden = true;
    if (!isSameCaller) showCaller(status);
    listeners.forEach((listener) => listener(status));
    pollTimer = setTimeout(poll, POLL);
    return true;
  } catch (error) {
    if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
      login(error);
      return false;
    }
    failures += 1;
    connection.hidden = false;
    connection.textContent = `No connection to the server (${failure(error)}). Trying again\u2026`;
    pollTimer = setTimeout(poll, Math.min(5000, 500 * 2 ** Math.min(failures, 4)));
    return !console_.status ? false : true;
  }
}

/** Takes a token from an address such as `/console#token=…`, which `serve --demo` prints, and removes it from the address. */
function takeToken() {
  const found = /^#token=(.*)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", location.pathname);
  try {
    const text = decodeURIComponent(found[1]);
    if (isToken(text)) token.set(text);
  } catch {
    // A part of an address: the form for a token follows if one is needed.
  }
}

async function start() {
  clearTimeout(pollTimer);
  takeToken();
  // Without a token no method is called: the audit log would have an entry of its refusal.
  if (!token.get() && await needsToken().catch(() => false)) return login();
  const known = await poll();
  if (known) open();
  else if (!connection.hidden) {
    // Without a first status the role is unknown: the page is opened when the server responds.
    const wait = new AbortController();
    console_.onStatus(() => { wait.abort(); open(); }, wait.signal);
  }
}

addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) return start();
  if (!console_.status) return;
  open();
  main.focus();
});
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
  const page = Object.keys(PAGES)[Number(event.key) - 1];
  if (page) console_.go(page);
  if (event.key === "/") {
    const search = main.querySelector("[data-search]");
    if (search) { event.preventDefault(); search.focus(); }
  }
});
start();
