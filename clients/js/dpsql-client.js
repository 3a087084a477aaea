// The report client for web pages and Node: the same draws, byte for byte, as the Python package dpsql.client.
// Plain JavaScript, no dependency. Every probability is a ratio of integer weights; no float is ever compared.
//
//   const plan = await readPlan(bytes);                   // checks weights, domains and shares; hashes the bytes
//   const memory = new Memory(localStorage, 1.0, 4.0);    // most per collection, most in a lifetime
//   const report = memory.answer(plan, [{leaves: [3, 0], measures: [120]}]);   // Uint8Array, drawn once

export const OTHER = 1048576; // 2^20, the weight of any answer but the own one
const SEED_POOL = 65536;
const LARGEST_BOUND = 2 ** 48;
const ORACLES = { GRR: 1, OUE: 2, OLH: 3, WAVE: 4 };

/** Fresh bytes from the platform. */
export function systemEntropy(size) {
  return globalThis.crypto.getRandomValues(new Uint8Array(size));
}

/** An exactly uniform integer in 0 .. bound - 1: fewest big-endian bytes, redrawn beyond the last full stretch. */
export function below(bound, entropy) {
  if (!Number.isInteger(bound) || bound < 1 || bound > LARGEST_BOUND) throw new RangeError("bound outside 1 .. 2^48");
  let size = 0;
  let span = 1;
  while (span < bound) {
    span *= 256;
    size += 1;
  }
  const accepted = span - (span % bound);
  for (;;) {
    let value = 0;
    for (const byte of entropy(size)) value = value * 256 + byte;
    if (value < accepted) return value % bound;
  }
}

export function grr(item, domain, own, entropy) {
  const draw = below(own + (domain - 1) * OTHER, entropy);
  if (draw < own) return item;
  const other = Math.floor((draw - own) / OTHER);
  return other < item ? other : other + 1;
}

export function oue(item, domain, own, entropy) {
  const packed = new Uint8Array(Math.ceil(domain / 8));
  for (let position = 0; position < domain; position += 1) {
    const bit = position === item ? below(2, entropy) : below(own + OTHER, entropy) < OTHER ? 1 : 0;
    packed[position >> 3] |= bit << (7 - (position & 7));
  }
  return packed;
}

export function bucket(seed, item, buckets) {
  let mixed = (Math.imul(seed + 1, 0x9e3779b1) + Math.imul(item + 1, 0x85ebca77)) >>> 0;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b) >>> 0;
  mixed = (Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35) + Math.imul(seed, 0x27d4eb2f)) >>> 0;
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x2c1b3c6d) >>> 0;
  return ((mixed ^ (mixed >>> 16)) >>> 0) % buckets;
}

export function olh(item, buckets, own, entropy) {
  const seed = below(SEED_POOL, entropy);
  return [seed, grr(bucket(seed, item, buckets), buckets, own, entropy)];
}

export function wave(item, domain, reach, own, entropy) {
  if (item === null) return below(domain + 2 * reach, entropy);
  const near = 2 * reach + 1;
  const draw = below(near * own + (domain - 1) * OTHER, entropy);
  if (draw < near * own) return item + Math.floor(draw / own);
  const other = Math.floor((draw - near * own) / OTHER);
  return other < item ? other : other + near;
}

export function varint(value) {
  const out = [];
  while (value > 127) {
    out.push((value & 127) | 128);
    value >>>= 7;
  }
  out.push(value);
  return Uint8Array.from(out);
}

/** Report bytes, version 1: "L1", plan hash 8, view u16, oracle u8, payload. */
export function encode(planHash, view, oracle, payload) {
  const raw = new Uint8Array(13 + payload.length);
  raw.set([0x4c, 0x31]);
  raw.set(planHash, 2);
  raw.set([view >> 8, view & 255, ORACLES[oracle]], 10);
  raw.set(payload, 13);
  return raw;
}

