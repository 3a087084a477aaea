// The report client for web pages and Node: the same draws, byte for byte, as the Python package dpsql.client.
// Plain JavaScript, no dependency. Every probability is a ratio of integer weights; no float is ever compared.
//
//   const plan = await readPlan(bytes);                   // checks weights, domains and shares; hashes the bytes
//   const memory = new Memory(localStorage, "1", "4");    // most per collection, most in a lifetime
//   const report = await memory.answer(plan, [{leaves: [3, 0], measures: [120]}]);   // Uint8Array, drawn once
//
// Values become leaves in dpsql-rows.js.

import { LARGEST_BOUND, ORACLES, OTHER, added, cellsOf, exact, isAtMost, readPlan, spaceOf, statesOf } from "./dpsql-plan.js";

export { OTHER, readPlan };
const SEED_POOL = 65536;
const STORED = "dpsql"; // the key in storage, and the lock's name

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
    const bytes = entropy(size);
    if (bytes.length !== size) throw new Error("the source of entropy ran dry"); // zeros would tell the truth
    let value = 0;
    for (const byte of bytes) value = value * 256 + byte;
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

/** The points of a space, which number its hyperplanes too: the first coordinate that is not 0 is 1; lexicographic. */
function* pointsOf({ q, coordinates }) {
  const size = q ** coordinates;
  for (let number = 1; number < size; number += 1) {
    const point = [];
    for (let rest = number, i = 0; i < coordinates; rest = Math.floor(rest / q), i += 1) point.unshift(rest % q);
    if (point.find((value) => value !== 0) === 1) yield point;
  }
}

