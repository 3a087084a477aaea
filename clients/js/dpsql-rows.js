// From what a page or a device holds to rows of leaves, as in Python's dpsql.client.rows. Every value has a leaf, or its
// row is left out as the catalog says; none makes the client fail, which would tell it.

const DECIMAL = /^\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:e([+-]?[0-9]+))?\s*$/i;
const ISO = /^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?$/;
const GRAINS = { second: 1000, minute: 60000, hour: 3600000, day: 86400000 };

/** A number in steps of 10^-scale, rounded half away from zero and cut to lower .. upper; null if it is no number. */
export function units(value, scale, lower, upper) {
  if (value === Infinity) return upper;
  if (value === -Infinity) return lower;
  const found = DECIMAL.exec(String(typeof value === "boolean" ? Number(value) : value));
  if (!found) return null;
  const shifted = Number(`${found[1]}e${Number(found[2] ?? 0) + scale}`);
  const near = Math.sign(shifted) * Math.round(Math.abs(shifted));
  return Math.min(Math.max(near, lower), upper) + 0;
}

/** The leaf of a value; null where the axis has none for it and the row is left out. */
export function leafOf(axis, value) {
  const outside = (axis.keys ? axis.missing_leaf : axis.other_leaf) ?? null;
  if (value === null || value === undefined) return axis.null_leaf ?? outside;
  if (axis.values) {
    const leaf = axis.values.indexOf(String(value));
    return leaf < 0 ? outside : leaf;
  }
  if (axis.keys) return Object.hasOwn(axis.keys, String(value)) ? axis.keys[String(value)] : outside;
  return axis.starts ? binned(axis, value, outside) : evenBin(axis, value, outside);
}

/** Whole grains since 1970 of a Date or of ISO text, which is UTC unless it names a zone; null for anything else. */
function since1970(value, grain) {
  if (typeof value === "string" && !ISO.test(value)) return null;
  if (typeof value !== "string" && !(value instanceof Date)) return null;
  const text = typeof value === "string" ? value.replace(" ", "T") : "";
  const zoned = text.length <= 10 || /(Z|[+-][0-9]{2}:[0-9]{2})$/.test(text);
  const time = value instanceof Date ? value.getTime() : Date.parse(zoned ? text : `${text}Z`);
  return Number.isNaN(time) ? null : Math.floor(time / grain);
}

function binned(axis, value, outside) {
  const timed = axis.type === "date" || axis.type === "timestamp" || value instanceof Date;
  const grain = axis.type === "timestamp" ? GRAINS[axis.grain ?? "second"] : GRAINS.day;
  const unit = timed ? since1970(value, grain) : units(value, axis.scale ?? 0, axis.starts[0] - 1, axis.upper + 1);
  if (unit === null || unit < axis.starts[0] || unit > axis.upper) return outside;
  return axis.starts.findLastIndex((start) => start <= unit);
}

function evenBin(axis, said, outside) {
  const value = typeof said === "boolean" ? Number(said) : said;
  if (typeof value !== "number" || Number.isNaN(value)) return outside;
  const special = [axis.null_leaf, axis.missing_leaf, axis.other_leaf].filter((leaf) => leaf != null);
  const [bins, lower, width] = [axis.leaves - special.length, axis.lower ?? 0, axis.width ?? 1];
  const leaf = Math.floor((Math.min(Math.max(value, lower - 1), lower + bins * width) - lower) / width);
  if (outside !== null && (leaf < 0 || leaf >= bins)) return outside;
  return Math.min(Math.max(leaf, 0), bins - 1);
}

/** Own records joined with a public dimension, a Map of its rows by key; an unknown key adds nothing. */
export function join(facts, dimension, key) {
  return facts.map((fact) => ({ ...fact, ...dimension.get(fact[key]) }));
}

/** By the axis's name, else by its public table's key, else as without a row there. */
function leafIn(axis, record) {
  const name = [axis.name, axis.key].find((each) => each !== undefined && Object.hasOwn(record, each));
  return name === undefined ? (axis.missing_leaf ?? leafOf(axis, null)) : leafOf(axis, record[name]);
}

/**
 * Refuse a plan that asks for nothing this page holds. `fields` are all names that its records can have, whoever uses
 * it; never a person's record: whoever has none would answer, and the others' silence would tell that they have.
 */
export function checkFields(plan, fields) {
  const asked = [...plan.axes, ...plan.measures].flatMap(({ name, key }) => (key == null ? [name] : [name, key]));
  if (!asked.some((name) => fields.includes(name)))
    throw new Error(`none of the plan's fields is known here; name them ${asked.join(", ")}`);
}

/** Records by the names of the plan's axes and measures, as rows; those without a leaf on some axis are left out. */
export function toRows(plan, records) {
  const amount = ({ name, scale, lower, upper }, record) =>
    units(record[name], scale, lower, upper) ?? Math.min(Math.max(0, lower), upper);
  return records
    .map((record) => ({
      leaves: plan.axes.map((axis) => leafIn(axis, record)),
      measures: plan.measures.map((measure) => amount(measure, record)),
    }))
    .filter((row) => !row.leaves.includes(null));
}
