#!/usr/bin/env node
// node verify.js out.jsonl: checks a witness of `dpsql audit --prove --witness`, its losses, budgets and estimates.

import { createReadStream, realpathSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { readStatistic } from "./budgets.js";
import { checkEstimates } from "./estimates.js";
import { Fraction, Refused, integer, refuse } from "./exact.js";
import { checkLosses, readDraw, upperTail } from "./losses.js";
import { Axis } from "./tensors.js";

// One report a pair; throws Refused where a witness does not hold together.
export async function* verify(lines) {
  let [header, records] = [null, []];
  const axes = new Map(); // by their text: all pairs of a catalog have the same
  for await (const line of lines) {
    const record = JSON.parse(line);
    refuse(header === null && record.witness !== 1, "this reads witnesses of format 1");
    if ("pair" in record && records.length) yield checkPair(header, records, axes);
    if (header === null) header = record;
    else records = "pair" in record ? [record] : [...records, record];
  }
  refuse(!records.length, "there is no pair");
  yield checkPair(header, records, axes);
}

function checkPair({ moves }, [pair, ...records], axes) {
  const all = (kind) => records.filter((record) => kind in record);
  refuse(!("pair" in pair) || "apart" in pair, `pair ${pair.pair}: ${pair.apart}, which no noise covers`);
  const draws = all("draw").map(readDraw);
  const share = checkLosses(pair, draws);
  const keys = checkKeys(pair);
  const own = new Map(all("axis").map((record) => {
    const text = JSON.stringify(record);
    if (!axes.has(text)) axes.set(text, new Axis(record));
    return [record.axis, axes.get(text)];
  }));
  const statistics = all("statistic");
  const redone = statistics.filter(({ method }) => method !== null).map((record) => readStatistic(record, pair, draws, own, moves));
  const distance = checkEstimates(redone);
  refuse(!(distance <= 1), `pair ${pair.pair}: an estimate is ${distance} units of 2^-20 away`);
  return { pair: pair.pair, share, keys, draws: draws.length, redone: redone.length, statistics: statistics.length, distance };
}

// The chance that private keys of one side alone are shown, over the delta in the ledger; null without private keys.
function checkKeys({ pair, key_delta: charged, new_keys: chance, struck }) {
  if (charged === undefined) return null;
  const [delta, shown] = [Fraction.parse(charged), Fraction.parse(chance)];
  const again = struck.reduce((sum, keys) => sum + passingChance(keys), 0);
  refuse(!(Math.abs(shown.toNumber() - again) <= 1e-9 * again), `pair ${pair}: new keys are shown with chance ${again}, not ${chance}`);
  refuse(shown.isAbove(delta), `pair ${pair}: keys of one side are shown more often than by delta`);
  return shown.toNumber() / delta.toNumber();
}

// Of keys that one unit alone holds with weight W, the sum of Q((T - W - 1) / sigma); 1 each where that is above the middle.
function passingChance({ threshold, sigma2, weights }) {
  const sigma = Math.sqrt(Fraction.parse(sigma2).toNumber());
  return weights.reduce((sum, [, weight]) => {
    refuse(integer(weight) <= 0n, `${weight} is no weight`);
    const distance = Number(integer(threshold) - integer(weight) - 1n);
    return sum + (distance < 0 ? 1 : upperTail(distance / sigma));
  }, 0);
}

async function main(file) {
  const lines = createInterface({ input: createReadStream(file), crlfDelay: Infinity });
  for await (const { pair, share, keys, draws, redone, statistics, distance } of verify(lines)) {
    const losses = `${pair}: ${draws} draws lose ${share.toFixed(6)} of the claim`
      + (keys === null ? "" : `, new keys ${keys.toFixed(6)} of delta`);
    console.log(`${losses}; estimates of ${redone} of ${statistics} statistics within ${distance.toFixed(2)} units of 2^-20`);
  }
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  await main(process.argv[2]).catch((error) => {
    if (!(error instanceof Refused || error instanceof SyntaxError)) throw error;
    console.error(`refused: ${error.message}`);
    process.exitCode = 1;
  });
}
