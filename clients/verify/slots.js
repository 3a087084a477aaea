// Tables of chances by which private keys are shown, and the inequality that each pair of neighbouring entries satisfies.

import { Fraction, refuse } from "./exact.js";
import { upperTail } from "./losses.js";

const [ALL, NODES_A_MU, TOLERANCE] = [2 ** 64, 25, 1e-9];

export const readPrice = ({ mu2, delta, room }) => ({ mu2: Fraction.parse(mu2), delta: Fraction.parse(delta), room: Fraction.parse(room) });

// Chances as multiples of 2^-64, 16 hexadecimal digits each.
export function readTable(text) {
  refuse(!/^([0-9a-f]{16})+$/.test(text), "a table is not of hexadecimal digits");
  const chances = text.match(/.{16}/g).map((digits) => BigInt(`0x${digits}`));
  refuse(chances.some((chance, n) => n && chance <= chances[n - 1]), "a table does not grow");
  return chances;
}

// The first entry that is too far above the one before it; null where there is none. A slot of chances q and p is worth (m, eta | v) if
// q dG(v; log(u p / q)) + (1 - q) dG(v; log(u (1 - p) / (1 - q))) <= dG(v + m; log u) + eta for every u, both ways; u from 1 on is enough.
export function dearPair({ mu2, delta, room }, table) {
  const [v, eta] = [room.toNumber(), delta.toNumber()];
  const [mu, total] = [Math.sqrt(v), Math.sqrt(v + mu2.toNumber())];
  const logs = [0];
  while (deltaOf(total, logs.at(-1) / 2) > eta / 4) logs.push(logs.length * total / NODES_A_MU);
  const limits = logs.map((log) => (deltaOf(total, log) + eta) * (1 + TOLERANCE));
  const within = (q, p, odds, notOdds) => logs.every((log, j) => q * deltaOf(mu, log + odds) + (1 - q) * deltaOf(mu, log + notOdds) <= limits[j]);
  for (let n = 1; n < table.length; n += 1) {
    const [p, q, notP, notQ] = [table[n - 1], table[n], (1n << 64n) - table[n - 1], (1n << 64n) - table[n]].map((x) => Number(x) / ALL);
    const [odds, notOdds] = [Math.log(p / q), Math.log(notP / notQ)];
    if (!within(q, p, odds, notOdds) || !within(p, q, -odds, -notOdds)) return n + 1;
  }
  return null;
}

const tail = (x) => (x < 0 ? 1 - upperTail(-x) : upperTail(x));

// The delta of the Gaussian pair of mu at epsilon: Q(epsilon / mu - mu / 2) - e^epsilon Q(epsilon / mu + mu / 2).
function deltaOf(mu, epsilon) {
  if (epsilon < 0) return 1 - Math.exp(epsilon) * (1 - deltaOf(mu, -epsilon));
  return tail(epsilon / mu - mu / 2) - Math.exp(epsilon) * tail(epsilon / mu + mu / 2);
}
