// The builder over the answers in data.js. A question is what is shown, by one column or two, and perhaps one value of the
// second; the address holds it. Texts of the release become text nodes alone.
"use strict";

const MOST_SERIES = 6, NARROWEST = 320, WIDEST = 900;
const at = (id) => document.getElementById(id);
const NOTHING = "—";

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const option = (value) => element("option", { value }, value);
const unique = (values) => [...new Set(values)];

function choose(id, values, wanted) {
  at(id).replaceChildren(...values.map(option));
  at(id).value = values.includes(wanted) ? wanted : values[0];
  return at(id).value;
}

// Groupings of what is shown: the order of the two columns does not matter.
const offered = (what) => release.questions.filter((question) => question.what === what);

function question(what, first, second) {
  const by = [first, second].filter((name) => name !== NOTHING);
  return offered(what).find((asked) => asked.by.length === by.length && by.every((name) => asked.by.includes(name)));
}

function fill(wanted) {
  const what = choose("what", unique(release.questions.map((asked) => asked.what)), wanted.what);
  const groupings = offered(what).map((asked) => asked.by);
  const first = choose("first", [NOTHING, ...unique(groupings.flat())], wanted.first ?? groupings.find((by) => by.length === 1)?.[0]);
  const beside = groupings.filter((by) => by.length === 2 && by.includes(first)).map((by) => by.find((name) => name !== first));
  const second = choose("second", [NOTHING, ...beside], wanted.second);
  at("second").disabled = beside.length === 0;
  const asked = question(what, first, second);
  const values = asked && second !== NOTHING ? unique(asked.rows.map((row) => row[asked.by.indexOf(second)][0])) : [];
  at("only").hidden = values.length === 0;
  choose("where", [NOTHING, ...values], wanted.where);
  show(asked, first, second, values.length ? at("where").value : NOTHING);
  history.replaceState(null, "", `#${new URLSearchParams({ what, first, second, where: at("where").value })}`);
}

function cell(column, [text, , , , interval], first) {
  const kind = column.number ? { class: "number" } : {};
  const small = interval ? [element("small", {}, interval)] : [];
  return first && !column.noisy ? element("th", { scope: "row", ...kind }, text) : element("td", kind, text, ...small);
}

function show(asked, first, second, where) {
  if (!asked) {
    at("title").textContent = "this release cannot answer that";
    for (const id of ["table", "below"]) at(id).replaceChildren();
    at("figure").hidden = at("headline").hidden = true;
    return;
  }
  const key = asked.by.indexOf(second), one = where !== NOTHING;
  const rows = one ? asked.rows.filter((row) => row[key][0] === where) : asked.rows;
  const words = [asked.what, first === NOTHING ? "" : `by ${first}`, second === NOTHING ? "" : one ? `where ${second} is ${where}` : `and ${second}`];
  at("title").textContent = words.filter(Boolean).join(" ");
  const alone = rows.length === 1 && asked.by.length === 0, last = asked.columns.length - 1;
  at("headline").hidden = !alone;
  at("headline").textContent = alone ? rows[0][last][0] : "";
  at("table").replaceChildren(
    element("caption", {}, `${rows.length} ${rows.length === 1 ? "row" : "rows"}; below each number its ${release.level} interval`),
    element("thead", {}, element("tr", {}, ...asked.columns.map((column) =>
      element("th", { scope: "col", ...(column.number ? { class: "number" } : {}) }, column.name)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((data, c) => cell(asked.columns[c], data, c === 0))))));
  at("below").replaceChildren(...asked.below.map((line) => element("li", {}, line)));
  at("sql").textContent = asked.sql;
  draw(asked, rows, first, one ? NOTHING : second);
}

function draw(asked, rows, first, second) {
  const last = asked.columns.length - 1;
  at("figure").hidden = first === NOTHING || rows.every((row) => typeof row[last][1] !== "number");
  if (at("figure").hidden) return;
  const across = asked.by.indexOf(first), other = second === NOTHING ? -1 : asked.by.indexOf(second);
  const many = other >= 0 && unique(rows.map((row) => row[other][0])).length > MOST_SERIES;
  const label = (row) => (many ? `${row[across][0]}, ${row[other][0]}` : row[across][0]).replaceAll(" 00:00:00", "");
  const name = (row) => (other < 0 || many ? "" : row[other][0]);
  const x = unique(rows.map(label)), names = unique(rows.map(name)), points = names.map(() => x.map(() => null));
  for (const row of rows) {
    const [, value, low, high] = row[last];
    if (typeof value === "number") points[names.indexOf(name(row))][x.indexOf(label(row))] = { value, low: low ?? null, high: high ?? null };
  }
  const kind = asked.columns[across].ordered && !many && x.length > 2 ? "lines" : "bars";
  const up = asked.columns[last].name, title = `${at("title").textContent}, with ${release.level} intervals; the table below shows the same numbers`;
  const width = Math.min(WIDEST, Math.max(NARROWEST, at("picture").clientWidth));
  at("picture").replaceChildren(chart.draw({ kind, x, series: names.map((each, s) => ({ name: each, points: points[s] })), across: first, up, title }, width));
  at("caption").textContent = `Error bars and bands are ${release.level} intervals.`;
}

const wanted = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
at("name").textContent = document.title = release.name;
at("about").textContent = release.description;
at("promise").replaceChildren(...release.promise.map((line) => element("li", {}, line)));
for (const id of ["what", "first", "second", "where"]) {
  at(id).addEventListener("input", () => fill(Object.fromEntries(["what", "first", "second", "where"].map((each) => [each, at(each).value]))));
}
addEventListener("hashchange", () => fill(wanted()));
fill(wanted());
