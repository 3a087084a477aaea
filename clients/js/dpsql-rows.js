// From what a page or a device holds to rows of leaves, as in Python's dpsql.client.device. Every value has a leaf, or its
// row is left out as the catalog says; none makes the client fail, which would tell it.

// What texts say: docs/in-your-app.md.
const NUMBER =
  /^[ \t\n\v\f\r]*([+-]?)(?:(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?[0-9]+))?|inf|infinity)[ \t\n\v\f\r]*$/i;
const MOMENT =
  /^[ \t\n\v\f\r]*([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]{1,9})?)?(?:Z|([+-])([0-9]{2}):([0-9]{2}))?)?[ \t\n\v\f\r]*$/;
const GRAINS = { second: 1000, minute: 60000, hour: 3600000, day: 86400000 };
const FAR = 10 ** 9;
const MOST_DIGITS = 25; // of a number of steps that is beyond every bound

/** Whole steps of 10^-scale nearest to whole.fraction x 10^power, halves up; null beyond all bounds. */
function stepsOf(whole, fraction, power, scale) {
  const digits = (whole + fraction).replace(/^0+/, "");
  const shift = Math.min(Number(power.replace(/^[+-]?0*/, "").slice(0, 10) || "0"), FAR);
  const moved = (power.startsWith("-") ? -shift : shift) + scale - fraction.length;
  if (digits === "" || digits.length + moved < 0) return 0n;
  if (digits.length + moved > MOST_DIGITS) return null;
  if (moved >= 0) return BigInt(digits) * 10n ** BigInt(moved);
  const kept = digits.length + moved;
  return BigInt(digits.slice(0, kept) || "0") + (digits[kept] >= "5" ? 1n : 0n);
}

/** A value as catalogs write it; null for what is neither text nor number nor boolean. */
function textOf(value) {
  return ["string", "number", "bigint", "boolean"].includes(typeof value) ? String(value) : null;
}

/** A number in steps of 10^-scale, rounded half away from zero and cut to lower .. upper; null if it is no number. */
export function units(value, scale, lower, upper) {
  const found = NUMBER.exec(textOf(typeof value === "boolean" ? Number(value) : value) ?? "");
  if (!found) return null;
  const [, sign, whole, fraction, bare, power] = found;
  const number = whole !== undefined || bare !== undefined;
  const size = number ? stepsOf(whole ?? "", (fraction ?? "") + (bare ?? ""), power ?? "0", scale) : null;
  if (size === null) return sign === "-" ? lower : upper;
  const signed = sign === "-" ? -size : size;
  if (signed <= BigInt(lower)) return lower;
  return signed >= BigInt(upper) ? upper : Number(signed);
}

/** The leaf of a value; null where the axis has none for it and the row is left out. */
export function leafOf(axis, value) {
  const outside = (axis.keys ? axis.missing_leaf : axis.other_leaf) ?? null;
  if (value === null || value === undefined) return axis.null_leaf ?? outside;
  if (axis.values) {
    const leaf = axis.values.indexOf(textOf(value));
    return leaf < 0 ? outside : leaf;
  }
  if (axis.keys) {
    const text = textOf(value);
    return text !== null && Object.hasOwn(axis.keys, text) ? axis.keys[text] : outside;
  }
  return axis.starts ? binned(axis, value, outside) : evenBin(axis, value, outside);
}

/** Whole grains since 1970 of a Date or of a text, which is UTC unless it names a zone; null for anything else. */
function since1970(value, grain) {
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? null : Math.floor(value.getTime() / grain);
  const found = typeof value === "string" ? MOMENT.exec(value) : null;
  if (!found) return null;
  const [year, month, day, hour, minute, second] = found.slice(1, 7).map((part) => Number(part ?? 0));
  const [hours, minutes] = found.slice(8, 10).map((part) => Number(part ?? 0));
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day); // Date.UTC would take the year 99 for 1999
  if (year < 1 || date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return null;
  if (hour > 23 || minute > 59 || second > 59 || hours > 23 || minutes > 59) return null;
  const zone = (hours * 60 + minutes) * (found[7] === "-" ? -60000 : 60000);
  return Math.floor((date.getTime() + hour * 3600000 + minute * 60000 + second * 1000 - zone) / grain);
}

function binned(axis, value, outside) {
  const timed = axis.type === "date" || axis.type === "timestamp" || value instanceof Date;
  const grain = axis.type === "timestamp" ? GRAINS[axis.grain ?? "second"] : GRAINS.day;
  const unit = timed ? since1970(value, grain) : units(value, axis.scale ?? 0, axis.starts[0] - 1, axis.upper + 1);
  if (unit === null || unit < axis.starts[0] || unit > axis.upper) return outside;
  return axis.starts.findLastIndex((start) => start <= unit);
}

function evenBin(axis, said, outside) {
  const value = typeof said === "boolean" || typeof said === "bigint" ? Number(said) : said;
  if (typeof value !== "number" || Number.isNaN(value)) return outside;
  const special = [axis.null_leaf, axis.missing_leaf, axis.other_leaf].filter((leaf) => leaf != null);
  const [bins, lower, width] = [axis.leaves - special.length, axis.lower ?? 0, axis.width ?? 1];
  const leaf = Math.floor((Math.floor(Math.min(Math.max(value, lower - 1), lower + bins * width)) - lower) / width);
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
    throw new Error(`none of the fields is one of the plan's; name them ${asked.join(", ")}`);
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
