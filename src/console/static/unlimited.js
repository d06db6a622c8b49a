// Unlimited: descriptors that nothing limits although no rule says so, and rules that would limit them.

import { number } from "./api.js";
import { count, counted, dateTime, failure, h, notice, visible } from "./view.js";

const REFRESH = 3000;

export default {
  title: "Unlimited",
  open(main, app, parameters, signal) {
    let domain = parameters.get("domain") || "";
    const [cards, found, refused] = [h("div"), h("p", { class: "label", role: "status" }), h("p", { class: "error", role: "alert" })];
    const filter = h("input", { type: "search", value: domain, "data-search": true, oninput: (event) => {
      domain = event.target.value;
      app.replace("unlimited", [["domain", domain]]);
      clearTimeout(timer);
      timer = setTimeout(read, 200);
    } });
    main.append(
      h("div", { class: "title" }, h("h1", {}, "Unlimited"), h("div", { class: "end" }, h("label", {}, "Domain", filter))),
      h("p", { class: "faint" }, "Descriptors that no rule decides on are admitted. A rule with \u201cunlimited: true\u201d takes one off this page."),
      refused, found, cards);

    let timer;
    let shown = new Map();
    /** Cards stay from one reading to the next, so that a selected text stays selected. */
    function draw({ paths = [], total = 0, others }) {
      const next = new Map(paths.map((path) => {
        const name = JSON.stringify([path.domain, path.keys, path.yaml, path.reason]);
        const card = shown.get(name) || pathCard(path);
        card.update(path);
        return [name, card];
      }));
      const elements = [...next.values()].map((card) => card.element);
      if (elements.length !== cards.children.length || elements.some((element, at) => cards.children[at] !== element)) cards.replaceChildren(...elements);
      shown = next;
      found.textContent = [
        total ? `${counted(total, "path")} of keys without a limit` : "Every descriptor since the start of the server had a rule.",
        total > paths.length ? `those seen last are listed, ${count(paths.length)}` : "",
        number(others) ? `${counted(number(others), "descriptor")} with other keys or domains` : "",
      ].filter(Boolean).join("; ");
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

function pathCard({ domain = "", keys = [], reason, nearest, declaredAt, yaml, place }) {
  const figures = h("p", { class: "label" });
  const copy = h("button", { type: "button", onclick: async () => {
    await navigator.clipboard.writeText(yaml);
    notice("Copied");
  } }, "Copy");
  const element = h("div", { class: "card" },
    h("h2", {}, h("bdi", {}, visible(domain)), ": ", h("bdi", { class: "mono" }, keys.map((key) => visible(key)).join(" \u2192 "))),
    figures, h("p", {}, visible(reason, 1000)),
    nearest ? h("p", {}, "Most like it: ", h("bdi", { class: "mono" }, visible(nearest)), declaredAt ? h("span", { class: "faint" }, ` ${visible(declaredAt)}`) : null) : null,
    h("p", { class: "label" }, `To limit it, add to ${visible(place, 1000)}:`),
    h("pre", { class: "mono" }, yaml), navigator.clipboard ? copy : null);
  function update({ descriptors, first, last }) {
    figures.textContent = `${counted(number(descriptors), "descriptor")}, first ${dateTime(first)}, last ${dateTime(last)}`;
  }
  return { element, update };
}
