// Live: decisions as they are made.

import { number, seconds } from "./api.js";
import { compact, count, duration, entriesText, failure, fill, h, middle, named, VirtualList, visible, zone } from "./view.js";

const KEPT = 5000;
/** Milliseconds between two updates of the list, so that drawing does not slow reading. */
const DRAW = 200;
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });
const FILTERS = [["domain", "Domain"], ["rule", "Rule"], ["key", "Key"], ["value", "Value"]];

export default {
  title: "Live",
  open(main, app, parameters, signal) {
    const filter = Object.fromEntries(["domain", "rule", "code", "key", "value", "sample"].map((name) => [name, parameters.get(name) || ""]));
    let [events, pending, dropped, paused, stream, frozen, failed] = [[], 0, 0, false, null, null, ""];
    const state = h("p", { class: "label", role: "status" });
    const pause = h("button", { "aria-pressed": "false", onclick: () => setPaused(!paused) }, "Pause");
    const list = new VirtualList({ height: 30, label: "Decisions, newest first", columns: 7, draw });
    const input = ([name, label]) => h("label", {}, label, h("input", { type: "search", name, value: filter[name], autocomplete: "off", spellcheck: "false" }));
    const select = (name, label, options) => {
      const element = h("select", { name, onchange: (event) => event.target.form.requestSubmit() }, options.map(([value, text]) => h("option", { value }, text)));
      element.value = filter[name];
      return h("label", {}, label, element);
    };
    main.append(
      h("div", { class: "title" }, h("h1", {}, "Live"), h("div", { class: "end" }, pause, h("button", { onclick: clear }, "Clear"))),
      h("form", { class: "row", onsubmit: (event) => {
        event.preventDefault();
        app.go("live", [...new FormData(event.target)]);
      } }, FILTERS.map(input), select("code", "Decision", [["", "all"], ["OVER_LIMIT", "denied"], ["OK", "admitted"]]),
      select("sample", "Share", [["", "all"], ["0.1", "1 in 10"], ["0.01", "1 in 100"]]), h("button", { class: "primary" }, "Apply")),
      h("div", { class: "live" }, h("div", { class: "columns", "aria-hidden": "true" },
        [`Time, ${zone()}`, "Decision", "Domain", "Descriptors", "Rule", "Remaining", "Reset"].map((name) => h("span", {}, name))), list.element),
      state);
    main.querySelector("form input").setAttribute("data-search", "");

    function setPaused(value) {
      paused = value;
      frozen = paused ? [...events] : null;
      pending = 0;
      pause.setAttribute("aria-pressed", String(paused));
      pause.textContent = paused ? "Continue" : "Pause";
      update();
    }

    function clear() {
      events = [];
      dropped = 0;
      setPaused(false);
    }

    const shown = () => frozen || events;

    function draw(row, index) {
      const all = shown();
      const event = all[all.length - 1 - index];
      if (!event) return;
      const over = event.code === "OVER_LIMIT";
      const descriptors = event.descriptors || [];
      const tightest = descriptors.find((one) => one.code === "OVER_LIMIT") || descriptors[0] || {};
      event.shown ||= [
        clock.format(new Date(event.time)), over ? "denied" : "admitted", visible(event.domain || "", 40),
        descriptors.map((one) => entriesText(one.entries)).join(" | "), tightest.cause ? `(${tightest.cause.replace("_", " ")})` : middle(named(tightest.rule, [tightest.name])),
        tightest.rule && !tightest.cause ? compact(tightest.remaining || 0) : "", tightest.resetAfter ? duration(seconds(tightest.resetAfter)) : ""];
      fill(row, event.shown);
      row.children[1].className = over ? "tag denied" : "tag admitted";
    }

    let rateAt = performance.now();
    let received = 0;
    let perSecond = 0;
    function update() {
      const now = performance.now();
      if (now - rateAt > 1000) {
        perSecond = (1000 * received) / (now - rateAt);
        [received, rateAt] = [0, now];
      }
      list.setLength(shown().length);
      const lost = dropped ? `; ${count(dropped)} were dropped, since they came faster than they were read` : "";
      if (failed) state.textContent = failed;
      else state.textContent = paused ? `Paused; ${count(pending)} new decisions` : `${count(perSecond)} decisions a second${lost}`;
    }

    function receive(event) {
      if (event.dropped) dropped += number(event.dropped);
      if (!event.decision) return;
      events.push(event.decision);
      received += 1;
      if (paused) pending += 1;
      if (events.length > 2 * KEPT) events = events.slice(-KEPT);
    }

    const request = Object.fromEntries(Object.entries(filter).filter(([, value]) => value));
    if (request.sample) request.sample = Number(request.sample);
    /** Reads the stream, and again when it ends. */
    async function read() {
      for (let failures = 0; !signal.aborted; failures += 1) {
        try {
          await app.tail(request, (event) => { failures = 0; failed = ""; receive(event); }, signal);
        } catch (error) {
          if (signal.aborted) return;
          // When the server is away, the page's frame has the message.
          failed = error.status ? failure(error) : "";
          if (error.status === 400) return;
        }
        await new Promise((resolve) => { setTimeout(resolve, Math.min(5000, 250 * 2 ** failures)); });
      }
    }
    stream = setInterval(update, DRAW);
    signal.addEventListener("abort", () => { clearInterval(stream); list.close(); });
    read();
  },
};
