// The explorer's page: the star, the editor with completion, answers as tables and pictures, downloads.
// Every text that comes from a release becomes a text node: nothing here makes markup, and the page's policy forbids it.
"use strict";

const at = (id) => document.getElementById(id);
const MOST_SERIES = 6, WAIT = 80, MOST_BEFORE = 4000, NARROWEST = 320, WIDEST = 1600;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const soft = (text) => element("span", { class: "soft" }, text);

// Asks the server; an aborted question rejects with an AbortError.
async function ask(name, body, signal) {
  const given = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let reply;
  try {
    reply = await fetch(name, { ...given, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return { refused: "the page's server does not respond", hints: ["start dpsql explore again"], caret: "" };
  }
  return reply.ok ? reply.json() : { refused: `the page's server refuses: ${reply.statusText}`, hints: [], caret: "" };
}

// ---- the star

function columnItem(column) {
  const item = element("li", {},
    element("button", { type: "button", class: "word", onclick: () => insert(column.name) }, column.name),
    soft(` ${column.type}; ${column.comment}`));
  if (column.refers) item.append(tableItem(column.refers, false, "→ "));
  return item;
}

function tableItem(table, open, before = "") {
  const columns = element("ul", {}, ...table.columns.map(columnItem));
  const details = element("details", {},
    element("summary", {}, before + table.name, soft(` ${table.kind}`)),
    element("p", { class: "soft" }, table.comment), columns);
  details.open = open;
  return details;
}

function showStar(star) {
  const names = star.releases.map((release) => release.name);
  at("name").textContent = names.join(", ");
  document.title = `${names.join(", ")} – dpsql explore`;
  at("subject").textContent = star.releases.map((release) => release.subject).join("; ");
  at("about").textContent = star.releases.map((release) => release.description).filter(Boolean).join(" ");
  at("free").textContent = star.free;
  at("promise").replaceChildren(...star.releases.flatMap((release) => release.promise).map((line) => element("p", {}, line)));
  at("star").replaceChildren(element("ul", { class: "tree" }, ...star.releases.flatMap((release, r) => [
    ...(names.length > 1 ? [element("li", {}, element("strong", {}, release.name))] : []),
    ...release.tables.map((table, t) => element("li", {}, tableItem(table, r === 0 && t === 0))),
  ])));
}

// ---- the editor

const sql = at("sql"), offers = at("offers");
let offered = [], chosen = -1, wanted = null;

function insert(text, replaced = 0) {
  sql.setRangeText(text, sql.selectionStart - replaced, sql.selectionEnd, "end");
  sql.focus();
}

function closeOffers() {
  offered = [];
  chosen = -1;
  offers.hidden = true;
  offers.replaceChildren();
  sql.removeAttribute("aria-activedescendant");
}

function showOffers(found) {
  closeOffers();
  offered = found;
  offers.replaceChildren(...found.map((offer, i) => element(
    "li", { role: "option", id: `offer-${i}`, "aria-selected": "false", onmousedown: (event) => { event.preventDefault(); take(i); } },
    offer.text, soft(offer.comment))));
  offers.hidden = found.length === 0;
}

function choose(i) {
  if (chosen >= 0) offers.children[chosen].setAttribute("aria-selected", "false");
  chosen = (i + offered.length) % offered.length;
  const item = offers.children[chosen];
  item.setAttribute("aria-selected", "true");
  item.scrollIntoView({ block: "nearest" });
  sql.setAttribute("aria-activedescendant", item.id);
}

function take(i) {
  const { text, typed } = offered[i];
  closeOffers();
  insert(text, typed);
}

// Offers words for what stands before the cursor; only the newest question is answered.
async function complete() {
  wanted?.abort();
  const own = wanted = new AbortController();
  await new Promise((done) => setTimeout(done, WAIT));
  if (own.signal.aborted) return;
  const before = sql.value.slice(Math.max(0, sql.selectionStart - MOST_BEFORE), sql.selectionStart);
  try {
    const found = await ask("offers", { before }, own.signal);
    if (!own.signal.aborted) showOffers((found.offers || []).filter((offer) => offer.text.length > offer.typed));
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  }
}

const KEYS = {
  ArrowDown: () => choose(chosen + 1),
  ArrowUp: () => choose(chosen < 0 ? -1 : chosen - 1),
  Escape: closeOffers,
  Enter: () => chosen >= 0 && take(chosen),
  Tab: () => chosen >= 0 && take(chosen),
};

sql.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    at("form").requestSubmit();
  } else if (event.key === " " && event.ctrlKey) {
    event.preventDefault();
    complete();
  } else if (offered.length && KEYS[event.key] && KEYS[event.key]() !== false) {
    event.preventDefault();
  }
});
sql.addEventListener("input", complete);
sql.addEventListener("blur", () => { wanted?.abort(); closeOffers(); });

