// Keys: those with most hits; one key with its counters and what can be done about it; overrides and blocks in force.

import { number, seconds } from "./api.js";
import {
  ask, bar, causeText, count, counted, dateTime, duration, entries, entriesEditor, entriesFromParams, entriesText, entriesToParams, EXPIRIES, failure, h,
  isInFlight, limitText, named, notice, rate, REASON, reservedText, slotsText, table, unit, UNITS, visible,
} from "./view.js";

const REFRESH = 2000;
const REFRESH_IN_FORCE = 3000;
const EXPIRY = { name: "expiresIn", label: "Expires", options: EXPIRIES };

/** Values of overrides and blocks are patterns; a client's value is meant literally. */
const literal = (list) => list.map(({ key, value }) => ({ key, value: value?.replace(/[*\\]/g, "\\$&") }));

/** An address, or a text like an address, before a slash: in a block, such a value is a network, or is refused. */
const NETWORK = /^(?=[^/]*[.:])([\da-f.:]+)\//i;

/** The block of a client's entry, which is no network. */
const block = (entry) => {
  const [{ key, value }] = literal([entry]);
  return { key, value: value?.replace(NETWORK, "$1\\/") };
};

/** The empty expiry is left out. */
const expiring = (expiresIn) => (expiresIn ? { expiresIn } : {});

export default {
  title: "Keys",
  open(main, app, parameters, signal) {
    const list = entriesFromParams(parameters);
    if (list.length) return openKey(main, app, parameters.get("domain") || "", list, signal);
    return openTop(main, app, parameters, signal);
  },
};