export function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function fromHex(text) {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/** The exact value of a decimal or fraction such as "1", "0.5" or "1/3", as a double. */
function parseEpsilon(text) {
  const [top, bottom] = String(text).split("/");
  return Number(top) / Number(bottom ?? 1);
}

function cellsOf(view) {
  if (view.kind === "boxes") return view.boxes.length;
  return view.edges.reduce((product, edges) => product * (edges.length - 1), 1);
}

function itemsOf(plan, view) {
  if (view.kind === "rows") return plan.rows_cap + 1;
  if (view.kind === "rows_bit") return 2;
  return cellsOf(view) * (view.measure === null ? 1 : 2) + (view.empty && view.kind !== "wave" ? 1 : 0);
}

function checkRounds(plan) {
  const shares = plan.round_shares ?? [];
  const whole = [plan.round, plan.rounds, ...shares].every(Number.isInteger);
  if (!(whole && 0 <= plan.round && plan.round < plan.rounds && plan.rounds <= LARGEST_BOUND))
    throw new Error("the plan's round is not one of its rounds");
  const total = shares.reduce((sum, share) => sum + share, 0);
  if (shares.length > 0 && (shares.length !== plan.rounds || Math.min(...shares) < 1 || total > LARGEST_BOUND))
    throw new Error("the plan's rounds have no sound shares");
}

function checkView(plan, view) {
  const sizes = view.axes.map((axis) => plan.axes[axis].leaves);
  const covers = (edges, size) =>
    edges[0] === 0 && edges.at(-1) === size && edges.every((edge, i) => i === 0 || edges[i - 1] < edge);
  const sound =
    view.oracle in ORACLES &&
    ["grid", "boxes", "wave", "rows", "rows_bit"].includes(view.kind) &&
    (view.oracle === "WAVE") === (view.kind === "wave") &&
    view.domain === itemsOf(plan, view) &&
    view.domain >= 1 &&
    view.domain <= 2 ** 24 &&
    Number.isInteger(view.share) &&
    view.share >= 0 &&
    (view.oracle !== "OLH" || view.extra >= 2) &&
    (view.kind !== "wave" || (view.extra >= 0 && view.measure === null && view.axes.length === 1)) &&
    (!["grid", "wave"].includes(view.kind) ||
      (view.edges.length === sizes.length && view.edges.every((edges, i) => covers(edges, sizes[i])))) &&
    (view.kind !== "boxes" || view.boxes.every((box) => box.length === 2 * sizes.length)) &&
    (view.measure === null || plan.measures[view.measure].lower < plan.measures[view.measure].upper);
  if (!sound) throw new Error("a view of the plan contradicts itself; ask for a new plan");
}

/** Read plan bytes; refuses weights that cost more than the plan's epsilon. */
export async function readPlan(bytes) {
  const plan = JSON.parse(new TextDecoder().decode(bytes));
  if (plan.dpsql_plan !== 1 || plan.other !== OTHER) throw new Error("not a collection plan of version 1");
  const epsilon = parseEpsilon(plan.epsilon);
  if (!(epsilon > 0 && epsilon <= 16)) throw new Error("the plan's epsilon is outside (0, 16]");
  if (!Number.isInteger(plan.own) || plan.own <= OTHER || plan.own > Math.floor(Math.exp(epsilon) * OTHER * (1 + 1e-15)))
    throw new Error("the plan's weight costs more than its epsilon; do not take part");
  if (!(plan.tau >= 1 && plan.tau <= 65536 && plan.rows_floor >= 0 && plan.rows_floor < plan.rows_cap))
    throw new Error("the plan's row bounds are not valid");
  checkRounds(plan);
  plan.views.forEach((view) => checkView(plan, view));
  const digest = await globalThis.crypto.subtle.digest("SHA-256", bytes);
  return { ...plan, hash: new Uint8Array(digest).slice(0, 8), epsilonValue: epsilon };
}

function drawn(shares, entropy) {
  let draw = below(shares.reduce((sum, share) => sum + share, 0), entropy);
  return shares.findIndex((share) => {
    if (draw < share) return true;
    draw -= share;
    return false;
  });
}

/** The one round of a collection in which a device answers; it does not depend on the person's rows. */
export function drawRound(plan, entropy = systemEntropy) {
  const shares = plan.round_shares ?? [];
  return shares.length > 0 ? drawn(shares, entropy) : below(plan.rounds, entropy);
}

function cellOf(plan, view, row) {
  const leaves = view.axes.map((axis) => row.leaves[axis]);
  if (leaves.some((leaf, i) => !(leaf >= 0 && leaf < plan.axes[view.axes[i]].leaves)))
    throw new Error("a row's leaf is outside its axis");
  if (view.kind === "boxes") {
    const cell = view.boxes.findIndex((box) => leaves.every((leaf, i) => box[2 * i] <= leaf && leaf < box[2 * i + 1]));
    if (cell < 0) throw new Error("the plan's boxes do not cover a row");
    return cell;
  }
  return leaves.reduce((cell, leaf, i) => {
    const edges = view.edges[i];
    return cell * (edges.length - 1) + edges.findIndex((edge) => leaf < edge) - 1;
  }, 0);
}

function drawItem(plan, view, rows, entropy) {
  if (view.kind === "rows") return Math.min(rows.length, plan.rows_cap);
  if (view.kind === "rows_bit") {
    const count = Math.min(Math.max(rows.length, plan.rows_floor), plan.rows_cap) - plan.rows_floor;
    return below(plan.rows_cap - plan.rows_floor, entropy) < count ? 1 : 0;
  }
  if (below(plan.tau, entropy) >= rows.length) {
    if (!view.empty) throw new Error("the plan expects a row; ask for a plan with an empty item");
    return view.kind === "wave" ? null : view.domain - 1;
  }
  const row = rows[below(rows.length, entropy)];
  const cell = cellOf(plan, view, row);
  if (view.measure === null) return cell;
  const { lower, upper } = plan.measures[view.measure];
  const value = Math.min(Math.max(row.measures[view.measure], lower), upper) - lower;
  return cell + cellsOf(view) * (below(upper - lower, entropy) < value ? 1 : 0);
}

function randomize(plan, view, item, entropy) {
  if (view.oracle === "WAVE") return varint(wave(item, view.domain, view.extra, plan.own, entropy));
  if (view.oracle === "GRR") return varint(grr(item, view.domain, plan.own, entropy));
  if (view.oracle === "OUE") return oue(item, view.domain, plan.own, entropy);
  const [seed, held] = olh(item, view.extra, plan.own, entropy);
  return Uint8Array.from([seed >> 8, seed & 255, ...varint(held)]);
}

/** One report about one person: draws view, slot, row, measure bit and randomizer, in this order. */
export function respond(plan, rows, entropy = systemEntropy) {
  const number = drawn(plan.views.map((view) => view.share), entropy);
  const view = plan.views[number];
  return encode(plan.hash, number, view.oracle, randomize(plan, view, drawItem(plan, view, rows, entropy), entropy));
}

/** A person answers a collection once. `storage` has getItem and setItem; it is written before a report is returned. */
export class Memory {
  constructor(storage, largestEpsilon, lifetimeCap) {
    this.storage = storage;
    this.largestEpsilon = largestEpsilon;
    this.lifetimeCap = lifetimeCap;
  }

  answer(plan, rows) {
    if (plan.epsilonValue > this.largestEpsilon) throw new Error("the plan asks for more than this device gives");
    const kept = JSON.parse(this.storage.getItem("dpsql") ?? "{}");
    if (!Object.hasOwn(kept, plan.collection)) {
      const spent = Object.values(kept).reduce((sum, entry) => sum + entry.epsilon, 0);
      if (spent + plan.epsilonValue > this.lifetimeCap) throw new Error("this device has given all it gives");
      kept[plan.collection] = { epsilon: plan.epsilonValue, round: drawRound(plan), report: null };
      this.storage.setItem("dpsql", JSON.stringify(kept));
    }
    const entry = kept[plan.collection];
    if (entry.report !== null) return fromHex(entry.report);
    if (entry.round !== plan.round) return null;
    if (entry.epsilon < plan.epsilonValue) throw new Error("the collection raised its epsilon");
    const report = respond(plan, rows);
    entry.report = toHex(report);
    this.storage.setItem("dpsql", JSON.stringify(kept));
    return report;
  }
}