// ---- asking

let running = null, answer = null, asked = "";
const level = () => Number(at("level").value);

function say(text) { at("status").textContent = text; }

function refuse({ refused, hints, caret }) {
  say("");
  at("error").replaceChildren(
    element("p", {}, element("strong", {}, refused)), ...hints.map((hint) => element("p", {}, hint)),
    ...(caret ? [element("pre", {}, caret)] : []));
  at("error").hidden = false;
}

// Runs one question at a time; the former one is stopped. `show` gets what was answered, unless it was refused.
async function run(name, body, show) {
  running?.abort();
  const own = running = new AbortController(), started = performance.now();
  wanted?.abort();
  closeOffers();
  at("error").hidden = true;
  at("stop").disabled = false;
  say("asking …");
  try {
    const found = await ask(name, body, own.signal);
    if (found.refused) refuse(found);
    else show(found, `${((performance.now() - started) / 1000).toFixed(1)} s`);
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    if (own === running) say("stopped");
  } finally {
    if (own === running) {
      running = null;
      at("stop").disabled = true;
    }
  }
}

function submit() {
  const text = sql.value;
  at("answer").hidden = at("plan").hidden = true;
  return run("ask", { sql: text, level: level() }, (found, took) => {
    answer = found;
    asked = text;
    showAnswer();
    remember(text);
    say(`${found.total} ${found.total === 1 ? "row" : "rows"} in ${took}; it cost nothing.`);
  });
}

// An axis as a line a level of its tree, with the nodes that the answer is a sum of; dashed where nobody measured one.
function lit({ axis, leaves, nodes }) {
  const levels = unique(nodes.map((node) => node.level)).sort((a, b) => a - b).map((level) => {
    const marks = nodes.filter((node) => node.level === level).map((node) => {
      const mark = element("i", { title: `[${node.from}, ${node.to}) of ${leaves} leaves, level ${level}` });
      mark.className = node.measured === false ? "unmeasured" : "";
      mark.style.left = `${(100 * node.from) / leaves}%`;
      mark.style.width = `${(100 * (node.to - node.from)) / leaves}%`;
      return mark;
    });
    return element("div", {}, ...marks);
  });
  return element("figure", {}, element("figcaption", {}, axis), ...levels);
}

function explain() {
  return run("explain", { sql: sql.value }, ({ stages, axes }) => {
    at("stages").replaceChildren(...stages.map((stage) => element("li", {}, stage.replace(/^\d+\. /, ""))));
    at("nodes").replaceChildren(...axes.map(lit));
    at("plan").hidden = false;
    say("explained below; it cost nothing.");
  });
}

// ---- the builder: selects write SQL, a value pressed in the table becomes a filter, the address holds the question

const NOTHING = "—", MOST_PAST = 20;
let tables = [], filters = [], built = null;

const unique = (values) => [...new Set(values)];
const aggregates = () => tables.flatMap((table) => table.aggregates.map(([words, item]) => ({ words, item, table })));

