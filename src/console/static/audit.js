// Audit: changes, reloads and denied calls, newest first.

import { dateTime, failure, h, table, visible } from "./view.js";

const PAGE = 100;
const REFRESH = 3000;

const details = (text) => {
  if (!text) return "";
  return h("details", {}, h("summary", {}, visible(text, 60)), h("pre", {}, visible(text, 8000)));
};

export default {
  title: "Audit",
  open(main, app, parameters, signal) {
    let [read, older] = [[], true];
    const [place, message] = [h("div", { class: "card" }), h("p", { class: "error", role: "alert" })];
    const more = h("button", { onclick: () => load(read.at(-1)) }, "Older entries");
    main.append(h("div", { class: "title" }, h("h1", {}, "Audit"), h("div", { class: "end" },
      h("button", { onclick: save }, "Save as JSON lines"))), place, more, message);

    function show() {
      place.replaceChildren(read.length ? table([
        ["No.", (entry) => String(entry.number || 0), true],
        ["Time", (entry) => dateTime(entry.time)],
        ["Actor", (entry) => h("bdi", {}, visible(entry.actor || ""), entry.peer ? ` (${visible(entry.peer)})` : "")],
        ["Action", (entry) => visible(entry.action || "")],
        ["Outcome", (entry) => h("span", { class: entry.outcome === "OK" ? "tag admitted" : "tag denied" }, visible(entry.outcome || ""))],
        ["Reason", (entry) => h("bdi", {}, visible(entry.reason || "", 500))],
        ["Details", (entry) => details(entry.details)],
      ], read, "Audit log") : h("p", { class: "empty" }, "The audit log has no entry."));
      more.hidden = !older || !read.length;
    }

    /** Reads entries before the given entry, or the newest. Open details stay open: nothing is drawn without new entries. */
    async function load(before) {
      try {
        const { entries = [] } = await app.call("ListAudit", { limit: PAGE, ...(before ? { before: before.number } : {}) }, signal);
        message.textContent = "";
        if (before) {
          read.push(...entries);
          older = entries.length === PAGE;
          return show();
        }
        const known = read.length ? entries.findIndex((entry) => entry.hash === read[0].hash) : -1;
        if (known === 0) return;
        if (known > 0) read.unshift(...entries.slice(0, known));
        // More than a page is new, or a server without a file has restarted: the entries read before are dropped.
        else [read, older] = [entries, entries.length === PAGE];
        show();
      } catch (error) {
        if (error.name !== "AbortError") message.textContent = failure(error);
      }
    }

    function save() {
      const lines = read.map((entry) => `${JSON.stringify(entry)}\n`).reverse();
      const address = URL.createObjectURL(new Blob(lines, { type: "application/x-ndjson" }));
      h("a", { href: address, download: "audit.jsonl" }).click();
      setTimeout(() => URL.revokeObjectURL(address), 1000);
    }

    load();
    const every = setInterval(() => load(), REFRESH);
    signal.addEventListener("abort", () => clearInterval(every));
  },
};
