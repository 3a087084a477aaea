// Reading a collection plan in a browser or in Node, and refusing one that would cost more than it says. Every number
// that a draw depends on is checked here, before any row is looked at: a client that failed for some rows and not for
// others would tell them by its silence. As in Python's dpsql.client.plan.

export const OTHER = 1048576; // 2^20, the weight of any answer but the own one
export const LARGEST_BOUND = 2 ** 48; // of a draw
export const ORACLES = Object.freeze({ GRR: 1, OUE: 2, OLH: 3, WAVE: 4, DESIGN: 5 });
const LARGEST_DOMAIN = 2 ** 24;
const LARGEST_COUNT = 2 ** 16;
const LARGEST_DESIGN = 2 ** 14; // blocks: a device goes through all of them
const GRAINS = ["second", "minute", "hour", "day"];
const KINDS = ["grid", "weighted", "boxes", "wave", "rows", "rows_bit"];
const FRACTION = /^([0-9]{1,40})(?:([./])([0-9]{1,40}))?$/;
const BITS = 240n; // behind the binary point of e^epsilon

/** A decimal or a fraction such as "1", "0.5" or "1/3", exactly, as [top, bottom]; throws for anything else. */
export function exact(value) {
  const found = FRACTION.exec(String(value));
  if (!found || (found[2] === "/" && BigInt(found[3]) === 0n)) throw new Error("not a number such as 1, 0.5 or 1/3");
  const [, whole, mark, rest] = found;
  if (mark === "/") return [BigInt(whole), BigInt(rest)];
  return [BigInt(whole + (rest ?? "")), 10n ** BigInt((rest ?? "").length)];
}

export const added = ([a, b], [c, d]) => [a * d + c * b, b * d];
export const isAtMost = ([a, b], [c, d]) => a * d <= c * b;

/** floor(e^epsilon 2^20), never more: the series is summed in integers and every step rounds down. */
export function largestWeight([top, bottom]) {
  const power = (top << BITS) / bottom;
  let sum = 0n;
  for (let term = 1n << BITS, count = 1n; term > 0n; count += 1n) {
    sum += term;
    term = ((term * power) >> BITS) / count;
  }
  return Number((sum * BigInt(OTHER)) >> BITS);
}

const whole = (...numbers) => numbers.every(Number.isSafeInteger);
const rising = (numbers) => numbers.every((number, i) => i === 0 || numbers[i - 1] < number);
const total = (numbers) => numbers.reduce((sum, number) => sum + number, 0);

export function cellsOf(view) {
  if (view.kind === "boxes") return view.boxes.length;
  return view.edges.reduce((product, edges) => product * (edges.length - 1), 1);
}

/** Items of one cell of a weighted view: none, a row, and with a measure a row with its bit. */
export const statesOf = (view) => (view.measure === null ? 2 : 3);

/** The least projective space over q with a point for each item; its hyperplanes are blocks, `through` of them a point. */
export function spaceOf(items, q) {
  let [coordinates, blocks] = [2, q + 1];
  for (; blocks < items; coordinates += 1) blocks = blocks * q + 1;
  return { q, coordinates, blocks, through: (blocks - 1) / q };
}

/** A prime, few blocks, and weights that add up to no more than can be drawn from. */
function isDesign(items, q, own) {
  if (!(q >= 2 && q < 1024 && items <= LARGEST_DESIGN)) return false;
  for (let factor = 2; factor < q; factor += 1) if (q % factor === 0) return false;
  const { blocks, through } = spaceOf(items, q);
  return blocks <= LARGEST_DESIGN && through * own + (blocks - through) * OTHER <= LARGEST_BOUND;
}

function itemsOf(plan, view) {
  if (view.kind === "rows") return plan.rows_cap + 1;
  if (view.kind === "rows_bit") return 2;
  if (view.kind === "weighted") return cellsOf(view) * statesOf(view);
  return cellsOf(view) * (view.measure === null ? 1 : 2) + (view.empty && view.kind !== "wave" ? 1 : 0);
}

function checkRounds(plan) {
  const shares = plan.round_shares ?? [];
  if (!(whole(plan.round, plan.rounds, ...shares) && 0 <= plan.round && plan.round < plan.rounds))
    throw new Error("the plan's round is not one of its rounds");
  if (plan.rounds > LARGEST_BOUND || total(shares) > LARGEST_BOUND)
    throw new Error("the plan's rounds have no sound shares");
  if (shares.length > 0 && (shares.length !== plan.rounds || Math.min(...shares) < 1))
    throw new Error("the plan's rounds have no sound shares");
}