// Groupings of a table that go together with others, by one of its views.
function beside(table, names) {
  const fits = table.views.filter((view) => names.every((name) => view.some((by) => by.words === name)));
  const all = fits.flat();
  return unique(all.map((by) => by.words)).filter((name) => !names.includes(name)).map((name) => all.find((by) => by.words === name));
}

function refill(id, names, wanted) {
  at(id).replaceChildren(...[NOTHING, ...names].map((name) => element("option", { value: name }, name)));
  at(id).value = names.includes(wanted) ? wanted : NOTHING;
  at(id).disabled = names.length === 0;
}

function build(asking) {
  const { item, table } = aggregates().find((one) => one.words === at("what").value);
  filters = filters.filter((filter) => filter.table === table.source);
  const held = filters.map((filter) => filter.words), all = table.views.flat();
  const chosen = at("first").value, then = at("second").value;
  refill("first", beside(table, held).map((by) => by.words), chosen);
  const first = at("first").value;
  refill("second", first === NOTHING ? [] : beside(table, [...held, first]).map((by) => by.words), then);
  const keys = [first, at("second").value].filter((name) => name !== NOTHING).map((name) => all.find((by) => by.words === name));
  const where = filters.map((filter) => filter.sql).join(" AND ");
  const order = keys.map((_, k) => k + 1).join(", ");
  const lines = [`SELECT ${[...keys.map((by) => by.selected), item].join(", ")}`, `FROM ${table.source}`];
  if (where) lines.push(`WHERE ${where}`);
  if (order) lines.push(`GROUP BY ${order} ORDER BY ${order}`);
  built = { sql: lines.join("\n"), keys, table };
  at("filters").replaceChildren(...filters.map((filter) => element("li", {},
    element("button", { type: "button", title: "remove this condition", onclick: () => {
      filters = filters.filter((kept) => kept !== filter);
      build(true);
    } }, `${filter.words} is ${filter.text} ✕`))));
  if (!asking) return;
  sql.value = built.sql;
  submit();
}

// A value of the first or second column, once the answer is that of the builder's question.
function filterBy(k, { text, literal }) {
  const { words, sql: expression } = built.keys[k];
  const condition = literal === "NULL" ? `${expression} IS NULL` : `${expression} = ${literal}`;
  filters = [...filters.filter((filter) => filter.words !== words), { table: built.table.source, words, text, sql: condition }];
  for (const id of ["first", "second"]) if (at(id).value === words) at(id).value = NOTHING;
  if (at("first").value === NOTHING) [at("first").value, at("second").value] = [at("second").value, NOTHING];
  build(true);
}

function showBuilder(found) {
  tables = found.tables || [];
  at("builder").hidden = tables.length === 0;
  if (!tables.length) return;
  at("what").replaceChildren(...aggregates().map(({ words }) => element("option", { value: words }, words)));
  at("views").replaceChildren(
    element("thead", {}, element("tr", {}, ...["rows of", "show", "any of these together"].map((words) => element("th", { scope: "col" }, words)))),
    element("tbody", {}, ...tables.flatMap((table) => table.views.map((view, v) => element("tr", {},
      element("th", { scope: "row" }, v ? "" : table.source),
      element("td", {}, v ? "" : table.aggregates.map(([words]) => words).join(", ")),
      element("td", {}, view.map((by) => by.words).join(", ")))))));
  build(false);
}

function remember(text) {
  history.replaceState(null, "", `#${new URLSearchParams({ sql: text })}`);
  const shown = [...at("history").querySelectorAll("button")].map((button) => button.textContent);
  const past = unique([text, ...shown]).slice(0, MOST_PAST);
  at("history").replaceChildren(...past.map((before) => element("li", {},
    element("button", { type: "button", onclick: () => { sql.value = before; submit(); } }, before))));
  at("past").hidden = false;
}

for (const id of ["what", "first", "second"]) at(id).addEventListener("input", () => build(true));
at("builder").addEventListener("submit", (event) => event.preventDefault());

