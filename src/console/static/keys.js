// Keys: the counters of one key, and what can be done about them.

import { number, seconds } from "./api.js";
import {
  ask, bar, count, counted, duration, entries, entriesEditor, entriesFromParams, entriesText, entriesToParams, failure, h, notice, REASON, visible,
  window_,
} from "./view.js";

const REFRESH = 2000;

export default {
  title: "Keys",
  open(main, app, parameters, signal) {
    const list = entriesFromParams(parameters);
    const domain = parameters.get("domain") || "";
    if (list.length) return openKey(main, app, domain, list, signal);
    return openSearch(main, app, domain, parameters.get("rule"));
  },
};

function repeat(read, signal) {
  let timer;
  const again = async () => {
    await read();
    if (!signal.aborted) timer = setTimeout(again, REFRESH);
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  again();
}

function openSearch(main, app, domain, rule) {
  const editor = entriesEditor([], "Entry");
  const choice = h("select", {}, (app.status.domains || []).map((one) => h("option", { value: one.domain }, visible(one.domain))));
  if (domain) choice.value = domain;
  editor.element.querySelector("input")?.setAttribute("data-search", "");
  main.append(h("div", { class: "title" }, h("h1", {}, "Keys")), h("form", { class: "card", onsubmit: (event) => {
    event.preventDefault();
    const written = editor.read();
    if (written.length) app.go("keys", [["domain", choice.value], ...entriesToParams(written)]);
    else notice("Write the key of an entry");
  } }, h("h2", {}, "Find a key"), rule ? h("p", { class: "faint" }, "Entries of the rule ", h("bdi", { class: "mono" }, visible(rule))) : null,
  h("div", { class: "row" }, h("label", {}, "Domain", choice)), editor.element, h("p", {}), h("button", { class: "primary" }, "Show its counters")));
}

/** One key: its counters, each with a bar that drains until its reset. */
function openKey(main, app, domain, list, signal) {
  const descriptors = [{ entries: list }];
  const [counters, message] = [h("div", {}), h("p", { class: "error", role: "alert" })];
  let [read, frame] = [[], 0];
  const refresh = async () => {
    try {
      const response = await app.call("ListCounters", { domain, descriptors }, signal);
      const one = response.descriptors?.[0] || {};
      message.textContent = "";
      read = (one.counters || []).map((counter) => ({ counter, at: performance.now(), bar: bar(0, 1), left: h("span", {}) }));
      counters.replaceChildren(one.rule ? h("p", { class: "faint" }, "Rule ", h("bdi", { class: "mono" }, visible(one.rule))) : h("p", {}, "No rule applies to this key."), ...read.map(card));
    } catch (error) {
      if (error.name !== "AbortError") message.textContent = failure(error);
    }
  };
  const drain = () => {
    for (const { counter, at, bar: one, left } of read) {
      const reset = seconds(counter.resetAfter);
      const rest = Math.max(0, reset - (performance.now() - at) / 1000);
      const share = reset > 0 ? rest / reset : 1;
      const used = counter.requests ? (counter.used || 0) / counter.requests : 1;
      one.firstChild.style.width = `${100 * Math.min(1, used) * (counter.used ? share : 0)}%`;
      one.className = `bar ${counter.remaining ? (used > 0.8 ? "near" : "") : "denied"}`;
      left.textContent = reset > 0 ? `resets in ${duration(rest)}` : counter.used ? "" : "unused";
    }
    frame = requestAnimationFrame(drain);
  };
  signal.addEventListener("abort", () => cancelAnimationFrame(frame));
  main.append(
    h("div", { class: "title" }, h("h1", { class: "mono" }, entries(list)), h("span", { class: "faint" }, "in ", h("bdi", {}, visible(domain))),
      h("div", { class: "end" }, h("a", { class: "button", href: app.link("try", [["domain", domain], ...entriesToParams(list)]) }, "Explain"), actions(app, domain, list, refresh))),
    counters, message);
  repeat(refresh, signal);
  drain();
}

function card({ counter, bar: one, left }) {
  const all = counter.requests || 0;
  return h("div", { class: "card" },
    h("p", { class: "label" }, `${count(all)} per ${window_(seconds(counter.window))}, ${counter.algorithm || ""} ${counter.name ? visible(counter.name) : ""}`),
    h("p", { class: "figure" }, count(counter.used || 0), h("small", {}, ` used, ${count(counter.remaining || 0)} remaining`)),
    one, h("p", { class: "label" }, left, counter.replacedBy ? ` Replaced by ${visible(counter.replacedBy)}.` : ""));
}

function actions(app, domain, list, refresh) {
  if (!app.mayOperate) return null;
  const descriptors = [{ entries: list }];
  const about = h("p", {}, h("bdi", { class: "mono" }, entriesText(list)), " in ", h("bdi", {}, visible(domain)));
  const after = async (method, request, text) => {
    const response = await app.call(method, request);
    refresh();
    return text(response);
  };
  const button = (text, make, danger) => h("button", { class: danger ? "danger" : null, onclick: () => ask({ about: about.cloneNode(true), ...make() }) }, `${text}\u2026`);
  return [
    button("Reset", () => ({
      title: "Reset the counters of this key", verb: "Reset", danger: true, fields: [REASON],
      act: ({ reason }) => after("Reset", { domain, descriptors, reason }, ({ counters }) => `${counted(number(counters), "counter")} dropped`),
    })),
    button("Give back", () => ({
      title: "Give hits back", verb: "Give back", fields: [{ name: "hits", label: "Hits", type: "number", min: 1, value: 1, required: true }, REASON],
      act: ({ hits, reason }) => after("GiveBack", { domain, descriptors, hits: Number(hits), reason }, () => `${counted(Number(hits), "hit")} given back`),
    })),
  ];
}
