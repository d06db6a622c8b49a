// Try: a request made by hand, its path through the rules, the decision, and the same request for a terminal.

import { seconds } from "./api.js";
import {
  bar, causeText, count, dateTime, duration, entries, entriesEditor, entriesFromParams, entriesToParams, failure, h, isInFlight, limitText, notice, reservedText, slotsText, verdict, visible,
} from "./view.js";

export default {
  title: "Try",
  open(main, app, parameters, signal) {
    const domains = app.status.domains || [];
    const domain = h("input", { list: "domains", required: true, value: parameters.get("domain") || domains[0]?.domain || "", autocomplete: "off", "data-search": true });
    const editors = h("div", {});
    const result = h("div", { "aria-live": "polite" }, h("p", { class: "empty" }, "The path of the request through the rules appears here. Nothing is charged."));
    const all = [];
    const add = (initial) => {
      const number = all.length + 1;
      const editor = entriesEditor(initial, `Descriptor ${number}`);
      all.push(editor);
      editors.append(h("fieldset", {}, h("legend", {}, `Descriptor ${number}`), editor.element));
    };
    parameters.getAll("d").forEach((text) => add(entriesFromParams(new URLSearchParams(text))));
    if (!all.length) add(entriesFromParams(parameters));
    const request = () => ({
      domain: domain.value,
      descriptors: all.map((editor) => ({ entries: editor.read() })).filter((one) => one.entries.length),
    });
    main.append(h("div", { class: "title" }, h("h1", {}, "Try a request")), h("div", { class: "split" },
      result,
      h("form", { class: "card", onsubmit: (event) => { event.preventDefault(); run(); } },
        h("datalist", { id: "domains" }, domains.map((one) => h("option", { value: one.domain }))),
        h("div", { class: "row" }, h("label", {}, "Domain", domain)),
        editors, h("div", { class: "row" }, h("button", { class: "primary" }, "Explain"), h("button", { type: "button", onclick: () => add([]) }, "Add a descriptor")))));

    async function run() {
      const sent = request();
      if (!sent.descriptors.length) return notice("Write the key of an entry");
      app.replace("try", [["domain", sent.domain],
        ...sent.descriptors.map((one) => ["d", new URLSearchParams(entriesToParams(one.entries)).toString()])]);
      try {
        show(sent, await app.call("Explain", sent, signal));
      } catch (error) {
        if (error.name !== "AbortError") result.replaceChildren(h("p", { class: "error card", role: "alert" }, failure(error)));
      }
    }

    function show(sent, response) {
      result.replaceChildren(
        h("div", { class: "card" }, h("p", { class: "label" }, "The decision now"), h("p", { class: "figure" }, verdict(response.code))),
        ...(response.descriptors || []).map((one, at) => explained(app, sent, one, at)),
        h("div", { class: "card" }, h("h2", {}, "In a terminal"), command(tidegateCall(sent)), h("p", {}), command(grpcurl(sent))));
    }

    if (all[0].read().length) run();
  },
};

function explained(app, sent, one, at) {
  const over = one.code === "OVER_LIMIT";
  const steps = (one.steps || []).map((step) => h("li", {}, entries([step.entry || {}]), h("p", { class: "label" },
    `matched ${visible(step.matched || "")}`, step.declaredAt ? `, declared at ${visible(step.declaredAt)}` : "")));
  const end = h("li", { class: over ? "end" : "end ok" }, h("p", {}, visible(one.outcome || "", 600)),
    one.rule ? h("p", {}, "Rule ", h("bdi", { class: "mono" }, visible(one.rule)), " ", verdict(one.code)) : null,
    one.cause ? h("p", { class: "error" }, causeText(one)) : null,
    one.overrideId ? h("p", {}, `Override ${visible(one.overrideId)} applies instead of the rules${circumstances(one.override)}.`) : null,
    one.blockId ? h("p", {}, `Block ${visible(one.blockId)} denies the request${circumstances(one.block)}.`) : null,
    (one.counters || []).map((counter) => h("div", {}, h("p", { class: "label" },
      `${limitText(counter)}, ${counter.algorithm || ""}: ${counter.isUnknown ? "used and remaining not known" : `${count(counter.used || 0)} used, ${count(counter.remaining || 0)} remaining`}`,
      counter.bannedFor ? `, banned for ${duration(seconds(counter.bannedFor))}` : "",
      counter.resetAfter ? `, resets in ${isInFlight(counter.algorithm) ? "about " : ""}${duration(seconds(counter.resetAfter))}` : "",
      counter.slots ? `; ${slotsText(counter)}` : "", counter.reserved ? `; ${reservedText(counter)}` : "", counter.replacedBy ? `, replaced by ${visible(counter.replacedBy)}` : ""),
    bar(counter.used || 0, counter.requests || 0, counter.remaining ? "" : "denied"))));
  return h("div", { class: "card" }, h("h2", {}, `Descriptor ${at + 1}`), h("ol", { class: "path" }, steps, end),
    h("a", { href: app.link("keys", [["domain", sent.domain], ...entriesToParams(sent.descriptors[at]?.entries)]) }, "Counters of this key"));
}

/** Why, by whom and until when an override or a block was set. */
const circumstances = (one) => [one?.reason && `\u201c${visible(one.reason, 600)}\u201d`, one?.actor && `by ${visible(one.actor)}`,
  one?.expires && `until ${dateTime(one.expires)}`].filter(Boolean).map((text) => `, ${text}`).join("");

/** A word for a POSIX shell. */
const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** The command line that sends this request. It charges the counters, which Explain does not. */
export function tidegateCall({ domain, descriptors }) {
  const each = descriptors.map(({ entries: list }) => quoted(list.map(({ key, value }) => `${key}=${value}`.replace(/[\\,]/g, "\\$&")).join(",")));
  return ["tidegate", "call", quoted(domain), ...each].join(" ");
}

/** The same for grpcurl. */
export function grpcurl({ domain, descriptors }) {
  const body = JSON.stringify({ domain, descriptors });
  return `grpcurl -plaintext -d ${quoted(body)} ${location.hostname}:8081 envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`;
}

function command(text) {
  return h("div", {}, h("pre", {}, visible(text, 4000)), h("button", { class: "link", onclick: async () => {
    try {
      await navigator.clipboard.writeText(text);
      notice("Copied");
    } catch {
      notice("The browser does not allow copying here; select the text instead");
    }
  } }, "Copy"));
}