/** The number of a block; those that hold the item are likelier. */
export function block(item, space, own, entropy) {
  const { q, blocks, through } = space;
  const draw = below(through * own + (blocks - through) * OTHER, entropy);
  const holds = draw < through * own;
  let left = Math.floor(holds ? draw / own : (draw - through * own) / OTHER);
  const points = [...pointsOf(space)];
  return points.findIndex((normal) => {
    const meets = normal.reduce((sum, value, i) => sum + value * points[item][i], 0) % q === 0;
    if (meets !== holds) return false;
    left -= 1;
    return left < 0;
  });
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

/** The cell of a row; -1 where the plan has no place for it. */
function cellOf(plan, view, row) {
  const leaves = view.axes.map((axis) => row.leaves[axis]);
  if (leaves.some((leaf, i) => !(leaf >= 0 && leaf < plan.axes[view.axes[i]].leaves))) return -1;
  if (view.kind === "boxes")
    return view.boxes.findIndex((box) => leaves.every((leaf, i) => box[2 * i] <= leaf && leaf < box[2 * i + 1]));
  return leaves.reduce((cell, leaf, i) => {
    const edges = view.edges[i];
    return cell * (edges.length - 1) + edges.findIndex((edge) => leaf < edge) - 1;
  }, 0);
}

/** The item of a slot without a row; any item alike where the plan has none for it. */
function nothing(view, entropy) {
  if (view.kind === "wave") return null;
  return view.empty ? view.domain - 1 : below(view.domain, entropy);
}

/** 1 as likely as the clamped value is far from the measure's lower bound to its upper one. */
function measureBit(plan, view, row, entropy) {
  const { lower, upper } = plan.measures[view.measure];
  const value = Math.min(Math.max(row.measures[view.measure], lower), upper) - lower;
  return below(upper - lower, entropy) < value ? 1 : 0;
}

/** The cell of an own row and a bit for how many there are; without a row any cell alike, and no bit. */
function weightedItem(plan, view, rows, entropy) {
  const row = rows.length > 0 ? rows[below(rows.length, entropy)] : null;
  const cell = row === null ? -1 : cellOf(plan, view, row);
  if (cell < 0) return statesOf(view) * below(cellsOf(view), entropy);
  if (below(plan.tau, entropy) >= rows.length) return statesOf(view) * cell;
  return statesOf(view) * cell + 1 + (view.measure === null ? 0 : measureBit(plan, view, row, entropy));
}

/** An item for every number of rows and every row: no refusal depends on them. */
function drawItem(plan, view, rows, entropy) {
  if (view.kind === "rows") return Math.min(rows.length, plan.rows_cap);
  if (view.kind === "rows_bit") {
    const [floor, cap] = view.rows;
    return below(cap - floor, entropy) < Math.min(Math.max(rows.length, floor), cap) - floor ? 1 : 0;
  }
  if (view.kind === "weighted") return weightedItem(plan, view, rows, entropy);
  if (below(plan.tau, entropy) >= rows.length) return nothing(view, entropy);
  const row = rows[below(rows.length, entropy)];
  const cell = cellOf(plan, view, row);
  if (cell < 0) return nothing(view, entropy);
  return view.measure === null ? cell : cell + cellsOf(view) * measureBit(plan, view, row, entropy);
}

function randomize(plan, view, item, entropy) {
  if (view.oracle === "WAVE") return varint(wave(item, view.domain, view.extra, plan.own, entropy));
  if (view.oracle === "GRR") return varint(grr(item, view.domain, plan.own, entropy));
  if (view.oracle === "OUE") return oue(item, view.domain, plan.own, entropy);
  if (view.oracle === "DESIGN") return varint(block(item, spaceOf(view.domain, view.extra), plan.own, entropy));
  const [seed, held] = olh(item, view.extra, plan.own, entropy);
  return Uint8Array.from([seed >> 8, seed & 255, ...varint(held)]);
}

/** One report about one person: draws view, slot, row, measure bit and randomizer, in this order. */
export function respond(plan, rows, entropy = systemEntropy) {
  const number = drawn(plan.views.map((view) => view.share), entropy);
  const view = plan.views[number];
  return encode(plan.hash, number, view.oracle, randomize(plan, view, drawItem(plan, view, rows, entropy), entropy));
}

/** Storage -> what was asked of it last: one answer after the other, where the platform has no locks. */
const turns = new WeakMap();

/**
 * A person answers a collection once. `storage` has getItem and setItem, which may give promises (localStorage, an
 * AsyncStorage, `indexedStorage` of dpsql-storage.js); it is written and read back before a report is returned.
 * Both bounds are numbers or texts such as "1/2", and epsilons add up as fractions. Of several tabs one draws at a time.
 */
export class Memory {
  constructor(storage, largestEpsilon, lifetimeCap) {
    this.storage = storage;
    this.largestEpsilon = exact(largestEpsilon);
    this.lifetimeCap = exact(lifetimeCap);
  }

  /** This person's report bytes, drawn at most once a collection; null if she belongs to another round. */
  async answer(plan, rows) {
    const locks = globalThis.navigator?.locks;
    if (locks) return locks.request(STORED, () => this.#once(plan, rows));
    const before = turns.get(this.storage) ?? Promise.resolve();
    const now = before.then(() => this.#once(plan, rows));
    turns.set(this.storage, now.catch(() => {})); // a refusal keeps nobody else waiting
    return now;
  }

  async #once(plan, rows) {
    const epsilon = exact(plan.epsilon);
    if (!isAtMost(epsilon, this.largestEpsilon)) throw new Error("the plan costs more epsilon than this device spends");
    const kept = await this.#load();
    let entry = kept.get(plan.collection);
    if (entry === undefined) {
      const spent = [...kept.values()].reduce((sum, { epsilon: each }) => added(sum, exact(each)), [0n, 1n]);
      if (!isAtMost(added(spent, epsilon), this.lifetimeCap)) throw new Error("this device has spent all of its epsilon");
      entry = { epsilon: plan.epsilon, round: drawRound(plan), report: null };
      kept.set(plan.collection, entry);
      await this.#store(kept);
    }
    if (entry.report !== null) return fromHex(entry.report);
    if (entry.round !== plan.round) return null;
    if (!isAtMost(epsilon, exact(entry.epsilon))) throw new Error("the collection raised its epsilon");
    const report = respond(plan, rows);
    entry.report = toHex(report);
    await this.#store(kept);
    return report;
  }

  /** A Map, since an object would lose a collection that is called __proto__. */
  async #load() {
    const found = JSON.parse((await this.storage.getItem(STORED)) ?? "{}");
    if (found === null || typeof found !== "object" || Array.isArray(found)) throw new Error("the memory is damaged");
    const kept = new Map(Object.entries(found));
    for (const { epsilon, round, report } of kept.values())
      if (exact(epsilon)[0] === 0n || !Number.isInteger(round) || !(report === null || /^([0-9a-f]{2})+$/.test(report)))
        throw new Error("the memory is damaged");
    return kept;
  }

  async #store(kept) {
    const text = JSON.stringify(Object.fromEntries(kept));
    await this.storage.setItem(STORED, text);
    if ((await this.storage.getItem(STORED)) !== text) throw new Error("the memory did not keep what was drawn");
  }
}
