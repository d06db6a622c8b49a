// Overview: decisions over time, and what the server has and needs.

import { number } from "./api.js";
import { Chart, recent } from "./chart.js";
import { bar, bytes, compact, count, counted, dateTime, duration, entries, entriesToParams, failure, h, named, percent, rate, table, visible } from "./view.js";

const ENDS = { from: "5 min ago", to: "now" };

/** Per second between readings: admitted, denied, shadow. */
function rates(readings) {
  const series = { admitted: [], denied: [], shadow: [] };
  for (let at = 1; at < readings.length; at += 1) {
    const [before, after] = [readings[at - 1], readings[at]];
    const time = Math.max(0.001, (after.at - before.at) / 1000);
    const [a, b] = [before.counts, after.counts];
    for (const [name, field] of [["admitted", "admitted"], ["denied", "denied"], ["shadow", "shadowDenied"]]) {
      series[name].push(Math.max(0, (number(b?.[field]) - number(a?.[field])) / time));
    }
  }
  return series;
}

const figure = (label, ...content) => h("div", { class: "card" }, h("p", { class: "label" }, label), content);

export default {
  title: "Overview",
  open(main, app, parameters, signal) {
    const domain = parameters.get("domain") || "";
    const chart = new Chart("Decisions");
    const [figures, domains, top, server] = [h("div", { class: "grid figures" }), h("div", { class: "card" }), h("div", { class: "card" }), h("div", { class: "grid" })];
    main.append(
      h("div", { class: "title" }, h("h1", {}, domain ? `Hits of ${visible(domain)}` : "Decisions"),
        domain ? h("a", { href: app.link("overview") }, "All domains") : null),
      figures, h("div", { class: "card" }, chart.element), domains, top, server);
    repeatTop(app, top, domain, signal);

    let before = { started: "", points: [] };
    /** Readings of the server from before this tab was opened, and those of the tab. */
    const readings = (status) => {
      if (before.started !== status.started) {
        before = { started: status.started, points: [] };
        app.call("History", { domain }, signal).then(({ points = [] }) => {
          before.points = points.map(({ time, counts }) => ({ at: Date.parse(time), counts }));
        }).catch(() => { /* The chart begins with this tab then. */ });
      }
      const own = app.history.map(({ at, status: one }) => ({ at, counts: of(one) }));
      return recent([...before.points.filter(({ at }) => !own.length || at < own[0].at), ...own]);
    };
    const of = (state) => (domain ? state.domains?.find((one) => one.domain === domain)?.hits : state.decisions);

    app.onStatus((status) => {
      const points = readings(status);
      const series = rates(points);
      const now = (name) => series[name].at(-1) || 0;
      const lines = [["admitted", "admitted", series.admitted], ["denied", "denied", series.denied]];
      if (domain || series.shadow.some((value) => value > 0)) lines.push(["shadow", "over a shadow limit", series.shadow]);
      chart.update(lines, { ...ENDS, times: points.slice(1).map(({ at }) => at) });
      const total = of(status) || {};
      // A request with three descriptors is one request, and three hits. Rows of domains have hits, and so has a tile of one domain.
      const name = domain ? "hits" : "requests";
      const hits = (outcome) => (domain ? null : h("p", { class: "label" }, `${compact(hitsNow(app, outcome))} hits/s in all domains`));
      const all = number(total.admitted) + number(total.denied);
      const latency = status.latency;
      figures.replaceChildren(
        figure(`Admitted ${name}`, h("p", { class: "figure" }, rate(now("admitted")), " ", h("small", {}, `${count(number(total.admitted))} in all`)), hits("admitted")),
        figure(`Denied ${name}`, h("p", { class: "figure" }, rate(now("denied")), " ", h("small", {}, `${percent(number(total.denied), all)} of all`)), hits("denied")),
        figure("Latency, p99 of 5 min", h("p", { class: "figure" }, latency?.p99Seconds ? duration(latency.p99Seconds) : "\u2013",
          latency?.p99Seconds ? [" ", h("small", {}, `p50 ${duration(latency.p50Seconds || 0)}, p95 ${duration(latency.p95Seconds || 0)}`)] : null)),
        memory(status.counters || {}));
      domains.replaceChildren(h("h2", {}, "Domains"), domainTable(app, status));
      server.replaceChildren(...serverCards(status));
    }, signal);
  },
};

const TOP_REFRESH = 4000;
const TOP_KEYS = 5;

