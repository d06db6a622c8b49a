// A chart of rates over time, as SVG.

import { compact, h } from "./view.js";

const SVG = "http://www.w3.org/2000/svg";
/** Pixels; the width is that of the page. */
const HEIGHT = 208;
const LEFT = 46;
const BOTTOM = 20;
const TOP = 8;

function node(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** The time that charts of recent readings span, in milliseconds. */
export const SPAN = 300_000;

/** The readings of the last five minutes up to the last one. A hidden tab reads seldom. */
export function recent(readings) {
  const end = readings.at(-1)?.at;
  return readings.filter(({ at }) => at > end - SPAN && at <= end);
}

/** The least of 1, 2, 5, 10, 20 … that is not below. */
export function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value) || 10 * power;
}

/** Series are [class, name, values], with the latest value last. */
export class Chart {
  constructor(label, points) {
    this.label = label;
    this.points = points;
    this.svg = node("svg", { class: "chart", role: "img" });
    this.legend = h("p", { class: "legend" });
    this.element = h("div", {}, this.svg, this.legend);
    new ResizeObserver(() => { if (this.drawn) this.update(...this.drawn); }).observe(this.svg);
  }

  /**
   * `from` and `to` name both ends; the legend has the last values, with `mean` the means, or with `names` none. Values are at equal
   * distances, or with `times` in milliseconds at these, in a chart of five minutes.
   */
  update(series, options) {
    const { from, to, mean = false, names = false, times } = options;
    this.drawn = [series, options];
    const width = Math.max(200, this.svg.clientWidth);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const greatest = ceiling(Math.max(1, ...series.flatMap(([, , values]) => values)));
    const y = (value) => HEIGHT - BOTTOM - (value / greatest) * (HEIGHT - BOTTOM - TOP);
    const share = (at, length) => (times ? (times.at(-1) - times[at]) / SPAN : (length - 1 - at) / (this.points - 1));
    const x = (at, length) => width - share(at, length) * (width - LEFT);
    const parts = [];
    for (const part of [0, 0.5, 1]) {
      const at = y(greatest * part);
      parts.push(node("path", { class: "axis", d: `M${LEFT} ${at}H${width}` }));
      parts.push(node("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, compact(greatest * part)));
    }
    for (const [kind, , values] of series) {
      if (values.length < 2) continue;
      const line = values.map((value, at) => `${x(at, values.length).toFixed(1)} ${y(value).toFixed(1)}`).join("L");
      const base = y(0).toFixed(1);
      parts.push(node("path", { class: kind, d: kind === "shadow" ? `M${line}` : `M${x(0, values.length).toFixed(1)} ${base}L${line}L${width} ${base}` }));
    }
    parts.push(node("text", { x: LEFT, y: HEIGHT - 4 }, from), node("text", { x: width, y: HEIGHT - 4, "text-anchor": "end" }, to));
    this.svg.replaceChildren(...parts);
    const figure = (values) => (mean ? values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length) : values.at(-1) || 0);
    const figures = series.map(([, name, values]) => (names ? name : `${name} ${compact(figure(values))}/s`));
    this.svg.setAttribute("aria-label", `${this.label}: ${figures.join(", ")}`);
    this.legend.replaceChildren(...series.map(([kind], at) => h("span", {}, h("i", { class: kind }), figures[at])));
  }
}