// ---- the answer

function cell(column, data, first, c) {
  const kind = column.number ? { class: "number" } : {};
  const small = data.interval === undefined ? [] : [element("small", {}, data.interval)];
  if (built !== null && asked === built.sql && c < built.keys.length && data.literal) {
    const press = element("button", { type: "button", class: "word", title: "show only its rows", onclick: () => filterBy(c, data) }, data.text);
    return first ? element("th", { scope: "row", ...kind }, press) : element("td", kind, press);
  }
  return first && !column.noisy
    ? element("th", { scope: "row", ...kind }, data.text) : element("td", kind, data.text, ...small);
}

// Lines that the page has not shown yet, and those that it has; all are known from then on.
const newAndShown = (lines, known) => {
  const fresh = lines.filter((line) => !known.has(line)), again = lines.filter((line) => known.has(line));
  fresh.forEach((line) => known.add(line));
  return { fresh, again };
};
const shownLines = new Set();

function showBelow(lines) {
  const { fresh, again } = newAndShown(lines, shownLines), items = (texts) => texts.map((line) => element("li", {}, line));
  const before = element("details", {}, element("summary", {}, `${again.length} shown before`), element("ul", {}, ...items(again)));
  at("below").replaceChildren(...items(fresh), ...(again.length ? [element("li", {}, before)] : []));
}

function showAnswer() {
  const { columns, rows, below, total } = answer;
  const noisy = columns.flatMap((column, c) => (column.noisy ? [c] : []));
  const alone = rows.length === 1 && noisy.length === 1 && columns.length === 1;
  at("headline").hidden = !alone;
  at("headline").textContent = alone ? rows[0][0].text : "";
  at("table").replaceChildren(
    element("caption", {}, `${total} ${total === 1 ? "row" : "rows"}; below each number its ${answer.level} interval`),
    element("thead", {}, element("tr", {}, ...columns.map((column) =>
      element("th", { scope: "col", ...(column.number ? { class: "number" } : {}) }, column.name)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((data, c) => cell(columns[c], data, c === 0, c))))));
  showBelow(below);
  at("column").replaceChildren(...noisy.map((c) => element("option", { value: c }, columns[c].name)));
  at("kind").value = kindOf();
  at("answer").hidden = false;
  showPicture();
}

// What a bar stands for, where the answer is that of the builder's question: rows of its first or second column's value.
function pressedBar(label, name) {
  const { across, series } = keysOf(), key = across[0];
  const row = answer.rows.find((row) => row[key].text.replace(/ 00:00:00$/, "") === label && (series === null || row[series].text === name));
  if (row && row[key].literal) filterBy(key, row[key]);
}

// Which columns lie across and which one tells series apart: the first two keys, the one with fewer values as series.
function keysOf() {
  const keys = answer.columns.flatMap((column, c) => (column.noisy ? [] : [c]));
  const values = (c) => new Set(answer.rows.map((row) => row[c].text)).size;
  if (keys.length !== 2) return { across: keys, series: null };
  const [first, second] = keys;
  if (values(second) <= MOST_SERIES) return { across: [first], series: second };
  return values(first) <= MOST_SERIES ? { across: [second], series: first } : { across: keys, series: null };
}

function kindOf() {
  const { across } = keysOf();
  const ordered = across.length === 1 && answer.columns[across[0]].ordered;
  return ordered && new Set(answer.rows.map((row) => row[across[0]].text)).size > 2 ? "lines" : "bars";
}

