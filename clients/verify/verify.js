#!/usr/bin/env node
// node verify.js out.jsonl: checks a witness of `dpsql audit --prove --witness`, its losses, budgets and estimates.

import { createReadStream, realpathSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { readStatistic } from "./budgets.js";
import { checkEstimates } from "./estimates.js";
import { Fraction, Refused, refuse, whole } from "./exact.js";
import { checkLosses, readDraw } from "./losses.js";
import { dearPair, readPrice, readTable } from "./slots.js";
import { Axis } from "./tensors.js";

const ZERO = whole(0);

// One report a pair; throws Refused where a witness does not hold together.
export async function* verify(lines) {
  let [header, records] = [null, []];
  const [axes, priced] = [new Map(), new Map()]; // by their text: all pairs of a catalog have the same
  for await (const line of lines) {
    const record = JSON.parse(line);
    refuse(header === null && record.witness !== 1, "this reads witnesses of format 1");
    if ("pair" in record && records.length) yield checkPair(header, records, axes, priced);
    if (header === null) header = record;
    else records = "pair" in record ? [record] : [...records, record];
  }
  refuse(!records.length, "there is no pair");
  yield checkPair(header, records, axes, priced);
}

function checkPair({ moves }, [pair, ...records], axes, priced) {
  const all = (kind) => records.filter((record) => kind in record);
  refuse(!("pair" in pair) || "apart" in pair, `pair ${pair.pair}: ${pair.apart}, which no noise covers`);
  const draws = all("draw").map(readDraw);
  const { share: keys, mu2 } = checkKeys(pair, priced);
  const share = checkLosses(pair, draws, mu2);
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

// The delta of private keys over that in the ledger, and the mu^2 of their slots; null without private keys.
function checkKeys({ pair, key_delta: charged, key_loss: stated, rounds, claimed, lines }, priced) {
  if (charged === undefined) return { share: null, mu2: ZERO };
  const spent = lines.filter(([purpose]) => /: keys of .*, round [0-9]+$/.test(purpose)).map(([, amount]) => Fraction.parse(amount));
  const remains = spent.reduce((left, amount) => left.plus(amount.times(whole(-1))), Fraction.parse(claimed));
  let [mu2, delta, fresh] = [ZERO, ZERO, [ZERO, ZERO]];
  for (const { column, table, moved, ...price } of rounds) {
    const [slot, chances] = [readPrice(price), readTable(table)];
    refuse(slot.room.isAbove(remains), `pair ${pair}: slots of ${column} count on more than remains after all rounds of keys`);
    const text = JSON.stringify([price, table]);
    if (!priced.has(text)) priced.set(text, dearPair(slot, chances));
    refuse(priced.get(text) !== null, `pair ${pair}: entry ${priced.get(text)} of the table of ${column} is not worth its price`);
    for (const [key, left, right] of moved) {
      refuse(Math.abs(left - right) !== 1, `pair ${pair}: ${key} moves by more than one`);
      if (left && right) [mu2, delta] = [mu2.plus(slot.mu2), delta.plus(slot.delta)];
      else fresh = fresh.map((chance, side) => ([left, right][side] ? chance.plus(new Fraction(chances[0], 1n << 64n)) : chance));
    }
  }
  const loss = delta.plus(fresh[0].isAbove(fresh[1]) ? fresh[0] : fresh[1]);
  refuse(!loss.equals(Fraction.parse(stated)), `pair ${pair}: keys cost ${loss} of delta, not ${stated}`);
  refuse(loss.isAbove(Fraction.parse(charged)), `pair ${pair}: keys cost more of delta than is charged`);
  return { share: loss.over(Fraction.parse(charged)).toNumber(), mu2 };
}

async function main(file) {
  const lines = createInterface({ input: createReadStream(file), crlfDelay: Infinity });
  for await (const { pair, share, keys, draws, redone, statistics, distance } of verify(lines)) {
    const losses = `${pair}: ${draws} draws lose ${share.toFixed(6)} of the claim`
      + (keys === null ? "" : `, keys ${keys.toFixed(6)} of delta`);
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
