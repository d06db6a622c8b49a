// Unlimited: descriptors that nothing limits although no rule exempts them, with rules that would limit them; and descriptors that state no day
// for their calendar windows, with the days that their rules accept.

import { number } from "./api.js";
import { count, counted, dateTime, failure, h, notice, visible } from "./view.js";

const REFRESH = 3000;

export default {
  title: "Unlimited",
  open(main, app, parameters, signal) {
    let domain = parameters.get("domain") || "";
    const refused = h("p", { class: "error", role: "alert" });
    const [unlimited, days] = [cards(pathCard), cards(dayCard)];
    const filter = h("input", { type: "search", value: domain, "data-search": true, oninput: (event) => {
      domain = event.target.value;
      app.replace("unlimited", [["domain", domain]]);
      clearTimeout(timer);
      timer = setTimeout(read, 200);
    } });
    const ofDays = h("section", { hidden: true },
      h("h2", {}, "Windows without a day"),
      h("p", { class: "faint" }, "The calendar of these limits begins on a day that an entry states, and its value is no day. The requests are limited, by other windows."),
      days.found, days.element);
    main.append(
      h("div", { class: "title" }, h("h1", {}, "Unlimited"), h("div", { class: "end" }, h("label", {}, "Domain", filter))),
      h("p", { class: "faint" }, "Descriptors that no rule decides on are admitted. A rule with \u201cunlimited: true\u201d takes one off this page."),
      refused, unlimited.found, unlimited.element, ofDays);

    let timer;
    function draw({ paths = [], total = 0, others, unknownDays = [], unknownDaysTotal = 0, unknownDaysOthers }) {
      unlimited.draw(paths, summary(paths, total, others, "without a limit") || "Every descriptor since the start of the server had a rule.");
      const withoutDay = summary(unknownDays, unknownDaysTotal, unknownDaysOthers, "without a day");
      ofDays.hidden = !withoutDay;
      days.draw(unknownDays, withoutDay);
    }

    async function read() {
      clearTimeout(timer);
      try {
        const listed = await app.call("ListUnlimited", { domain }, signal);
        refused.textContent = "";
        draw(listed);
      } catch (error) {
        if (error.name !== "AbortError") refused.textContent = failure(error);
      }
      if (!signal.aborted) timer = setTimeout(read, REFRESH);
    }
    signal.addEventListener("abort", () => clearTimeout(timer));
    read();
  },
};

function summary(paths, total, others, lacking) {
  return [
    total ? `${counted(total, "path")} of keys ${lacking}` : "",
    total > paths.length ? `those seen last are listed, ${count(paths.length)}` : "",
    number(others) ? `${counted(number(others), "descriptor")} with other keys or domains` : "",
  ].filter(Boolean).join("; ");
}

/** Cards of paths. They stay from one reading to the next, so that a selected text stays selected. */
function cards(make) {
  const [element, found] = [h("div"), h("p", { class: "label", role: "status" })];
  let shown = new Map();
  function draw(paths, text) {
    const next = new Map(paths.map(({ descriptors, first, last, ...path }) => {
      const name = JSON.stringify(path);
      const card = shown.get(name) || make(path);
      card.figures.textContent = `${counted(number(descriptors), "descriptor")}, first ${dateTime(first)}, last ${dateTime(last)}`;
      return [name, card];
    }));
    const elements = [...next.values()].map((card) => card.element);
    if (elements.length !== element.children.length || elements.some((one, at) => element.children[at] !== one)) element.replaceChildren(...elements);
    shown = next;
    found.textContent = text;
  }
  return { element, found, draw };
}

function pathCard({ domain, keys, reason, nearest, declaredAt, yaml, place }) {
  const copy = h("button", { type: "button", onclick: async () => {
    await navigator.clipboard.writeText(yaml);
    notice("Copied");
  } }, "Copy");
  return card(domain, keys, reason,
    placed("Most like it: ", nearest, declaredAt),
    h("p", { class: "label" }, `To limit it, add to ${visible(place, 1000)}:`),
    h("pre", { class: "mono" }, yaml), navigator.clipboard ? copy : null);
}

function dayCard({ domain, keys, reason, rule, declaredAt, remedy }) {
  return card(domain, keys, reason, placed("Rule: ", rule, declaredAt), h("p", {}, `Remedy: ${visible(remedy, 1000)}`));
}

function card(domain = "", keys = [], reason = "", ...further) {
  const figures = h("p", { class: "label" });
  const element = h("div", { class: "card" },
    h("h2", {}, h("bdi", {}, visible(domain)), ": ", h("bdi", { class: "mono" }, keys.map((key) => visible(key)).join(" \u2192 "))),
    figures, h("p", {}, visible(reason, 1000)), ...further);
  return { element, figures };
}

function placed(label, rule, declaredAt) {
  return rule ? h("p", {}, label, h("bdi", { class: "mono" }, visible(rule)), declaredAt ? h("span", { class: "faint" }, ` ${visible(declaredAt)}`) : null) : null;
}
