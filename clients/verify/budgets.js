// Budgets of statistics: from the ledger's line to what noise is drawn for, and from there to the scale of each row.

import { Fraction, integer, refuse, whole } from "./exact.js";
import { pureWorth } from "./losses.js";

const squared = (value) => whole(value * value);
const products = (axes, first, times) => axes.reduce((list, { budget, total }) =>
  list.flatMap((value) => budget.map((b) => times(value, b, total))), [first]);

// A statistic with its axes, its integers in row order and the variance of a row of whole budget.
export function readStatistic(record, pair, draws, axes, moves) {
  const name = `statistic ${record.statistic} (${record.view}: ${record.measure})`;
  const own = record.axes.map((axis) => axes.get(axis));
  const used = record.draws.map((number) => draws[number]);
  refuse(own.includes(undefined) || used.some((draw) => draw?.law !== record.law), `${name}: its axes or draws are others`);
  const charge = Fraction.parse(record.charge);
  const lines = pair.lines.filter(([purpose]) => purpose === record.purpose);
  refuse(lines.length !== 1 || !Fraction.parse(lines[0][1]).equals(charge), `${name}: its charge is no line of the ledger`);
  const share = charge.over(whole(pair.currency === "epsilon" ? moves : moves ** 2));
  const statistic = { ...record, name, own, used, share, pure: pair.currency === "epsilon" };
  return { ...statistic, ...(record.law === "laplace" ? readLaplace : readGaussian)(statistic) };
}

function readLaplace({ name, own, used, share, pure, number, spend: text, sensitivity: text2, variance }) {
  const [spend, sensitivity, { bounds }] = [Fraction.parse(text), integer(text2), used[0]];
  const worth = (epsilon) => pureWorth(epsilon.toNumber()) / share.toNumber();
  const isWorth = () => worth(spend) <= 1 + 1e-9 && worth(spend.plus(new Fraction(1n, 2n ** 29n))) >= 1 - 1e-9;
  refuse(!(pure ? spend.equals(share) : isWorth()), `${name}: it spends ${spend} where ${share} is charged`);
  let unit = 2n ** 30n;
  const widest = (bounds ?? [sensitivity]).reduce((a, b) => (a > b ? a : b)) * BigInt(bounds?.length ?? 1);
  refuse(bounds && bounds[number] !== sensitivity, `${name}: its draw has another bound`);
  while (512n * unit * widest >= 2n ** 63n) unit /= 2n;
  const cap = spend.times(whole(unit)).floor();
  const tree = own.findIndex((axis) => axis.levels);
  if (tree >= 0) return { values: treeLeaves(name, own, used, tree, unit, cap, number), variance };
  const units = products(own, cap, (value, b, total) => (value * BigInt(b)) / BigInt(total));
  const [draw, denominator] = [used[0], unit * sensitivity];
  const same = used.length === 1 && draw.denominator === (bounds ? unit : denominator) && draw.units.length === units.length;
  refuse(!same || units.some((value, row) => value !== draw.units[row]), `${name}: its noise has another scale`);
  const ideal = products(own, Number(cap), (value, b, total) => value * (b / total));
  const values = draw.noisy.slice(number * units.length, (number + 1) * units.length).map(integer);
  return { values, variance: laplaceVariance(ideal, units, cap, denominator, bounds?.length) };
}

// Leaves that were drawn together along one axis: the rates of its levels from the cap, and the leaves in row order.
function treeLeaves(name, own, [draw, ...others], position, unit, cap, number) {
  const [{ levels, total }, { tree }] = [own[position], draw];
  const rates = levels.shares.map((share) => (cap * BigInt(share)) / BigInt(total));
  const alone = own.every((axis, at) => at === position || axis.budget.every((budget) => budget === axis.total));
  const leaf = own[position].budget.every((budget) => budget === levels.shares.at(-1));
  const same = alone && leaf && !others.length && tree && draw.denominator === unit && `${tree.rates}` === `${rates}`
    && `${tree.arities}` === `${levels.arities}` && tree.leaves === own[position].leaves && rates.reduce((a, b) => a + b) <= cap;
  refuse(!same, `${name}: its noise has another scale`);
  const [after, n] = [own.slice(position + 1).reduce((product, axis) => product * axis.leaves, 1), tree.leaves];
  const first = number * tree.number * n;
  return Array.from({ length: tree.number * n }, (_, row) => {
    const [outer, leaf, inner] = [Math.floor(row / (n * after)), Math.floor(row / after) % n, row % after];
    return integer(draw.noisy[first + (outer * after + inner) * n + leaf]);
  });
}

// 2 (t M / cap)^2, and what budgets rounded down and noise of whole numbers add to it; of several numbers a draw the
// cube's (d + 1)(d + 2) / 3, as of continuous noise
function laplaceVariance(ideal, units, cap, denominator, numbers) {
  const scale = Number(denominator);
  let [sum, weight, worst] = [0, 0, 1e-9];
  units.forEach((unit, row) => {
    const rate = Number(unit) / scale;
    sum += (ideal[row] / Number(unit)) ** 2 * ideal[row] ** 2;
    weight += ideal[row] ** 2;
    worst = Math.max(worst, (Math.exp(-rate) / Math.expm1(-rate) ** 2) * rate ** 2);
  });
  const unit = numbers ? ((numbers + 1) * (numbers + 2)) / 3 : 2 * worst;
  return unit * (scale / Number(cap)) ** 2 * (sum / weight);
}

// sigma^2 is rounded up to a multiple of 2^-20, 4 above that of continuous noise
function gaussianVariance(squares) {
  const exact = (squares.isAbove(whole(1)) ? squares : whole(1)).plus(whole(4));
  return new Fraction(exact.times(whole(2 ** 20)).ceil(), 2n ** 20n);
}

function readGaussian({ name, own, used, share, pure, spend, sensitivity }) {
  refuse(pure || (spend !== null && !Fraction.parse(spend).equals(share)), `${name}: it spends ${spend}, not ${share}`);
  const budgets = products(own, 1n, (value, b) => value * BigInt(b));
  const classes = [...new Set(budgets)].sort((a, b) => (a < b ? -1 : 1));
  refuse(used.length !== classes.length, `${name}: its rows have ${classes.length} budgets`);
  const total = own.reduce((product, axis) => product * BigInt(axis.total), 1n);
  const variance = spend === null ? used[0].sigma2.plus(whole(-4)).times(squared(classes[0]))
    : squared(total * integer(sensitivity)).over(share);
  const values = Array(budgets.length);
  classes.forEach((budget, k) => {
    const rows = [...budgets.keys()].filter((row) => budgets[row] === budget);
    const wanted = gaussianVariance(variance.over(squared(budget)));
    const same = spend !== null ? wanted.equals(used[k].sigma2) : Math.abs(wanted.over(used[k].sigma2).toNumber() - 1) < 1e-12;
    refuse(!same || rows.length !== used[k].noisy.length, `${name}: its noise has another scale`);
    rows.forEach((row, i) => { values[row] = integer(used[k].noisy[i]); });
  });
  return { values, variance: variance.plus(squared(2n * classes.at(-1))).over(squared(total)).toNumber() };
}
