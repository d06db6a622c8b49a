// What-if: what proposed rules would have decided on the decisions of the last minutes, or on those of a log.

import { number, rulesInForce, seconds } from "./api.js";
import { Chart } from "./chart.js";
import { bytes, compact, count, counted, dateTime, duration, entries, entriesToParams, failure, h, named, percent, table, visible, window_ } from "./view.js";

const REFRESH = 2000;
/** Most bytes from the end of a log that are sent, before compression. */
const LOG_BYTES_MAX = 8 << 20;
/** Characters of a request, below the default of --http-max-body-bytes. */
const REQUEST_MAX = 500_000;
/** The text survives other pages and a reload of this one. */
const DRAFT = "tidegate-what-if";
/** The text as it was inserted. A draft that differs was edited, and is replaced only when the user requests it. */
const INSERTED = "tidegate-what-if-inserted";
const AGAINST = [["IN_FORCE", "the rules in force"], ["RECORDED", "what was decided"]];
const LAST = [["", "all that is recorded"], ["60s", "the last minute"], ["300s", "the last 5 minutes"]];

const SHARES = [["0.001", "0.1 %"], ["0.01", "1 %"], ["0.05", "5 %"], ["0.1", "10 %"]];
const OF = [["KEYS", "of the keys"], ["HITS", "of the hits"]];

const select = (name, options, value) => {
  const element = h("select", { name }, options.map(([key, text]) => h("option", { value: key }, text)));
  element.value = options.some(([key]) => key === value) ? value : options[0][0];
  return element;
};

