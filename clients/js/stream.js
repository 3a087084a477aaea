// Draws from the shared test stream and prints what came out, for the tests that compare it with Python's draws.
// Usage: node stream.js < request.json      The stream is SHA-256(seed || be32(counter)), counter from 0.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import {
  below, block, drawRound, encode, fromHex, grr, olh, oue, readPlan, respond, toHex, varint, wave,
} from "./dpsql-client.js";
import { spaceOf } from "./dpsql-plan.js";

function testStream(seed) {
  let counter = 0;
  let left = Buffer.alloc(0);
  return (size) => {
    while (left.length < size) {
      const tail = Buffer.alloc(4);
      tail.writeUInt32BE(counter);
      counter += 1;
      left = Buffer.concat([left, createHash("sha256").update(seed).update(tail).digest()]);
    }
    const taken = left.subarray(0, size);
    left = left.subarray(size);
    return taken;
  };
}

const request = JSON.parse(readFileSync(0, "utf8"));
const entropy = testStream(request.seed);
const own = request.own;
const out = { below: [], grr: [], oue: [], olh: [], wave: [], design: [], reports: [], rounds: [], plan_reports: [] };
for (const bound of request.below ?? []) out.below.push(below(bound, entropy));
for (const [item, domain] of request.grr ?? []) out.grr.push(grr(item, domain, own, entropy));
for (const [item, domain] of request.oue ?? []) out.oue.push(toHex(oue(item, domain, own, entropy)));
for (const [item, buckets] of request.olh ?? []) out.olh.push(olh(item, buckets, own, entropy));
for (const [item, domain, reach] of request.wave ?? []) out.wave.push(wave(item, domain, reach, own, entropy));
for (const [item, items, q] of request.design ?? []) out.design.push(block(item, spaceOf(items, q), own, entropy));
for (const values of request.reports ?? []) {
  let draw = below(request.views.reduce((sum, view) => sum + view[0], 0), entropy);
  let number = 0;
  while (draw >= request.views[number][0]) draw -= request.views[number++][0];
  const [, domain, oracle] = request.views[number];
  const payload =
    oracle === "GRR" ? varint(grr(values[number], domain, own, entropy)) : oue(values[number], domain, own, entropy);
  out.reports.push(toHex(encode(fromHex(request.plan_hash), number, oracle, payload)));
}
if (request.plan) {
  const plan = await readPlan(new TextEncoder().encode(request.plan));
  for (let draw = 0; draw < (request.rounds ?? 0); draw += 1) out.rounds.push(drawRound(plan, entropy));
  for (const rows of request.people) out.plan_reports.push(toHex(respond(plan, rows, entropy)));
}
process.stdout.write(JSON.stringify(out));