/** Leaves, and a look-up that names leaves of the axis alone. */
function isAxis(axis) {
  const special = [axis.null_leaf, axis.missing_leaf, axis.other_leaf].filter((leaf) => leaf != null);
  const named = [...special, ...Object.values(axis.keys ?? {})];
  const [values, starts, scale, width] = [axis.values ?? [], axis.starts ?? [0], axis.scale ?? 0, axis.width ?? 1];
  return (
    typeof axis.name === "string" && typeof (axis.key ?? "") === "string" && whole(axis.leaves, ...named) && axis.leaves >= 1 &&
    axis.leaves <= LARGEST_DOMAIN && named.every((leaf) => leaf >= 0 && leaf < axis.leaves) &&
    Array.isArray(values) && values.every((text) => typeof text === "string") && values.length <= axis.leaves &&
    Array.isArray(starts) && whole(...starts, axis.upper ?? starts.at(-1), axis.lower ?? 0, width, scale) &&
    rising(starts) && starts.length <= axis.leaves && width >= 1 && scale >= 0 && scale <= 18 &&
    GRAINS.includes(axis.grain ?? "second")
  );
}

function isMeasure({ name, lower, upper, scale }) {
  return (
    typeof name === "string" && whole(lower, upper, scale) && lower < upper && upper - lower <= LARGEST_BOUND &&
    scale >= 0 && scale <= 18
  );
}

/** Names, types and positions. */
function isView(plan, view) {
  const measured = view.measure !== null;
  return (
    KINDS.includes(view.kind) && typeof view.empty === "boolean" && Object.hasOwn(ORACLES, view.oracle) &&
    whole(...view.axes, view.domain, view.extra, view.share, ...(view.rows ?? [])) && view.share >= 0 &&
    view.axes.every((axis) => axis >= 0 && axis < plan.axes.length) &&
    (!measured || (whole(view.measure) && view.measure >= 0 && view.measure < plan.measures.length)) &&
    (view.oracle === "WAVE") === (view.kind === "wave") &&
    (view.kind !== "wave" || (!measured && view.axes.length === 1))
  );
}

/** Cells that lie on the view's axes, and rows to draw between; a row that no box holds is no row. */
function hasCells(plan, view) {
  const sizes = view.axes.map((axis) => plan.axes[axis].leaves);
  if (view.kind === "rows_bit") {
    const [floor, cap] = view.rows ?? [];
    return view.rows?.length === 2 && 0 <= floor && floor < cap && cap <= plan.rows_cap;
  }
  if (["grid", "weighted", "wave"].includes(view.kind))
    return (
      view.edges.length === sizes.length &&
      view.edges.every((edges, i) => whole(...edges) && edges[0] === 0 && edges.at(-1) === sizes[i] && rising(edges))
    );
  return view.kind !== "boxes" || view.boxes.every((box) => whole(...box) && box.length === 2 * sizes.length);
}

/** A domain that is the view's, and bounds that can be drawn from. */
function hasDraws(plan, view) {
  if (!(view.domain >= 1 && view.domain <= LARGEST_DOMAIN && view.domain === itemsOf(plan, view))) return false;
  if (view.oracle === "OLH") return view.extra >= 2 && view.extra <= LARGEST_DOMAIN;
  if (view.oracle === "DESIGN") return isDesign(view.domain, view.extra, plan.own);
  if (view.oracle !== "WAVE") return true;
  return view.extra >= 0 && (2 * view.extra + 1) * plan.own + (view.domain - 1) * OTHER <= LARGEST_BOUND;
}

function checkPlan(plan) {
  if (typeof plan.collection !== "string" || plan.collection === "")
    throw new Error("the plan does not name its collection");
  const counts = whole(plan.tau, plan.rows_floor, plan.rows_cap) && plan.tau >= 1 && plan.tau <= LARGEST_COUNT;
  if (!(counts && plan.rows_floor >= 0 && plan.rows_floor < plan.rows_cap && plan.rows_cap <= LARGEST_COUNT))
    throw new Error("the plan's row bounds are not valid");
  checkRounds(plan);
  if (!plan.axes.every(isAxis)) throw new Error("an axis of the plan contradicts itself");
  if (!plan.measures.every(isMeasure)) throw new Error("a measure of the plan has no sound bounds");
  if (!plan.views.every((view) => isView(plan, view) && hasCells(plan, view) && hasDraws(plan, view)))
    throw new Error("a view of the plan contradicts itself; ask for a new plan");
  const shares = total(plan.views.map((view) => view.share));
  if (plan.views.length > LARGEST_COUNT || !(shares >= 1 && shares <= LARGEST_BOUND))
    throw new Error("the plan's views have no sound shares");
}

/** Read plan bytes; refuses weights that cost more than the plan's epsilon, and plans that some could not answer. */
export async function readPlan(bytes) {
  const plan = JSON.parse(new TextDecoder().decode(bytes));
  if (plan.dpsql_plan !== 1 || plan.other !== OTHER || typeof plan.epsilon !== "string")
    throw new Error("not a collection plan of version 1");
  const epsilon = exact(plan.epsilon);
  if (epsilon[0] === 0n || !isAtMost(epsilon, [16n, 1n])) throw new Error("the plan's epsilon is outside (0, 16]");
  if (!whole(plan.own) || plan.own <= OTHER || plan.own > largestWeight(epsilon))
    throw new Error("the plan's weight costs more than its epsilon; do not take part");
  checkPlan(plan);
  const digest = await globalThis.crypto.subtle.digest("SHA-256", bytes);
  return { ...plan, hash: new Uint8Array(digest).slice(0, 8) };
}