export default {
  title: "What-if",
  open(main, app, parameters, signal) {
    const rules = h("textarea", {
      name: "rules", class: "mono text", rows: "12", spellcheck: "false", required: true, "data-search": true,
      oninput: () => sessionStorage.setItem(DRAFT, rules.value),
    });
    const rulesFile = h("input", { type: "file", accept: ".yaml,.yml", onchange: () => open(rulesFile.files[0]) });
    const log = h("input", { type: "file", accept: ".jsonl,.json,.log,.gz", onchange: () => { clear.hidden = !log.files.length; } });
    const clear = h("button", { type: "button", class: "link", hidden: true, onclick: () => { log.value = ""; clear.hidden = true; } }, "Use the recorded decisions");
    const [last, against] = [select("last", LAST, parameters.get("last")), select("against", AGAINST, parameters.get("against"))];
    const suggest = h("input", { type: "search", name: "suggest", autocomplete: "off", spellcheck: "false", placeholder: "path or name", value: parameters.get("suggest") || "" });
    const [most, of] = [select("share", SHARES, parameters.get("share") || "0.01"), select("of", OF, parameters.get("of"))];
    const [state, message] = [h("p", { class: "label" }), h("pre", { class: "error", role: "alert", hidden: true })];
    const kept = h("p", { hidden: true }, "These are the rules as you edited them. ",
      h("button", { type: "button", class: "link", onclick: () => fill(parameters.get("domain") || "") }, "Replace them with those in force"));
    const [result, run] = [h("div", { "aria-live": "polite" }), h("button", { class: "primary" }, "Compare")];
    main.append(h("div", { class: "title" }, h("h1", {}, "What would other rules decide?")),
      h("form", { class: "card", onsubmit: compare },
        h("label", {}, "Proposed rules, as in a rule file", rules), kept,
        h("div", { class: "row" }, h("button", { type: "button", onclick: () => fill("") }, "Insert the rules in force"),
          h("label", {}, "Or a rule file", rulesFile)),
        h("div", { class: "row" }, h("label", {}, "Decisions", last), h("label", {}, "Or a decision log", log), clear),
        h("div", { class: "row" }, h("label", {}, "Suggest limits for a rule", suggest), h("label", {}, "that deny at most", most), h("label", {}, "Share", of)),
        h("div", { class: "row" }, h("label", {}, "Compared with", against), run),
        state, message), result);

    function fail(error) {
      if (error?.name === "AbortError") return;
      message.hidden = !error;
      message.textContent = error ? visible(failure(error), 8000).replaceAll("\u27e8U+000A\u27e9", "\n") : "";
    }

    function set(text) {
      rules.value = text;
      sessionStorage.setItem(DRAFT, text);
    }

    async function open(file) {
      if (file) set(await file.text());
    }

    /** Inserts the declarations of a domain, or all. */
    async function fill(domain) {
      try {
        set(declarations(await rulesInForce(signal), domain));
        sessionStorage.setItem(INSERTED, rules.value);
        kept.hidden = true;
        fail(null);
      } catch (error) {
        fail(error);
      }
    }

    async function compare(event) {
      event.preventDefault();
      app.replace("what-if", [["last", last.value], ["against", against.value],
        ...(suggest.value ? [["suggest", suggest.value], ["share", most.value], ["of", of.value]] : [])]);
      run.disabled = true;
      state.textContent = "Comparing\u2026";
      try {
        const request = { rules: rules.value, against: against.value, ...(last.value && !log.files.length ? { last: last.value } : {}),
          ...(suggest.value ? { suggestFor: [suggest.value], suggestShare: Number(most.value), suggestOf: of.value } : {}) };
        const sent = log.files.length ? await packed(log.files[0], REQUEST_MAX - JSON.stringify(request).length) : null;
        const response = await app.call("WhatIf", sent ? { ...request, log: sent.log } : request, signal);
        if (sent?.bytes < sent?.all) (response.notes ||= []).unshift(`only the last ${bytes(sent.bytes)} of the log were sent`);
        fail(null);
        show(result, app, response, against.value === "RECORDED");
      } catch (error) {
        fail(error);
      }
      run.disabled = false;
      recorded();
    }

    /** Keeps the recording on, and shows what it has. */
    async function recorded() {
      try {
        const { decisions, first, bytes: taken, bytesMax, share, dropped } = await app.call("RecordDecisions", {}, signal);
        if (run.disabled) return;
        const facts = [`Recorded: ${counted(number(decisions), "decision")}`];
        if (first) facts.push(`since ${dateTime(first)}`);
        facts.push(`${bytes(number(taken))} of ${bytes(number(bytesMax))}`);
        if (share < 1) facts.push(`one of ${count(1 / share)} clients, for lack of memory`);
        if (number(dropped)) facts.push(`${count(number(dropped))} missing`);
        state.textContent = facts.join(", ");
      } catch (error) {
        if (error.status) fail(error);
      }
    }

    rules.value = sessionStorage.getItem(DRAFT) || "";
    const domain = parameters.get("domain") || "";
    if (!rules.value || (domain && rules.value === sessionStorage.getItem(INSERTED))) fill(domain);
    else kept.hidden = !domain;
    recorded();
    const every = setInterval(recorded, REFRESH);
    signal.addEventListener("abort", () => clearInterval(every));
  },
};

