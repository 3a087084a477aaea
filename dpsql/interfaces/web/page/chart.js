// Bars and lines with error bars, as SVG. A chart is
//   { kind: "bars" | "lines", x: [label], series: [{ name, points: [{ value, low, high } | null] }], across, up, title }
// where value, low and high are numbers, low and high null where an interval has no end. It is drawn as wide as it is
// told, so that its letters keep their size. Texts become text nodes alone.
"use strict";

const chart = (() => {
  const HEIGHT = 380, TOP = 16, RIGHT = 12, SPACE = "\u202f", A_LABEL = 54, LONGEST = 18;

  function shape(name, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // The largest of 1, 2, 5 times a power of ten that divides a span into at least so many steps.
  function niceStep(span, steps) {
    const power = 10 ** Math.floor(Math.log10(span / steps));
    return [5, 2, 1].map((factor) => factor * power).find((step) => span / step >= steps) || power;
  }

  // Ticks from at most the least to at least the most value; 0 is among them unless `free` and far away.
  function ticks(least, most, free) {
    const away = free && least > 0 && most < 2 * least;
    const low = away ? least : Math.min(0, least), high = Math.max(most, away ? most : 0);
    const step = niceStep(high > low ? high - low : Math.abs(high) || 1, 4);
    const first = Math.floor(low / step + 1e-9), last = Math.max(first + 1, Math.ceil(high / step - 1e-9));
    return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
  }

  function number(value, step) {
    const places = Math.min(6, Math.max(0, -Math.floor(Math.log10(step ?? (Math.abs(value) / 1000 || 1)) + 1e-9)));
    const [whole, part] = Math.abs(value).toFixed(places).split(".");
    const grouped = whole.replace(/\B(?=(\d{3})+$)/g, SPACE);
    return `${value < 0 ? "−" : ""}${grouped}${part ? `.${part}` : ""}`;
  }

  const cut = (label) => (label.length > LONGEST ? `${label.slice(0, LONGEST - 1)}…` : label);

  function words(label, name, point) {
    const ends = [point.low === null ? "-∞" : number(point.low), point.high === null ? "∞" : number(point.high)];
    const range = point.low === null && point.high === null ? "no interval" : ends.join(" to ");
    return `${[label, name].filter(Boolean).join(", ")}: ${number(point.value)} (${range})`;
  }

  function frame(picture, data, marks, place) {
    const { left, right, bottom, y, every } = place, step = marks[1] - marks[0];
    for (const mark of marks) {
      const zero = Math.abs(mark) < step / 1e6;
      picture.append(
        shape("line", { x1: left, x2: right, y1: y(mark), y2: y(mark), class: zero ? "zero" : "grid" }),
        shape("text", { x: left - 8, y: y(mark) + 4, "text-anchor": "end" }, number(zero ? 0 : mark, step)));
    }
    data.x.forEach((label, i) => {
      if (i % every) return;
      const x = place.x(i), at = bottom + 18;
      const attributes = place.slanted
        ? { x, y: at, "text-anchor": "end", transform: `rotate(-35 ${x} ${at})` } : { x, y: at, "text-anchor": "middle" };
      picture.append(shape("text", attributes, cut(label)));
    });
    picture.append(
      shape("text", { x: (left + right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, data.across),
      shape("text", { x: 14, y: (TOP + bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(TOP + bottom) / 2})` }, data.up));
  }

  function errorBar(x, y, point, cap) {
    if (point.low === null || point.high === null) { // nothing bounds it on one side
      return [shape("text", { x, y: y(point.value) - 4, "text-anchor": "middle" }, "?")];
    }
    const [low, high] = [y(point.low), y(point.high)];
    return [shape("path", { class: "error", d: `M${x} ${low}V${high}M${x - cap} ${low}h${2 * cap}M${x - cap} ${high}h${2 * cap}` })];
  }

  // A bar that may be pressed tells its label and its series.
  function bars(picture, data, place, press) {
    const all = data.series.length, width = Math.max(0.5, (place.step * 0.8) / all);
    data.series.forEach((series, s) => series.points.forEach((point, i) => {
      if (point === null) return;
      const x = place.x(i) + (s - all / 2) * width, group = shape("g", press ? { class: "press" } : {});
      if (press) group.addEventListener("click", () => press(data.x[i], series.name));
      const [from, to] = [place.y(0), place.y(point.value)];
      group.append(
        shape("title", {}, words(data.x[i], series.name, point)),
        shape("rect", { x, width: Math.max(0.5, width - 1), y: Math.min(from, to), height: Math.abs(from - to), class: `fill-${s}` }),
        ...errorBar(x + width / 2, place.y, point, Math.min(6, width / 3)));
      picture.append(group);
    }));
  }

  // Lines break where a value is missing; the band is the interval.
  function lines(picture, data, place) {
    data.series.forEach((series, s) => {
      let run = [];
      const end = () => {
        const whole = run.filter(([, point]) => point.low !== null && point.high !== null);
        if (whole.length > 1) {
          const there = whole.map(([x, point]) => `${x} ${place.y(point.high)}`);
          const back = whole.map(([x, point]) => `${x} ${place.y(point.low)}`).reverse();
          picture.append(shape("path", { class: `band fill-${s}`, d: `M${[...there, ...back].join("L")}Z` }));
        }
        picture.append(shape("path", { class: `line line-${s}`, d: `M${run.map(([x, point]) => `${x} ${place.y(point.value)}`).join("L")}` }));
        run = [];
      };
      series.points.forEach((point, i) => {
        if (point !== null) run.push([place.x(i), point]);
        if (run.length && (point === null || i === series.points.length - 1)) end();
      });
      series.points.forEach((point, i) => {
        if (point === null) return;
        const group = shape("g", {});
        group.append(
          shape("title", {}, words(data.x[i], series.name, point)),
          ...(data.series.length === 1 ? errorBar(place.x(i), place.y, point, Math.min(5, place.step / 4)) : []),
          shape("circle", { cx: place.x(i), cy: place.y(point.value), r: Math.min(3.5, place.step / 3), class: `fill-${s}` }));
        picture.append(group);
      });
    });
  }

  function legend(picture, data, right) {
    let x = right;
    for (const [s, series] of [...data.series.entries()].reverse()) {
      const label = cut(series.name), width = 26 + label.length * 7.6;
      x -= width;
      picture.append(
        shape("rect", { x, y: 3, width: 12, height: 12, class: `fill-${s}` }),
        shape("text", { x: x + 17, y: 13 }, label));
    }
  }

  const KINDS = { bars, lines };

  function draw(data, width = 800, press = null) {
    const points = data.series.flatMap((series) => series.points).filter((point) => point !== null);
    const ends = points.flatMap((point) => [point.value, point.low ?? point.value, point.high ?? point.value]);
    const many = data.series.length > 1, top = TOP + (many ? 14 : 0);
    const marks = ticks(Math.min(...ends), Math.max(...ends), data.kind === "lines");
    const [least, most] = [marks[0], marks[marks.length - 1]];
    const longest = Math.max(...marks.map((mark) => number(mark, marks[1] - marks[0]).length));
    const left = 40 + longest * 7.5, right = width - RIGHT, step = (right - left) / data.x.length;
    const every = Math.ceil((data.x.length * A_LABEL) / (right - left));
    const widest = Math.max(...data.x.map((label) => cut(label).length)) * 7.5;
    const slanted = widest > step * every;
    const bottom = HEIGHT - (slanted ? 46 + Math.min(90, widest * 0.58) : 46);
    const y = (value) => bottom - ((value - least) / (most - least)) * (bottom - top);
    const place = { left, right, bottom, step, every, slanted, y, x: (i) => left + (i + 0.5) * step };
    const picture = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, class: "chart", role: "img", "aria-label": data.title });
    frame(picture, data, marks, place);
    KINDS[data.kind](picture, data, place, press);
    if (many) legend(picture, data, right);
    return picture;
  }

  return { draw, ticks, number };
})();

if (typeof module !== "undefined") module.exports = chart;