/** The keys with most denied hits in the last minute. */
function repeatTop(app, place, domain, signal) {
  const message = h("p", { class: "error", role: "alert" });
  let [timer, drawn] = [0, null];
  const read = async () => {
    try {
      const { keys = [] } = await app.call("TopKeys", { domain, outcome: "DENIED", window: "MINUTE", limit: TOP_KEYS }, signal);
      message.textContent = "";
      const text = JSON.stringify(keys);
      // Drawn only when it has changed, so that its links keep the focus.
      if (text !== drawn) place.replaceChildren(h("h2", {}, "Most denied keys of the last minute"), topTable(app, keys), message,
        h("p", { class: "label" }, h("a", { href: app.link("keys", [["domain", domain]]) }, "All keys")));
      drawn = text;
    } catch (error) {
      if (error.name !== "AbortError") place.replaceChildren(message), message.textContent = failure(error);
    }
    if (!signal.aborted) timer = setTimeout(read, TOP_REFRESH);
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  read();
}

function topTable(app, keys) {
  if (!keys.length) return h("p", { class: "faint" }, "None.");
  const name = ({ domain, descriptor, isRedacted }) => (isRedacted ? entries(descriptor?.entries)
    : h("a", { href: app.link("keys", [["domain", domain], ...entriesToParams(descriptor?.entries)]) }, entries(descriptor?.entries)));
  return table([
    ["Key", name],
    ["Rule", (key) => h("bdi", { class: "mono" }, visible(named(key.rule, key.limits)))],
    ["Domain", (key) => h("bdi", {}, visible(key.domain || ""))],
    ["Denied hits", (key) => count(number(key.hits)), true],
  ], keys, "Most denied keys");
}

function memory(counters) {
  const [used, most] = [number(counters.count), number(counters.countMax)];
  const [bytesUsed, bytesMost] = [number(counters.memoryBytes), number(counters.memoryBytesMax)];
  return figure("Counters", h("p", { class: "figure" }, compact(used), most ? [" ", h("small", {}, `of at most ${compact(most)}`)] : null),
    bar(used, most, used > 0.9 * most ? "near" : ""),
    bytesUsed ? h("p", { class: "label" }, `Memory: ${bytes(bytesUsed)}${bytesMost ? ` of ${bytes(bytesMost)}` : ""}`) : null);
}

/** Hits a second of a domain, between the last two readings. */
const domainNow = (app, name, field) => rates(app.history.slice(-2).map(({ at, status: { domains } }) => ({ at, counts: domains?.find((one) => one.domain === name)?.hits })))[field].at(-1) || 0;

/** Hits a second of all domains. */
const hitsNow = (app, field) => (app.status.domains || []).reduce((sum, { domain }) => sum + domainNow(app, domain, field), 0);

function domainTable(app, status) {
  const list = status.domains || [];
  if (!list.length) return h("p", { class: "empty" }, "The rules have no domain.");
  return table([
    ["Domain", (row) => h("a", { href: app.link("overview", [["domain", row.domain]]) }, h("bdi", {}, visible(row.domain)))],
    ["Rules", (row) => h("a", { href: app.link("rules", [["domain", row.domain]]) }, count(row.rules || 0)), true],
    ["Admitted hits", (row) => rate(domainNow(app, row.domain, "admitted")), true],
    ["Denied hits", (row) => rate(domainNow(app, row.domain, "denied")), true],
    ["Denied hits, in all", (row) => percent(number(row.hits?.denied), number(row.hits?.admitted) + number(row.hits?.denied)), true],
    ["Hits over a shadow limit", (row) => count(number(row.hits?.shadowDenied)), true],
  ], list, "Domains");
}

function serverCards(status) {
  const { rules = {}, snapshots, store } = status;
  const cards = [figure("Rules",
    h("p", {}, `${counted(rules.rules || 0, "rule")}, ${counted(rules.limits || 0, "limit")}, loaded ${dateTime(rules.loaded)} (generation ${rules.generation || 0})`),
    (rules.sources || []).map((source) => h("p", { class: "mono" }, visible(source))),
    rules.isKept ? h("p", { class: "error" }, "In force are rules of a former process: the present ones have errors, or the control plane has not responded yet") : null,
    number(rules.reloadsFailed) ? h("p", { class: "error" }, `${counted(number(rules.reloadsFailed), "change")} refused`) : null,
    rules.errors?.length ? h("pre", {}, rules.errors.map((error) => visible(error, 2000)).join("\n")) : null)];
  if (snapshots) {
    cards.push(figure("Snapshots", h("p", {}, `${count(number(snapshots.written))} written, the last ${snapshots.last ? dateTime(snapshots.last) : "not yet"}`),
      number(snapshots.failed) ? h("p", { class: "error" }, `${snapshots.failed} failed`) : null));
  }
  if (store) {
    cards.push(sharedStore(store));
    if (store.leases) cards.push(leases(store.leases));
  }
  cards.push(figure("Server", h("p", {}, `Version ${visible(status.version || "")}, started ${dateTime(status.started)}`)));
  return cards;
}

function sharedStore(store) {
  const { nodes = 0, nodesReachable = 0, servers = 0, roundTrip } = store;
  const [calls, failed, outages] = [number(store.calls), number(store.callsFailed), number(store.outages)];
  const line = (text, isBad) => h("p", { class: isBad ? "error" : null }, text);
  return figure("Store of shared counters",
    h("p", {}, store.isReachable ? h("span", { class: "tag admitted" }, "reachable") : h("span", { class: "tag denied" }, "not reachable")),
    line(nodes > 1 ? `${nodesReachable} of ${nodes} nodes reachable, ${counted(servers, "server")}` : counted(servers, "server"), nodesReachable < nodes),
    roundTrip ? line(`Round trip in 5 min: p50 ${duration(roundTrip.p50Seconds || 0)}, p99 ${duration(roundTrip.p99Seconds || 0)}`) : null,
    line(`${counted(calls, "call")}, ${count(failed)} failed (${percent(failed, calls)})`, failed > 0),
    outages ? line(counted(outages, "outage"), true) : null);
}

function leases(of) {
  const local = number(of.admitted) + number(of.denied);
  return figure("Leases", h("p", { class: "figure" }, compact(number(of.held)), " ", h("small", {}, "with credits")),
    h("p", {}, `${count(local)} requests decided by leases and kept denials, ${count(number(of.requests))} requests for credits`),
    number(of.wasted) ? h("p", { class: "label" }, `${counted(number(of.wasted), "credit")} expired unspent`) : null);
}