/** Takes the rule files out of a stream of all declarations: no overrides or blocks, and only the given domain, if any. */
function declarations(stream, domain) {
  const documents = stream.split(/^(?=# .*\n---)/m).filter((text) => text.trim() && !text.startsWith("# override:"));
  const escaped = domain.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const declares = new RegExp(`domain["']?\\s*:\\s*["']?${escaped}["']?\\s*[,}\\n]`);
  const chosen = domain ? documents.filter((text) => declares.test(text)) : [];
  return (chosen.length ? chosen : documents).join("");
}

/** The end of a log, compressed, in base 64 of at most so many characters. */
async function packed(file, longest) {
  const magic = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const isCompressed = magic[0] === 0x1f && magic[1] === 0x8b;
  let [text, all] = isCompressed ? await ending(file.stream().pipeThrough(new DecompressionStream("gzip")))
    : [new Uint8Array(await file.slice(-LOG_BYTES_MAX).arrayBuffer()), file.size];
  for (;;) {
    // The first line is cut off, unless the log begins with it.
    const from = text.length < all ? text.indexOf(10) + 1 : 0;
    const compressed = await new Response(new Blob([text.subarray(from)]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer();
    if (compressed.byteLength * 4 / 3 + 4 <= longest || text.length < 1000) return { log: base64(new Uint8Array(compressed)), bytes: text.length - from, all };
    text = text.subarray(text.length >> 1);
  }
}

/** The last bytes of a stream, and how many it had. */
async function ending(stream) {
  let [kept, all] = [[], 0];
  const reader = stream.getReader();
  for (let length = 0; ;) {
    const { value, done } = await reader.read();
    if (done) break;
    kept.push(value);
    length += value.length;
    all += value.length;
    while (length - kept[0].length >= LOG_BYTES_MAX) length -= kept.shift().length;
  }
  return [new Uint8Array(await new Blob(kept).arrayBuffer()).subarray(-LOG_BYTES_MAX), all];
}

function base64(octets) {
  const PIECE = 3 * 4096;
  let text = "";
  for (let at = 0; at < octets.length; at += PIECE) text += btoa(String.fromCharCode(...octets.subarray(at, at + PIECE)));
  return text;
}

const figure = (label, ...content) => h("div", { class: "card" }, h("p", { class: "label" }, label), content);

function show(place, app, report, isRecorded) {
  const { proposed = {}, current = {}, overTime = {}, notes = [] } = report;
  const name = isRecorded ? "as recorded" : "in force";
  const requests = number(report.requests);
  const denied = (side) => [count(number(side.denied)), " ", h("small", {}, percent(number(side.denied), requests))];
  place.replaceChildren(
    h("div", { class: "grid figures" },
      figure("Requests", h("p", { class: "figure" }, compact(requests)), h("p", { class: "label" }, `${dateTime(report.first)} to ${dateTime(report.last)}`)),
      figure(`Denied, ${name}`, h("p", { class: "figure" }, denied(current)), worst(current)),
      figure("Denied, proposed", h("p", { class: "figure" }, denied(proposed)), worst(proposed)),
      figure("Newly denied", h("p", { class: "figure" }, compact(number(report.newlyDenied)), " ", h("small", {}, `of ${counted(number(report.keysNewlyDeniedTotal), "key")}`))),
      figure("Newly admitted", h("p", { class: "figure" }, compact(number(report.newlyAdmitted)), " ", h("small", {}, `of ${counted(number(report.keysNewlyAdmittedTotal), "key")}`)))),
    h("div", { class: "card" }, plot(overTime, name)),
    ...(report.suggestions || []).map(suggested),
    h("div", { class: "card" }, h("h2", {}, "Descriptors by rule"), table([
      ["Domain", (row) => h("bdi", {}, visible(row.domain || ""))],
      ["Rule", (row) => h("bdi", {}, visible(named(row.rule, row.limits)))],
      [`Descriptors, ${name}`, (row) => count(number(row.descriptorsCurrent)), true],
      [`Denied, ${name}`, (row) => share(row.deniedCurrent, row.descriptorsCurrent), true],
      ["Descriptors, proposed", (row) => count(number(row.descriptorsProposed)), true],
      ["Denied, proposed", (row) => share(row.deniedProposed, row.descriptorsProposed), true],
    ], report.rules || [], "Descriptors by rule")),
    keys(app, "Newly denied keys", report.keysNewlyDenied), keys(app, "Newly admitted keys", report.keysNewlyAdmitted),
    notes.length ? h("div", { class: "card" }, h("h2", {}, "Notes"), h("ul", {}, notes.map((note) => h("li", {}, visible(note, 400))))) : "");
  place.firstChild.scrollIntoView({ block: "nearest" });
}

/** A suggested limit, and the shares that other limits deny. */
function suggested(one) {
  const { proposed = {}, curve = [] } = one;
  const per = `per ${window_(seconds(one.window))}`;
  const rows = [["proposed", proposed], ...(one.suggested ? [["suggested", one.suggested]] : [])];
  const percentiles = ["p50", "p95", "p99", "max"].map((name) => `${name} ${count(number(one[name]))}`).join(", ");
  return h("div", { class: "card" }, h("h2", {}, "Limits of ", h("bdi", { class: "mono" }, visible(one.rule || "")), one.name ? ` (${visible(one.name)})` : ""),
    table([["Limit", ([name]) => name], ["Requests", ([, at]) => `${count(at.requests || 0)} ${per}`, true],
      ["Denied keys", ([, at]) => share(at.keys, one.keys), true], ["Denied hits", ([, at]) => share(at.hits, one.hits), true]], rows, "Limits"),
    one.suggested ? null : h("p", {}, "Every limit denies more than this share."),
    h("p", { class: "label" }, `Hits of a key in a window: ${percentiles}`),
    curve.length > 1 ? curvePlot(one, curve, per) : null);
}

function curvePlot(one, curve, per) {
  const STEPS = 100;
  const [least, most] = [curve[0].requests || 0, curve.at(-1).requests || 0];
  // Between two limits the share is on the line that joins them.
  const at = (step, field, all) => {
    const limit = least + ((most - least) * step) / (STEPS - 1);
    const found = curve.findIndex((point) => (point.requests || 0) >= limit);
    const next = Math.max(1, found < 0 ? curve.length - 1 : found);
    const [a, b] = [curve[next - 1], curve[next]];
    const part = (limit - (a.requests || 0)) / Math.max(1, (b.requests || 0) - (a.requests || 0));
    return (100 * (number(a[field]) + part * (number(b[field]) - number(a[field])))) / Math.max(1, all);
  };
  const values = (field, all) => Array.from({ length: STEPS }, (_, step) => at(step, field, all));
  const chart = new Chart("Denied share in percent, by limit", STEPS);
  const series = [["denied", "% of keys denied", values("keys", number(one.keys))], ["shadow", "% of hits denied", values("hits", number(one.hits))]];
  new ResizeObserver(() => chart.update(series, { from: `${count(least)} ${per}`, to: `${count(most)} ${per}`, names: true })).observe(chart.element);
  return chart.element;
}

const share = (part, all) => `${count(number(part))} (${percent(number(part), number(all))})`;

function worst(side) {
  const facts = [];
  if (side.worstMinute) facts.push(`worst minute ${dateTime(side.worstMinute)}: ${count(number(side.worstMinuteDenied))} of ${count(number(side.worstMinuteRequests))}`);
  if (side.longestWait) facts.push(`longest wait ${duration(seconds(side.longestWait))}`);
  if (number(side.neverAdmitted)) facts.push(`${count(number(side.neverAdmitted))} never admitted`);
  return h("p", { class: "label" }, facts.join(", "));
}

function plot({ start, interval, points = [] }, name) {
  // A single interval is a line, too.
  const all = points.length === 1 ? [points[0], points[0]] : points;
  const step = seconds(interval) || 1;
  const values = (field) => all.map((point) => number(point[field]) / step);
  const chart = new Chart("Requests a second", Math.max(2, all.length));
  const series = [["admitted", "requests", values("requests")], ["denied", "denied, proposed", values("deniedProposed")],
    ["shadow", `denied, ${name}`, values("deniedCurrent")]];
  const ends = { from: dateTime(start), to: dateTime(Date.parse(start) + 1000 * step * points.length), mean: true };
  // Drawn once it has a width, and again when that changes.
  new ResizeObserver(() => chart.update(series, ends)).observe(chart.element);
  return chart.element;
}

function keys(app, title, list) {
  if (!list?.length) return "";
  const key = (row) => (row.isRedacted ? entries(row.descriptor?.entries)
    : h("a", { href: app.link("keys", [["domain", row.domain], ...entriesToParams(row.descriptor?.entries)]) }, entries(row.descriptor?.entries)));
  return h("div", { class: "card" }, h("h2", {}, title), table([
    ["Domain", (row) => h("bdi", {}, visible(row.domain || ""))],
    ["Key", key],
    ["Requests", (row) => count(number(row.requests)), true],
    ["A minute", (row) => compact(row.requestsPerMinute || 0), true],
  ], list, title));
}
