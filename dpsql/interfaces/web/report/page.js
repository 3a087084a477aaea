// The report page: pictures, and the predicted error of a question, computed from the variance tables.
// A range on an axis is a pair [a, b] of positions in the axis's `cuts`; null means the axis is not used.
"use strict";

const NORMAL_95 = 1.959964, LAPLACE_95 = 2.118306, MOST_WIDTHS = 40;

// Row-by-row index of the pair a < b among m cuts.
function pairIndex(m, a, b) {
  return a * (2 * m - a - 1) / 2 + (b - a - 1);
}

// Remainder variance and total share of a range; an unused axis has remainder 0 and share 1.
function parts(axis, range) {
  if (range === null) return [0, 1];
  const [a, b] = range;
  if (a >= b) return [0, 0];
  return [axis.rest[pairIndex(axis.cuts.length, a, b)], axis.prefix[b] - axis.prefix[a]];
}

// Var = sum over components T of sigma^2 * prod_{i in T} rest_i * prod_{i not in T} share_i^2.
function statisticVariance(model, view, statistic, ranges) {
  const each = view.axes.map((number, position) => parts(model.axes[number], ranges[position]));
  let variance = 0;
  for (const [subset, sigma2] of statistic.components) {
    let term = sigma2;
    each.forEach(([rest, share], i) => { term *= subset.includes(i) ? rest : share * share; });
    variance += term;
  }
  return variance;
}

// SUM(x) = stored sum of (x - mid) + mid * COUNT, both at the measure's scale.
function answerVariance(model, view, measure, ranges) {
  const find = (name) => view.statistics.find((s) => s.measure === name);
  const statistic = find(measure);
  if (!statistic) return null;
  let variance = statisticVariance(model, view, statistic, ranges);
  if (statistic.mid !== 0) {
    const count = find(`count(${measure})`) || find("count");
    if (!count) return null;
    variance += statistic.mid ** 2 * statisticVariance(model, view, count, ranges);
  }
  return variance / 100 ** statistic.scale;
}

// Half of the 95% interval / 1.96, as the engine shows it: few draws of Laplace noise have heavier tails than many.
function standardError(view, measure, variance) {
  const statistic = view.statistics.find((s) => s.measure === measure);
  const count = view.statistics.find((s) => s.measure === `count(${measure})`) || view.statistics.find((s) => s.measure === "count");
  const cells = [statistic.cell, ...(statistic.mid !== 0 ? [statistic.mid ** 2 * count.cell] : [])];
  const share = variance > 0 ? Math.min(1, Math.max(...cells) / 100 ** statistic.scale / variance) : 0;
  return Math.sqrt(variance) * (1 + share * (LAPLACE_95 / NORMAL_95 - 1));
}

// The same range on another view's axis of that name, or undefined where its leaves do not end there.
function translate(axis, from, range) {
  if (range === null) return null;
  const end = axis.cuts.length - 1;
  const place = (cut) => (cut === from.cuts.length - 1 ? end : axis.first.indexOf(from.first[cut]));
  const [a, b] = range.map(place);
  return a < 0 || b < 0 || (b === end && range[1] !== from.cuts.length - 1) ? undefined : [a, b];
}

// The best view for a question {of, measure, ranges: {axis number: [a, b]}}, as the planner chooses.
function predict(model, question) {
  let best = null;
  for (const view of model.views) {
    if (view.of !== question.of) continue;
    const ranges = view.axes.map(() => null);
    let able = true;
    for (const [number, range] of Object.entries(question.ranges)) {
      const from = model.axes[number];
      const position = view.axes.findIndex((i) => model.axes[i].name === from.name);
      const moved = position < 0 ? undefined : translate(model.axes[view.axes[position]], from, range);
      if (moved === undefined) { able = false; break; }
      ranges[position] = moved;
    }
    const variance = able ? answerVariance(model, view, question.measure, ranges) : null;
    const less = best === null ? -1 : variance / best.variance - 1; // views of one family tie but for rounding
    if (variance !== null && (less < -1e-9 || (less < 1e-9 && view.cells < best.cells))) {
      best = { variance, cells: view.cells, view: view.name, table: view.table, stderr: standardError(view, question.measure, variance) };
    }
  }
  return best;
}