function pictured() {
  const c = Number(at("column").value), { columns, rows } = answer, { across, series } = keysOf();
  const label = (row) => across.map((key) => row[key].text.replace(/ 00:00:00$/, "")).join(", ");
  const name = (row) => (series === null ? "" : row[series].text);
  const x = [...new Set(rows.map(label))], names = [...new Set(rows.map(name))];
  const points = names.map(() => x.map(() => null));
  for (const row of rows) {
    const { value, low = null, high = null } = row[c];
    if (value !== undefined && value !== null) points[names.indexOf(name(row))][x.indexOf(label(row))] = { value, low, high };
  }
  const words = across.map((key) => columns[key].name).join(", ");
  const parted = series === null ? "" : ` and ${columns[series].name}`;
  return {
    kind: at("kind").value, x, series: names.map((each, s) => ({ name: each, points: points[s] })),
    across: words, up: columns[c].name, title: `${columns[c].name} by ${words}${parted}, with ${answer.level} intervals; the table below shows the same numbers`,
  };
}

function showPicture() {
  const drawn = at("column").options.length > 0 && keysOf().across.length > 0
    && answer.rows.some((row) => typeof row[Number(at("column").value)].value === "number");
  at("figure").hidden = !drawn;
  if (!drawn) return;
  const data = pictured();
  const width = Math.min(WIDEST, Math.max(NARROWEST, at("picture").clientWidth));
  const ofBuilder = built !== null && asked === built.sql && keysOf().across.length === 1;
  at("picture").replaceChildren(chart.draw(data, width, ofBuilder ? pressedBar : null));
  at("caption").textContent = `${data.up} by ${data.across}; error bars and bands are ${answer.level} intervals.`
    + (answer.total > answer.rows.length ? ` The first ${answer.rows.length} of ${answer.total} rows.` : "");
}

// ---- downloads

function download(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function csv() {
  return run("csv", { sql: asked, level: level() }, (found) => {
    download(new Blob([found.csv], { type: "text/csv" }), "answer.csv");
    say("downloaded answer.csv");
  });
}

// A picture with its colours written into it, twice as large.
async function png() {
  const shown = at("picture").querySelector("svg"), copy = shown.cloneNode(true);
  const [, , width, height] = shown.getAttribute("viewBox").split(" ").map(Number);
  const style = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family"];
  const inside = copy.querySelectorAll("*");
  shown.querySelectorAll("*").forEach((from, i) => {
    const computed = getComputedStyle(from);
    for (const name of style) inside[i].setAttribute(name, computed.getPropertyValue(name));
  });
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await image.decode();
  const canvas = element("canvas", { width: 2 * width, height: 2 * height }), paint = canvas.getContext("2d");
  paint.fillStyle = getComputedStyle(document.body).backgroundColor;
  paint.fillRect(0, 0, canvas.width, canvas.height);
  paint.drawImage(image, 0, 0, canvas.width, canvas.height);
  download(await new Promise((done) => canvas.toBlob(done, "image/png")), "answer.png");
  say("downloaded answer.png");
}

// ---- beginning

function showExamples({ examples }) {
  at("examples").replaceChildren(...examples.map((example) => element("li", {}, element(
    "button", { type: "button", title: example.sql, onclick: () => { sql.value = example.sql; submit(); } },
    element("span", { class: "words" }, example.words), soft(example.error)))));
  const free = !sql.value && document.activeElement !== sql; // nobody writes there yet
  if (free && examples.length) sql.value = examples[0].sql;
}

at("form").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
at("explain").addEventListener("click", explain);
at("stop").addEventListener("click", () => running?.abort());
at("level").addEventListener("input", () => { if (!at("answer").hidden) submit(); });
at("column").addEventListener("input", showPicture);
at("kind").addEventListener("input", showPicture);
window.addEventListener("resize", () => { if (!at("figure").hidden) showPicture(); });
at("csv").addEventListener("click", csv);
at("png").addEventListener("click", png);
(async () => {
  const star = await ask("star");
  if (star.refused) refuse(star); else showStar(star);
  const parts = await ask("builder");
  if (!parts.refused) showBuilder(parts);
  const linked = new URLSearchParams(location.hash.slice(1)).get("sql");
  if (linked && !sql.value) {
    sql.value = linked;
    submit();
  }
  const found = await ask("examples");
  if (found.refused) refuse(found); else showExamples(found);
})();
