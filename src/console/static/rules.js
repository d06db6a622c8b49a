// Rules: every rule in force, with its rates.

import { number, seconds } from "./api.js";
import { ask, bar, count, counted, duration, failure, fill, h, limitText, middle, percent, rate, REASON, VirtualList, visible } from "./view.js";

const PAGE = 1000;
const REFRESH = 3000;

function limits(rule) {
  if (rule.unlimited) return "unlimited";
  return (rule.limits || []).map(limitText).join(", ");
}

/** Hits of a rule: each hit counts in all of its limits, so that a sum would count it several times. */
const most = (rule, group, field) => Math.max(0, ...(rule.limits || []).map((limit) => number(limit[group]?.[field])));

const ORDERS = [["", "as declared"], ["denied", "most denied first"], ["rate", "most denied a second first"]];
const weight = { denied: (rule) => most(rule, "hits", "denied"), rate: (rule) => most(rule, "rates", "denied") };

export default {
  title: "Rules",
  open(main, app, parameters, signal) {
    let [domain, contains, sort] = ["domain", "contains", "sort"].map((name) => parameters.get(name) || "");
    let [rules, tokens, load, order] = [[], [], null, []];
    // The list: the number of its rules, and their generation; null if it could not be read.
    let [total, generation] = [0, null];
    // The pane: the path and the domain of its rule, and the rule as it is drawn.
    let [opened, drawn] = [null, ""];
    if (parameters.get("rule")) opened = { domain, rule: parameters.get("rule") };
    const detail = h("div", { class: "card", "aria-live": "polite", hidden: true });
    const found = h("p", { class: "label", role: "status" });
    const filter = h("input", { type: "search", value: contains, "data-search": true, oninput: (event) => change({ contains: event.target.value }) });
    const domains = h("select", { onchange: (event) => change({ domain: event.target.value }) },
      h("option", { value: "" }, "all"), (app.status.domains || []).map((one) => h("option", { value: one.domain }, visible(one.domain))));
    domains.value = domain;
    const sorts = h("select", { onchange: (event) => { sort = event.target.value; remember(); reorder(); } }, ORDERS.map(([value, text]) => h("option", { value }, text)));
    sorts.value = sort = Object.hasOwn(weight, sort) ? sort : "";
    const list = new VirtualList({ height: 36, label: "Rules", columns: 7, draw, onOpen: (index) => show(at(index)) });
    signal.addEventListener("abort", () => { list.close(); load?.abort(); });
    const split = h("div", { class: "split whole" },
      h("div", { class: "rules" }, h("div", { class: "columns", "aria-hidden": "true" },
        ["Rule", "Domain", "Limits", "Admitted hits", "Denied hits", "Denied share", "Declared at"].map((name) => h("span", {}, name))), list.element, found),
      detail);
    main.append(
      h("div", { class: "title" }, h("h1", {}, "Rules"), h("div", { class: "end" },
        h("label", {}, "Domain", domains), h("label", {}, "Path contains", filter), h("label", {}, "Order", sorts))),
      split);

    const remember = (rule) => app.replace("rules", [["domain", domain], ["contains", contains], ["sort", sort], ["rule", rule]]);
    /** The rule in a row of the list. */
    const at = (index) => rules[sort ? order[index] : index];

    function reorder() {
      order = sort ? rules.map((_, index) => index).sort((a, b) => weight[sort](rules[b] || {}) - weight[sort](rules[a] || {}) || a - b) : [];
      list.schedule();
    }

    let timer;
    function change(changed) {
      ({ domain = domain, contains = contains } = changed);
      remember();
      clearTimeout(timer);
      timer = setTimeout(reload, 200);
    }

    function draw(row, index) {
      const rule = at(index);
      if (!rule) return fill(row, ["\u2026", "", "", "", "", "", ""]);
      const [admitted, denied] = [most(rule, "rates", "admitted"), most(rule, "rates", "denied")];
      const [hits, over] = [most(rule, "hits", "admitted"), most(rule, "hits", "denied")];
      fill(row, [
        middle(`${sort ? "" : "\u2003\u2003".repeat(Math.min(rule.depth || 0, 8))}${rule.rule || ""}`), visible(rule.domain || "", 60),
        `${limits(rule)}${rule.shadowMode ? " (shadow)" : ""}${rule.quotaMode ? " (quota)" : ""}`,
        rule.limits?.length ? rate(admitted) : "", rule.limits?.length ? rate(denied) : "",
        rule.limits?.length ? percent(over, hits + over) : "", middle(rule.declaredAt || "")]);
    }

    const request = (token) => ({ domain, contains, pageSize: PAGE, pageToken: token });

    /** Reads all pages; a list of 10,000 rules is ten of them. */
    async function reload() {
      load?.abort();
      load = new AbortController();
      const mine = load.signal;
      generation = app.status.rules?.generation;
      try {
        const read = [];
        const pages = [""];
        for (let token = ""; ;) {
          const page = await app.call("ListRules", request(token), mine);
          read.push(...(page.rules || []));
          [rules, tokens] = [[...read], [...pages]];
          total = page.total || 0;
          list.setLength(Math.max(read.length, total));
          reorder();
          found.textContent = counted(total || read.length, "rule");
          token = page.nextPageToken || "";
          if (!token) break;
          pages.push(token);
        }
        const index = rules.findIndex(isOpened);
        list.selected = sort ? order.indexOf(index) : index;
        if (index >= 0) show(rules[index]);
        else if (!detail.hidden) deselect();
      } catch (error) {
        if (error.name === "AbortError") return;
        generation = null;
        found.textContent = failure(error);
      }
    }

    /** Reads the pages in view again, for their rates. */
    async function refresh() {
      if (generation === null) return reload();
      const mine = load?.signal;
      // In another order the rows in view are of any page.
      const [first, end] = sort ? [0, rules.length] : list.range();
      for (let page = Math.floor(first / PAGE); page * PAGE < end && page < tokens.length; page += 1) {
        const response = await app.call("ListRules", request(tokens[page]), mine).catch(() => null);
        if (!response || mine?.aborted) return;
        // A list of other rules has rows in other places.
        if ((response.total || 0) !== total || app.status.rules?.generation !== generation) return reload();
        (response.rules || []).forEach((rule, row) => { rules[page * PAGE + row] = rule; });
      }
      reorder();
      if (!detail.hidden) show(rules.find(isOpened));
    }

    const isOpened = (rule) => opened && rule?.rule === opened.rule && (!opened.domain || rule.domain === opened.domain);

    /** Opens a rule, or draws the open one again if it has changed; the button or link that has the focus keeps it. */
    function show(rule) {
      if (!rule) return;
      const text = JSON.stringify(rule);
      const isNew = detail.hidden || !isOpened(rule);
      if (!isNew && text === drawn) return;
      [opened, drawn] = [{ domain: rule.domain, rule: rule.rule }, text];
      const focused = isNew ? -1 : [...detail.querySelectorAll("a, button")].indexOf(document.activeElement);
      // A change of its figures is not read out.
      detail.setAttribute("aria-live", isNew ? "polite" : "off");
      const of = [["domain", rule.domain], ["rule", rule.rule]];
      remember(rule.rule);
      detail.hidden = false;
      split.classList.remove("whole");
      detail.replaceChildren(h("div", {},
        h("button", { class: "close", "aria-label": "Close the rule", onclick: deselect }, "\u00d7"),
        h("h2", { class: "mono" }, h("bdi", {}, visible(rule.rule || "", 400))),
        h("p", { class: "faint" }, "Domain ", h("bdi", {}, visible(rule.domain || "")), rule.declaredAt ? `, declared at ${visible(rule.declaredAt)}` : ""),
        h("p", {}, rule.unlimited ? h("span", { class: "tag" }, "unlimited") : "", rule.shadowMode ? h("span", { class: "tag shadow" }, "shadow") : "",
          rule.quotaMode ? h("span", { class: "tag shadow" }, "quota") : ""),
        (rule.limits || []).map((limit) => {
          const [admitted, denied] = [number(limit.hits?.admitted), number(limit.hits?.denied)];
          return h("div", {}, h("p", {}, h("strong", {}, limitText(limit)), ` ${limit.algorithm || ""} ${limit.name ? visible(limit.name) : ""}`),
            limit.when ? h("p", { class: "label" }, `when: ${visible(limit.when, 400)}`) : "",
            limit.calendar ? h("p", { class: "label" }, `calendar: ${visible(limit.calendar)}`) : "",
            (limit.schedule || []).map((entry) => h("p", { class: "label" }, `schedule: ${visible(entry)}`)),
            limit.ban ? h("p", { class: "label" }, `ban: ${visible(limit.ban)}`) : "",
            limit.inFlight === undefined ? "" : h("p", { class: "label" }, `${count(number(limit.inFlight))} in flight over all keys`,
              limit.oldestSlot ? `, the oldest for ${duration(seconds(limit.oldestSlot))}` : ""),
            limit.reserve ? h("p", { class: "label" }, `reserve: ${visible(limit.reserve)}`) : "",
            bar(denied, admitted + denied, "denied"),
            h("p", { class: "label" }, `${count(admitted)} hits admitted, ${count(denied)} denied`,
              number(limit.hits?.shadowDenied) ? `, ${count(number(limit.hits.shadowDenied))} over it in shadow mode` : ""));
        }),
        rule.limits?.length ? h("div", { class: "row" },
          h("a", { class: "button", href: app.link("keys", of) }, "Top keys"),
          h("a", { class: "button", href: app.link("what-if", [["domain", rule.domain]]) }, "What if"),
          h("a", { class: "button", href: app.link("live", of) }, "Live"),
          app.mayOperate ? h("button", { class: "danger", onclick: () => reset(rule) }, "Reset counters\u2026") : null)
          : h("p", { class: "faint" }, rule.unlimited ? "Requests of this rule are not limited." : "No limit: this node only leads to others.")));
      if (focused >= 0) detail.querySelectorAll("a, button")[focused]?.focus({ preventScroll: true });
    }

    function deselect() {
      const hadFocus = detail.contains(document.activeElement);
      detail.hidden = true;
      split.classList.add("whole");
      [list.selected, opened] = [-1, null];
      list.schedule();
      if (hadFocus) list.element.focus();
      remember();
    }
    split.addEventListener("keydown", (event) => { if (event.key === "Escape" && !detail.hidden) deselect(); });

    const reset = (rule) => ask({
      title: "Reset the counters of a rule", danger: true, verb: "Reset",
      about: h("p", {}, "Every key of ", h("bdi", { class: "mono" }, visible(rule.rule)), " starts anew."),
      fields: [REASON],
      act: async ({ reason }) => {
        const { counters, inNewKeys } = await app.call("Reset", { domain: rule.domain, rule: rule.rule, reason });
        return inNewKeys ? "Reset here, and within a second on all servers" : `${counted(number(counters), "counter")} dropped`;
      },
    });

    reload();
    const every = setInterval(refresh, REFRESH);
    signal.addEventListener("abort", () => { clearInterval(every); clearTimeout(timer); });
  },
};
