// Shares: what clients have of the limits that they enforce by themselves: buckets of RLQS, and credits of leases.

import { number, seconds } from "./api.js";
import { bar, compact, count, counted, duration, entries, entriesText, entriesToParams, failure, h, limitText, rate, table, visible } from "./view.js";

const REFRESH = 3000;
const BUCKETS = 50;
/** A client reports every 5 s; it forgets a bucket after so many reports without a request. */
const IDLE_REPORTS = 12;
const IDLE_FROM = 3;
/** Assignments are renewed every 5 s: an assignment that ends sooner may not be renewed. */
const ENDS_SOON = 5;

export default {
  title: "Shares",
  open(main, app, parameters, signal) {
    let [domain, contains] = ["domain", "contains"].map((name) => parameters.get(name) || "");
    const [quotas, found, refused] = [h("div"), h("p", { class: "label", role: "status" }), h("p", { class: "error", role: "alert" })];
    const leases = leasesCard(app);
    const filter = h("input", { type: "search", value: contains, "data-search": true, oninput: (event) => change({ contains: event.target.value }) });
    const domains = h("select", { onchange: (event) => change({ domain: event.target.value }) },
      h("option", { value: "" }, "all"), (app.status.domains || []).map((one) => h("option", { value: one.domain }, visible(one.domain))));
    domains.value = domain;
    main.append(
      h("div", { class: "title" }, h("h1", {}, "Shares"), h("div", { class: "end" },
        h("label", {}, "Domain", domains), h("label", {}, "Bucket contains", filter))),
      refused, h("h2", {}, "Buckets of quotas"), found, quotas, leases.element);

    let timer;
    function change(changed) {
      ({ domain = domain, contains = contains } = changed);
      app.replace("shares", [["domain", domain], ["contains", contains]]);
      clearTimeout(timer);
      timer = setTimeout(read, 200);
    }

    /** Cards by what they are of. They stay from one reading to the next, so that their links keep the focus. */
    let cards = new Map();
    function draw({ buckets = [], total = 0, streams, undivided, isLearning }) {
      const drawn = new Map(buckets.map((bucket) => {
        const name = JSON.stringify([bucket.domain, bucket.entries]);
        const card = cards.get(name) || bucketCard(app, bucket);
        card.update(bucket);
        return [name, card];
      }));
      const shown = [...drawn.values()].map((card) => card.element);
      if (shown.length !== quotas.children.length || shown.some((element, at) => quotas.children[at] !== element)) quotas.replaceChildren(...shown);
      cards = drawn;
      found.textContent = [
        `${counted(total, "bucket")}, ${counted(number(streams), "stream")}`,
        total > buckets.length ? `those with most demand are listed, ${count(buckets.length)}` : "",
        number(undivided) ? `${counted(number(undivided), "bucket")} of streams that no limit divides` : "",
        isLearning ? "the server has just started: for 16 s, what a former process may have assigned counts as used" : "",
      ].filter(Boolean).join("; ");
    }

    async function read() {
      clearTimeout(timer);
      try {
        const [listed, nodes] = await Promise.all([
          app.call("ListQuotas", { domain, contains, limit: BUCKETS }, signal), app.call("ListLeases", { limit: 100 }, signal)]);
        refused.textContent = "";
        draw(listed);
        leases.update(nodes);
      } catch (error) {
        if (error.name !== "AbortError") refused.textContent = failure(error);
      }
      if (!signal.aborted) timer = setTimeout(read, REFRESH);
    }
    signal.addEventListener("abort", () => clearTimeout(timer));
    read();
  },
};

/** Seconds from a time of the server to its present one, as the last status has it. */
const secondsSince = (app, time) => (Date.parse(app.status.now) - Date.parse(time)) / 1000;

/** A figure with its label, and a bar if it is a part of something. */
const labelled = (label, text, part, all, kind) => h("div", {}, h("p", { class: "label" }, label), h("p", { class: "share" }, text), all === undefined ? null : bar(part, all, kind));

/** Replaces a table within its frame, which may be scrolled or have the focus. */
function renew(place, next) {
  if (place.firstElementChild) place.firstElementChild.replaceChildren(...next.childNodes);
  else place.append(next);
}