function literal(axis, text) {
  return axis.quoted ? `'${text.replaceAll("'", "''")}'` : text;
}

// The condition that a range stands for.
function condition(axis, [a, b]) {
  if (axis.ranges) {
    return `${axis.column} >= ${literal(axis, axis.first[a])} AND ${axis.column} <= ${literal(axis, axis.last[b])}`;
  }
  const values = axis.values.slice(axis.cuts[a], axis.cuts[b]).map((value) => literal(axis, value));
  return `${axis.column} IN (${values.join(", ")})`;
}

// The question as SQL; empty where an axis takes several columns to name its leaves.
function statement(model, question) {
  if (Object.keys(question.ranges).some((number) => !model.axes[number].column)) return "";
  const view = model.views.find((v) => v.of === question.of);
  const what = question.measure === "count" ? "COUNT(*)" : `SUM(${question.measure.split(".").pop()})`;
  const where = Object.entries(question.ranges).map(([number, range]) => condition(model.axes[number], range));
  return `SELECT ${what} FROM ${view.table}` + (where.length ? ` WHERE ${where.join(" AND ")}` : "");
}

// What may be asked: one entry for each table and measure, with the finest axis of each name.
function questions(model) {
  const found = new Map();
  for (const view of model.views) {
    for (const { measure } of view.statistics) {
      if (measure.startsWith("count(")) continue;
      const key = `${view.of} ${measure}`;
      if (!found.has(key)) found.set(key, { of: view.of, measure, axes: new Map() });
      for (const number of view.axes) {
        const axis = model.axes[number];
        const known = found.get(key).axes.get(axis.name);
        if (known === undefined || model.axes[known].cuts.length < axis.cuts.length) {
          found.get(key).axes.set(axis.name, number);
        }
      }
    }
  }
  return [...found.values()].map((each) => ({ ...each, axes: [...each.axes.values()] }));
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Noisy counts along one axis.
function histogram(view, axis, data) {
  const points = data.bars.map((value, i) => {
    return value === null ? null : { value, low: data.low[i], high: data.high[i] };
  });
  return figure({ kind: "bars", x: data.labels, series: [{ name: "", points }], across: axis.name, up: `count of ${view.of}` },
    `Noisy counts of ${view.of} by ${axis.name}; error bars are 95% intervals.`);
}

// Standard errors of COUNT over ranges of one axis, by how many leaves the ranges hold.
function widths(model, view, position) {
  const axis = model.axes[view.axes[position]], m = axis.cuts.length, size = Math.min(m - 1, MOST_WIDTHS);
  const cut = (i) => Math.round((i * (m - 1)) / size);
  const x = [], points = [];
  for (let width = 1; width <= size; width++) {
    const errors = [];
    for (let a = 0; a + width <= size; a++) {
      const ranges = view.axes.map((_, i) => (i === position ? [cut(a), cut(a + width)] : null));
      errors.push(standardError(view, "count", answerVariance(model, view, "count", ranges) || 0));
    }
    errors.sort((a, b) => a - b);
    x.push(String(axis.cuts[cut(width)] - axis.cuts[0]));
    points.push({ value: errors[errors.length >> 1], low: errors[0], high: errors[errors.length - 1] });
  }
  return figure({ kind: "lines", x, series: [{ name: "", points }], across: `leaves of ${axis.name} in the range`, up: "standard error" },
    `Standard error of a count over a range of ${axis.name}: the median over ranges of that many leaves, with the least and the most.`);
}

function figure(data, caption) {
  return element("figure", {}, chart.draw({ ...data, title: caption }), element("figcaption", {}, caption));
}

function sliders(model, question, number, changed) {
  const axis = model.axes[number], end = axis.cuts.length - 1;
  const used = element("input", { type: "checkbox", "data-axis": number });
  const low = element("input", { type: "range", min: 0, max: end - 1, value: 0, "aria-label": `${axis.name} from` });
  const high = element("input", { type: "range", min: 1, max: end, value: end, "aria-label": `${axis.name} to` });
  const shown = element("span", { class: "range" }, "all");
  const update = (event) => {
    if (event && event.target !== used) used.checked = true;
    let a = Number(low.value), b = Number(high.value);
    if (a >= b && event && event.target === low) { b = a + 1; high.value = b; }
    if (a >= b) { a = b - 1; low.value = a; }
    if (used.checked) question.ranges[number] = [a, b]; else delete question.ranges[number];
    shown.textContent = used.checked ? `${axis.first[a]} to ${axis.last[b]}` : "all";
    changed();
  };
  for (const input of [used, low, high]) input.addEventListener("input", update);
  return element("div", { class: "axis" }, element("label", {}, used, ` ${axis.name}`), low, high, shown);
}

// Errors beside the noise of one question: factors of its answer, and measured rows beyond the contribution bound.
function besideNoise(model, of, measure) {
  const scales = model.scales[of], scale = scales && (scales[measure] ?? scales.count);
  const parts = [[model.weight_error, "the weight of rows"], [scale, "the factor R"]].filter(([error]) => error);
  const lines = parts.map(([error, what]) => `; beside it ${what} errs by ${(100 * error).toPrecision(2)}% of the answer`);
  const bound = model.beyond[of];
  return [...lines, ...(bound ? [`; beside it rows beyond max_ids (${bound}) may be missing`] : [])].join("");
}

function searchBox(model) {
  const box = document.getElementById("ask"), out = document.getElementById("answer");
  const all = questions(model);
  const choose = element("select", { id: "what", "aria-label": "what is counted or summed" }, ...all.map((each, i) =>
    element("option", { value: i }, each.measure === "count" ? `rows of ${each.of}` : `sum of ${each.measure}`)));
  const area = element("div", {});
  const start = () => {
    const { of, measure, axes } = all[Number(choose.value)];
    const question = { of, measure, ranges: {} };
    const show = () => {
      const best = predict(model, question);
      const beside = besideNoise(model, of, measure);
      out.dataset.stderr = best ? best.stderr : "";
      out.dataset.sql = best ? statement(model, question) : "";
      out.replaceChildren(...(best ? [
        ...(beside ? [element("p", {}, `the noise alone has standard error ${best.stderr.toPrecision(5)}, from view ${best.view}${beside}; DP_STDERR has all of it`)] : [
          element("p", { class: "figure" }, `± ${(NORMAL_95 * best.stderr).toPrecision(4)}`),
          element("p", {}, `95% margin; standard error ${best.stderr.toPrecision(5)}, from view ${best.view}`)]),
        element("code", {}, statement(model, question)),
      ] : [element("p", {}, "no view has all of these axes with bins that end there")]));
    };
    area.replaceChildren(...axes.map((number) => sliders(model, question, number, show)));
    show();
  };
  choose.addEventListener("input", start);
  box.append(choose, area);
  start();
  follow(choose, area);
}

// A link may carry a question: #what=0&3=5-20 moves the sliders of axis 3 to the cuts 5 and 20.
function follow(choose, area) {
  const asked = new URLSearchParams(location.hash.slice(1));
  const move = (input, value) => { input.value = value; input.dispatchEvent(new Event("input")); };
  if (asked.has("what")) move(choose, asked.get("what"));
  for (const [key, value] of asked) {
    const row = area.querySelector(`[data-axis="${CSS.escape(key)}"]`);
    if (!row) continue;
    const [low, high] = row.closest(".axis").querySelectorAll("input[type=range]");
    move(high, value.split("-")[1]);
    move(low, value.split("-")[0]);
  }
}

function draw(model) {
  for (const view of model.views) {
    const place = document.getElementById(`view-${view.name}`);
    for (const data of view.histograms) {
      place.append(histogram(view, model.axes[data.axis], data));
    }
    if (!view.statistics.some((s) => s.measure === "count")) continue;
    view.axes.forEach((number, position) => {
      if (model.axes[number].cuts.length > 2) place.append(widths(model, view, position));
    });
  }
  searchBox(model);
}

if (typeof document !== "undefined") draw(JSON.parse(document.getElementById("model").textContent));
if (typeof module !== "undefined") module.exports = { predict, statement, questions, pairIndex, besideNoise };