function repeat(read, signal, refresh = REFRESH) {
  let timer;
  const again = async () => {
    await read();
    if (!signal.aborted) timer = setTimeout(again, refresh);
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  again();
}

function openTop(main, app, parameters, signal) {
  const of = { domain: parameters.get("domain") || "", rule: parameters.get("rule") || "" };
  const chosen = { outcome: parameters.get("outcome") || "DENIED", window: parameters.get("window") || "MINUTE" };
  const [place, message] = [h("div", {}), h("p", { class: "error", role: "alert" })];
  const inForce = h("div", {});
  const toggle = (name, label, options) => h("div", { class: "toggle", role: "group", "aria-label": label }, options.map(([value, text]) =>
    h("button", { "aria-pressed": String(chosen[name] === value), onclick: () => app.go("keys", Object.entries({ ...of, ...chosen, [name]: value })) }, text)));
  main.append(
    h("div", { class: "title" }, h("h1", {}, "Keys"), h("div", { class: "end" },
      toggle("outcome", "Outcome", [["DENIED", "Denied"], ["ADMITTED", "Admitted"]]),
      toggle("window", "Window", [["MINUTE", "Last minute"], ["HOUR", "Last hour"]]))),
    search(app, of.domain),
    h("div", { class: "card" }, h("h2", {}, "Most hits"),
      of.rule || of.domain ? h("p", {}, [of.domain, of.rule].filter(Boolean).map((text) => visible(text)).join(": "), " ", h("a", { href: app.link("keys") }, "All rules")) : null,
      place, message),
    inForce);

  repeat(async () => {
    try {
      const response = await app.call("TopKeys", { ...of, ...chosen, limit: 50 }, signal);
      redraw(place, top(app, response, of.domain || of.rule));
      message.textContent = "";
    } catch (error) {
      if (error.name !== "AbortError") message.textContent = failure(error);
    }
  }, signal);
  const drawn = { text: "" };
  repeat(() => showInForce(app, inForce, signal, drawn), signal, REFRESH_IN_FORCE);
}

/** Replaces the content; the link that has the focus keeps it, and the table its scroll position. */
function redraw(place, element) {
  const address = place.contains(document.activeElement) && document.activeElement.getAttribute("href");
  const scrolled = place.querySelector(".scroll")?.scrollLeft;
  place.replaceChildren(element);
  if (address) [...place.querySelectorAll("a")].find((link) => link.getAttribute("href") === address)?.focus({ preventScroll: true });
  if (scrolled) place.querySelector(".scroll")?.scrollTo(scrolled, 0);
}

function search(app, domain) {
  const editor = entriesEditor([], "Entry");
  const choice = h("select", {}, (app.status.domains || []).map((one) => h("option", { value: one.domain }, visible(one.domain))));
  if (domain) choice.value = domain;
  editor.element.querySelector("input")?.setAttribute("data-search", "");
  return h("form", { class: "card", onsubmit: (event) => {
    event.preventDefault();
    const list = editor.read();
    if (list.length) app.go("keys", [["domain", choice.value], ...entriesToParams(list)]);
    else notice("Write the key of an entry");
  } }, h("h2", {}, "Find a key"), h("div", { class: "row" }, h("label", {}, "Domain", choice)), editor.element, h("p", {}), h("button", { class: "primary" }, "Show its counters"));
}

function top(app, response, isFiltered) {
  const keys = response.keys || [];
  if (!keys.length) return h("p", { class: "empty" }, "No key has such hits.");
  const most = number(keys[0].hits);
  const name = (key) => {
    const list = key.descriptor?.entries;
    if (key.isRedacted) return entries(list);
    return h("a", { href: app.link("keys", [["domain", key.domain], ...entriesToParams(list)]) }, entries(list));
  };
  const shown = table([
    ["Key", name],
    ["Rule", (key) => h("bdi", { class: "mono" }, visible(named(key.rule, key.limits)))],
    ["Domain", (key) => h("bdi", {}, visible(key.domain || ""))],
    ["Hits", (key) => count(number(key.hits)), true],
    ["Overcounted by at most", (key) => count(number(key.error)), true],
    ["Rate", (key) => rate(key.hitsPerSecond || 0), true],
    ["Compared", (key) => bar(number(key.hits), most)],
  ], keys, "Keys with most hits");
  return h("div", {}, shown, h("p", { class: "label" },
    `${counted(number(response.total), "hit")}${isFiltered ? " of all domains and rules" : ""} in ${duration(seconds(response.covers))}; a key that is not listed has at most ${count(number(response.unlistedMax))}.`));
}

const perUnit = ({ requests = 0, unit: per = "?" }) => `${count(requests)} per ${per}`;
const target = (one) => (one.unlimited ? "unlimited" : one.denied ? "denied" : [one.limit || {}, ...(one.furtherLimits || [])].map(perUnit).join(", "));

/** Overrides and blocks, which others set and which expire; drawn only when they have changed, so that buttons keep the focus. */
async function showInForce(app, place, signal, drawn) {
  const parts = [];
  let text = "";
  const act = (method, one, what) => app.mayOperate && h("button", { "aria-label": `Delete ${what} ${one.id}`, onclick: () => ask({
    title: `Delete ${what} ${one.id}`, danger: true, verb: "Delete", fields: [REASON],
    act: async ({ reason }) => {
      await app.call(method, { id: one.id, reason });
      showInForce(app, place, signal, drawn);
      return `${what} ${one.id} is deleted`;
    },
  }) }, "Delete\u2026");
  const common = [
    ["Expires", (one) => (one.expires ? dateTime(one.expires) : "never")],
    ["Reason", (one) => visible(one.reason || "")],
    ["By", (one) => visible(one.actor || "")],
  ];
  try {
    const { overrides = [] } = await app.call("ListOverrides", {}, signal);
    text += JSON.stringify(overrides);
    parts.push(h("div", { class: "card" }, h("h2", {}, "Overrides"), overrides.length ? table([
      ["Descriptors", (one) => entries(one.entries)], ["Domain", (one) => visible(one.domain || "")], ["Instead", target], ...common,
      ["Action", (one) => act("DeleteOverride", one, "override") || ""],
    ], overrides, "Overrides") : h("p", { class: "faint" }, "None.")));
  } catch (error) {
    if (error.name !== "AbortError") parts.push(h("p", { class: "error" }, failure(error)));
  }
  try {
    const { blocks = [], total = 0 } = await app.call("ListBlocks", {}, signal);
    text += JSON.stringify([blocks, total]);
    parts.push(h("div", { class: "card" }, h("h2", {}, "Blocks"), blocks.length ? table([
      ["Entry", (one) => blocked(one)], ["Domain", (one) => visible(one.domain || "all")], ...common,
      ["Action", (one) => (one.id.includes(":") ? "" : act("DeleteBlock", one, "block") || "")],
    ], blocks, "Blocks") : h("p", { class: "faint" }, "None."), total > blocks.length ? h("p", { class: "label" }, `${count(total)} in all`) : null));
  } catch (error) {
    if (error.name !== "AbortError") parts.push(h("p", { class: "error" }, failure(error)));
  }
  if (signal.aborted || (text && text === drawn.text)) return;
  drawn.text = text;
  place.replaceChildren(...parts);
}

/** What was set and may not be what was meant. */
function warned(warnings) {
  return (warnings || []).map((warning) => `; ${visible(warning, 600)}`).join("");
}

/** The entries that a block is for. */
function blocked({ key, value, cidr }) {
  return cidr?.includes("/") ? h("bdi", { class: "mono" }, `${visible(key)} in network ${visible(cidr)}`) : entries([{ key, value: value || cidr }]);
}

/** One key: what applies instead of its rules, and its counters, each with a bar of what is used. */
function openKey(main, app, domain, list, signal) {
  const descriptors = [{ entries: list }];
  const [counters, message] = [h("div", {}), h("p", { class: "error", role: "alert" })];
  const [inForce, buttons] = [h("div", {}), h("div", { class: "end" })];
  let [read, frame, drawn] = [[], 0, ""];
  const refresh = async () => {
    try {
      const response = await app.call("ListCounters", { domain, descriptors }, signal);
      const { descriptors: [explained = {}] = [] } = await app.call("Explain", { domain, descriptors }, signal);
      const one = response.descriptors?.[0] || {};
      message.textContent = "";
      if (explained.cause) message.textContent = causeText(explained);
      const text = JSON.stringify([explained.override, explained.block, explained.blockId]);
      // Drawn only when it has changed, so that its button keeps the focus.
      if (text !== drawn) inForce.replaceChildren(...inPlaceOfRules(app, explained, refresh));
      drawn = text;
      // With the bar's share from the start: a bar that began at zero would fill up anew at each reading.
      read = (one.counters || []).map((counter) => ({
        counter, at: performance.now(), bar: bar(counter.requests ? counter.used || 0 : 1, counter.requests || 1), left: h("span", {}),
      }));
      counters.replaceChildren(one.rule ? h("p", { class: "faint" }, "Rule ", h("bdi", { class: "mono" }, visible(one.rule))) : h("p", {}, "No rule applies to this key."), ...read.map(card));
    } catch (error) {
      if (error.name !== "AbortError") message.textContent = failure(error);
    }
  };
  const drain = () => {
    for (const { counter, at, bar: one, left } of read) {
      const reset = seconds(counter.resetAfter);
      const rest = Math.max(0, reset - (performance.now() - at) / 1000);
      const used = counter.requests ? (counter.used || 0) / counter.requests : 1;
      one.firstChild.style.width = `${100 * Math.min(1, used)}%`;
      one.className = `bar ${counter.remaining ? (used > 0.8 ? "near" : "") : "denied"}`;
      // The reset of most algorithms is that of one hit: a flooded key uses it at once, and stays full.
      const about = isInFlight(counter.algorithm) ? "about " : "";
      const next = rest > 0 ? `one more hit in ${about}${duration(rest)}` : "one more hit now";
      left.textContent = reset > 0 ? next : counter.used ? "" : "unused";
    }
    frame = requestAnimationFrame(drain);
  };
  signal.addEventListener("abort", () => cancelAnimationFrame(frame));
  main.append(
    h("div", { class: "title" }, h("h1", { class: "mono" }, entries(list)), h("span", { class: "faint" }, "in ", h("bdi", {}, visible(domain))),
      h("div", { class: "end" }, h("a", { class: "button", href: app.link("try", [["domain", domain], ...entriesToParams(list)]) }, "Explain"),
        h("a", { class: "button", href: app.link("live", [["domain", domain], ["key", list[0].key], ["value", list[0].value]]) }, "Live"), buttons)),
    inForce, counters, message);
  buttons.append(...(actions(app, domain, list, refresh, () => read.map(({ counter }) => counter)) || []));
  repeat(refresh, signal);
  drain();
}

/** The override or the block that applies to a key, with who set it, why, and until when. */
function inPlaceOfRules(app, { override, block, blockId }, refresh) {
  const [what, one] = block || blockId ? ["block", block || { id: blockId }] : ["override", override];
  if (!one) return [];
  const of = [one.reason && `\u201c${visible(one.reason, 600)}\u201d`, one.actor && `by ${visible(one.actor)}`,
    one.created && `since ${dateTime(one.created)}`, one.expires ? `until ${dateTime(one.expires)}` : "without expiry"].filter(Boolean);
  const isBlock = what === "block";
  // A line of a file of blocks is changed there.
  const isOfFile = one.id.includes(":");
  const [verb, done] = isBlock ? ["Unblock", "The block is deleted"] : ["Delete the override", "The override is deleted"];
  return [h("div", { class: "card" },
    h("p", {}, h("span", { class: isBlock || one.denied ? "tag denied" : "tag" }, isBlock ? "blocked" : "override"), ` ${visible(one.id)}: `,
      isBlock ? "every request with " : "", isBlock ? blocked(one) : target(one), isBlock ? " is denied" : " instead of the rules"),
    h("p", { class: "faint" }, of.join(", ")),
    app.mayOperate && !isOfFile ? h("button", { onclick: () => ask({
      title: isBlock ? "Delete the block of this key" : "Delete the override of this key", verb, danger: true, fields: [REASON],
      about: h("p", {}, of.join(", ")),
      act: async ({ reason }) => {
        await app.call(isBlock ? "DeleteBlock" : "DeleteOverride", { id: one.id, reason });
        refresh();
        return done;
      },
    }) }, `${verb}\u2026`) : null)];
}

function card({ counter, bar: one, left }) {
  return h("div", { class: "card" },
    h("p", { class: "label" }, `${limitText(counter)}, ${counter.algorithm || ""} ${counter.name ? visible(counter.name) : ""}`),
    h("p", { class: "figure" }, count(counter.used || 0), " ", h("small", {}, `${isInFlight(counter.algorithm) ? "in flight" : "used"}, ${count(counter.remaining || 0)} remaining`)),
    one, h("p", { class: "label" }, left, counter.bannedFor ? ` Banned for ${duration(seconds(counter.bannedFor))}.` : "", counter.replacedBy ? ` Replaced by ${visible(counter.replacedBy)}.` : ""),
    counter.slots ? h("p", { class: "label" }, `${slotsText(counter)}.`) : "",
    counter.reserved ? h("p", { class: "label" }, `${reservedText(counter)}.`) : "");
}

/** The most limits of an override. */
const LIMITS = 8;

/** Fields for the limits of an override, which begin with those of the key: a limit of the rule that none of them replaces would not apply. */
function limitFields(counters) {
  // Of two limits of one window, an override replaces the first.
  const ofWindow = new Map([...counters].reverse().map((counter) => [counter.window, counter]));
  const own = counters.filter((counter) => ofWindow.get(counter.window) === counter).slice(0, LIMITS);
  const limits = own.length ? own : [{ requests: 100, window: "60s" }];
  return limits.flatMap(({ requests = 0, window, name }, index) => {
    const of = limits.length > 1 ? ` of ${name ? visible(name) : `limit ${index + 1}`}; empty: it does not apply` : "";
    return [
      { name: `requests${index}`, label: `Requests${of}`, type: "number", min: 0, value: requests },
      { name: `unit${index}`, label: "Per: a unit, or a length such as 30s", value: unit(seconds(window)), suggested: UNITS },
    ];
  });
}

/** The limits in these fields. */
const limitsOf = (values) => [...Array(LIMITS).keys()].filter((index) => values[`requests${index}`])
  .map((index) => ({ requests: Number(values[`requests${index}`]), unit: values[`unit${index}`].trim() }));

function actions(app, domain, list, refresh, current) {
  if (!app.mayOperate) return null;
  const descriptors = [{ entries: list }];
  const about = h("p", {}, h("bdi", { class: "mono" }, entriesText(list)), " in ", h("bdi", {}, visible(domain)));
  const after = async (method, request, text) => {
    const response = await app.call(method, request);
    refresh();
    return text(response);
  };
  const button = (text, make, danger) => h("button", { class: danger ? "danger" : null, onclick: () => ask({ about: about.cloneNode(true), ...make() }) }, `${text}\u2026`);
  const last = list[list.length - 1];
  return [
    button("Reset", () => ({
      title: "Reset the counters of this key", verb: "Reset", danger: true, fields: [REASON],
      act: ({ reason }) => after("Reset", { domain, descriptors, reason }, ({ counters }) => `${counted(number(counters), "counter")} dropped`),
    })),
    button("Give back", () => ({
      title: "Give hits back", verb: "Give back", fields: [{ name: "hits", label: "Hits", type: "number", min: 1, value: 1, required: true }, REASON],
      act: ({ hits, reason }) => after("GiveBack", { domain, descriptors, hits: Number(hits), reason }, () => `${counted(Number(hits), "hit")} given back`),
    })),
    button("Override", () => ({
      title: "Other limits for this key", verb: "Set",
      about: h("div", {}, about.cloneNode(true), h("p", { class: "faint" }, "It continues the counter of a rule for descriptors: hits used so far count. Under limits with conditions it begins with none.")), fields: [
        { name: "kind", label: "Instead of the rules", options: [["limit", "these limits"], ["unlimited", "unlimited"], ["denied", "denied"]] },
        ...limitFields(current()), EXPIRY, REASON],
      act: ({ kind, expiresIn, reason, ...values }) => {
        const [limit, ...furtherLimits] = limitsOf(values);
        const instead = kind === "limit" ? { limit, furtherLimits } : { [kind]: true };
        return after("SetOverride", { override: { domain, entries: literal(list), reason, ...instead }, ...expiring(expiresIn) }, ({ override, warnings }) => `override ${override?.id || ""} is in force${warned(warnings)}`);
      },
    })),
    button("Block", () => ({
      title: "Deny every request with this entry", verb: "Block", danger: true,
      about: h("p", {}, h("bdi", { class: "mono" }, entriesText([last])), " in ", h("bdi", {}, visible(domain)), ", at any place of a descriptor"),
      fields: [EXPIRY, REASON],
      act: ({ expiresIn, reason }) => after("SetBlock", { block: { domain, ...block(last), reason }, ...expiring(expiresIn) }, ({ block, warnings }) => `block ${block?.id || ""} is in force${warned(warnings)}`),
    }), true),
  ];
}