function bucketCard(app, { domain, entries: list, isRedacted }) {
  const name = isRedacted ? entries(list) : h("a", { href: app.link("keys", [["domain", domain], ...entriesToParams(list)]) }, entries(list));
  const [about, figures, clients, more] = [h("p", { class: "faint" }), h("div", { class: "grid" }), h("div"), h("p", { class: "label" })];
  const element = h("div", { class: "card" }, h("h3", {}, name), about, figures, clients, more);
  function update(bucket) {
    const isSliced = bucket.division === "SLICES";
    const { requests = 0, rule = "", demand = 0, rate: share = 0, goneRate = 0, subscriberCount = 0, subscribers = [] } = bucket;
    const [tokens, gone] = [number(bucket.tokens), number(bucket.goneTokens)];
    const figure = (perSecond, hits) => (isSliced ? count(hits) : `${rate(perSecond)}, ${counted(hits, "token")}`);
    const limit = isSliced ? requests : requests / Math.max(1, seconds(bucket.window));
    const all = isSliced ? limit : Math.max(limit, demand);
    about.replaceChildren("Domain ", h("bdi", {}, visible(domain || "")), `, ${limitText(bucket)}`,
      ...(rule ? [", rule ", h("bdi", { class: "mono" }, visible(rule))] : []), isSliced ? ", divided by slices" : "");
    figures.replaceChildren(
      isSliced ? labelled("Demand", rate(demand)) : labelled("Demand", rate(demand), demand, all, demand > limit ? "denied" : ""),
      isSliced ? labelled("Unspent in slices", count(tokens), tokens, all) : labelled("Shares in force", figure(share, tokens), share, all),
      goneRate || gone ? labelled("Held by clients that have gone", figure(goneRate, gone), isSliced ? gone : goneRate, all, "near") : "",
      ...(bucket.part ? partOf(app, bucket.part, figure, (perSecond, hits) => bar(isSliced ? hits : perSecond, all)) : []));
    const unlisted = subscriberCount - subscribers.length;
    renew(clients, table([
      ["Client", ({ peer = "", names = [], stream }) => h("span", {}, h("bdi", {}, visible([peer, ...names].join(" "))), h("span", { class: "faint" }, ` stream ${count(number(stream))}`))],
      ["Demand", (row) => rate(row.demand || 0), true],
      ["Share", (row) => shareOf(row, isSliced), true],
      [isSliced ? "Unspent" : "Tokens", (row) => count(number(row.tokens)), true],
      ["Of the bucket", (row) => (isSliced ? bar(number(row.tokens), tokens) : bar(row.rate || 0, share))],
      ["Last report", (row) => lastReport(app, row)],
      ["Assignment", (row) => ending(app, row)],
    ], subscribers, `Clients of ${visible(domain || "")}: ${entriesText(list)}`));
    more.textContent = unlisted > 0 ? `${counted(unlisted, "client")} with less demand` : "";
  }
  return { element, update };
}

/** What this server and all others have of a limit in a store. */
function partOf(app, { rate: share = 0, tokens, expires, otherServers = 0, othersRate = 0, othersTokens }, figure, barOf) {
  const one = (label, perSecond, hits, more = []) => h("div", {},
    h("p", { class: "label" }, label), h("p", { class: "share" }, figure(perSecond, hits), ...more), barOf(perSecond, hits));
  return [
    one("Part of this server", share, number(tokens), [", ", ending(app, { expires })]),
    one(`Parts of ${counted(otherServers, "other server")}`, othersRate, number(othersTokens)),
  ];
}

function shareOf({ assignment, rate: share = 0 }, isSliced) {
  if (assignment === "DENY_ALL") return h("span", { class: "tag denied" }, "denied");
  if (assignment !== "TOKENS") return h("span", { class: "tag shadow" }, "none");
  return isSliced ? "slice" : rate(share);
}

function lastReport(app, { lastReport: time, idleReports = 0 }) {
  const text = `${duration(Math.max(0, Math.round(secondsSince(app, time))))} ago`;
  return idleReports < IDLE_FROM ? text : [`${text} `, h("span", { class: "tag" }, `idle, ${count(idleReports)} of ${IDLE_REPORTS} reports`)];
}

function ending(app, { expires }) {
  if (!expires) return h("span", { class: "faint" }, "none in force");
  const left = -secondsSince(app, expires);
  if (left <= 0) return h("span", { class: "tag denied" }, "ended");
  const text = `ends in ${duration(Math.max(1, Math.round(left)))}`;
  return left < ENDS_SOON ? h("span", { class: "tag shadow" }, text) : text;
}

function leasesCard(app) {
  const [about, nodes] = [h("p", { class: "label" }), h("div")];
  const element = h("div", { class: "card" }, h("h2", {}, "Leases"), about, nodes);
  function update({ nodes: rows = [], total = 0, leases, credits }) {
    const out = number(credits);
    about.textContent = total ? `${counted(total, "node")}, ${counted(number(leases), "lease")}, ${counted(out, "credit")} outstanding`
      : "No client holds credits of this server's counters.";
    nodes.hidden = !total;
    renew(nodes, table([
      ["Caller", ({ actor, peer }) => h("bdi", {}, visible([actor || "not known yet", peer].filter(Boolean).join(" at ")))],
      ["Node", (row) => h("span", { class: "mono" }, BigInt(row.number || 0).toString(16).padStart(16, "0"))],
      ["Leases", (row) => count(number(row.leases)), true],
      // Demand is that of one lease, of 200 ms.
      ["Demand", (row) => rate(5 * number(row.demand)), true],
      ["Credits", (row) => compact(number(row.credits)), true],
      ["Of all credits", (row) => bar(number(row.credits), out)],
      ["Last claim", (row) => (row.lastClaim ? `${duration(Math.max(0, Math.round(secondsSince(app, row.lastClaim))))} ago` : "")],
    ], rows, "Nodes with leases"));
  }
  return { element, update };
}
