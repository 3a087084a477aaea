// The shared stream vectors, without Python: `npm test` in this folder. The stream is SHA-256(seed || be32(counter)).

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { leafOf, units } from "./dpsql-rows.js";
import { Memory, below, block, encode, fromHex, grr, oue, readPlan, toHex, varint } from "./dpsql-client.js";
import { spaceOf } from "./dpsql-plan.js";

const path = new URL("../../tests/vectors/local.json", import.meta.url);
const { client_stream: wanted } = JSON.parse(readFileSync(path, "utf8"));

function testStream(seed) {
  const bytes = (function* () {
    for (let counter = 0; ; counter += 1) {
      const tail = Buffer.alloc(4);
      tail.writeUInt32BE(counter);
      yield* createHash("sha256").update(seed).update(tail).digest();
    }
  })();
  return (size) => Array.from({ length: size }, () => bytes.next().value);
}

test("the same draws and reports as in every other language", () => {
  const entropy = testStream("dpsql-test-1");
  const views = [[3, 5, "GRR"], [4, 25, "OUE"], [5, 625, "OUE"]]; // share, items, oracle
  assert.deepEqual([2, 3, 5, 256, 257, 1000000].map((bound) => below(bound, entropy)), wanted.below);
  assert.deepEqual(Array.from({ length: 12 }, (_, i) => grr(i % 5, 5, wanted.W, entropy)), wanted.grr);
  assert.equal(toHex(oue(3, 25, wanted.W, entropy)), wanted.oue);
  const report = () => {
    let draw = below(12, entropy);
    const number = views.findIndex(([share]) => draw < share || ((draw -= share), false));
    const [, items, oracle] = views[number];
    const own = [2, 7, 311][number];
    const payload = oracle === "GRR" ? varint(grr(own, items, wanted.W, entropy)) : oue(own, items, wanted.W, entropy);
    return toHex(encode(fromHex("0102030405060708"), number, oracle, payload));
  };
  assert.deepEqual(wanted.reports.map(report), wanted.reports);
});

test("blocks of designs are drawn as in every other language", () => {
  const { seed, own, draws } = JSON.parse(readFileSync(new URL("../../tests/vectors/designs.json", import.meta.url), "utf8"));
  const entropy = testStream(seed);
  for (const [item, items, q, drawn] of draws) assert.equal(block(item, spaceOf(items, q), own, entropy), drawn, [item, items, q]);
});

test("a person answers a collection once, and no plan that costs more than it says", async () => {
  const view = { kind: "grid", axes: [0], edges: [[0, 1, 2]], boxes: [], measure: null, empty: false };
  const body = {
    dpsql_plan: 1, collection: "c", epsilon: "1", own: wanted.W, other: wanted.S, tau: 1, rows_floor: 1, rows_cap: 2,
    round: 0, rounds: 1, axes: [{ name: "a", leaves: 2 }], measures: [],
    views: [{ ...view, oracle: "GRR", domain: 2, extra: 0, share: 1 }],
  };
  const read = (changes) => readPlan(new TextEncoder().encode(JSON.stringify({ ...body, ...changes })));
  const kept = new Map();
  const storage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, text) => kept.set(key, text) };
  const memory = new Memory(storage, "1", "1");
  const plan = await read({});
  const first = toHex(await memory.answer(plan, [{ leaves: [0] }]));
  for (let again = 0; again < 20; again += 1) assert.equal(toHex(await memory.answer(plan, [{ leaves: [1] }])), first);
  await assert.rejects(async () => memory.answer(await read({ collection: "d" }), [{ leaves: [0] }]), /has spent all/);
  await assert.rejects(read({ own: wanted.W + 1 }), /costs more/);
});

test("texts are the same values as in every other language", () => {
  const { numbers, moments, categories } = JSON.parse(readFileSync(new URL("../../tests/vectors/values.json", import.meta.url), "utf8"));
  for (const [text, ones, cents] of numbers.rows)
    assert.deepEqual([units(text, 0, -1000, 1000), units(text, 2, -100000, 100000)], [ones, cents], text);
  for (const [text, ...told] of moments.rows)
    told.forEach((unit, i) => {
      const [low, high] = unit === null ? [-1e14, 1e14] : [unit, unit];
      const kind = i === 0 ? { type: "date" } : { type: "timestamp", grain: ["", "hour", "second"][i] };
      assert.equal(leafOf({ leaves: 2, starts: [low], upper: high, other_leaf: 1, ...kind }, text), unit === null ? 1 : 0, text);
    });
  for (const [text, leaf] of categories.rows) assert.equal(leafOf(categories.axis, text), leaf, text);
});
