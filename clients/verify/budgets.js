// Budgets of statistics: from the ledger's line to what noise is drawn for, and from there to the scale of each row.

import { Fraction, circle, integer, refuse, whole } from "./exact.js";

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

// A statistic is a number of a draw, or the sum of two: of draws of their own, or of one draw that has it in halves.
function readLaplace({ name, own, used, share, pure, numbers, spend: text, sensitivity: text2, widest: text3, variance }) {
  const [spend, sensitivity] = [Fraction.parse(text), integer(text2)];
  refuse(!pure || !spend.equals(share), `${name}: it spends ${spend} where ${share} is charged`);
  refuse(!numbers || numbers.length !== used.length || !used.length || used.length > 2, `${name}: it is no number of a draw`);
  const bounds = used.map((draw, k) => (draw.bounds ? draw.bounds[numbers[k]] : sensitivity));
  const halves = used.length === 2 && used[0] === used[1];
  refuse(bounds.some((bound) => bound * (halves ? 2n : 1n) !== sensitivity), `${name}: its draw has another bound`);
  const all = used[0].bounds ?? bounds;
  const widest = text3 === undefined ? all.reduce((a, b) => (a > b ? a : b)) * BigInt(all.length) : integer(text3);
  let unit = 2n ** 30n;
  while (512n * unit * widest >= 2n ** 63n) unit /= 2n;
  const cap = spend.times(whole(unit)).floor();
  const tree = own.findIndex((axis) => axis.levels);
  const rows = tree >= 0 ? null : { units: products(own, cap, (value, b, total) => (value * BigInt(b)) / BigInt(total)),
    ideal: products(own, Number(cap), (value, b, total) => value * (b / total)) };
  const read = used.map((draw, k) => (rows ? drawnRows(name, draw, numbers[k], rows.units, unit * (draw.bounds ? 1n : bounds[k]))
    : treeLeaves(name, own, draw, tree, unit, cap, numbers[k])));
  const values = read.reduce((sum, part) => sum.map((value, row) => circle(value + part[row])));
  return { values, variance: rows ? used.reduce((sum, draw, k) =>
    sum + laplaceVariance(rows.ideal, rows.units, cap, unit * bounds[k], draw.bounds?.length), 0) : variance };
}

// One number's integers of a draw in which each row has noise of its own.
function drawnRows(name, draw, number, units, denominator) {
  const same = draw.denominator === denominator && draw.units?.length === units.length;
  refuse(!same || units.some((value, row) => value !== draw.units[row]), `${name}: its noise has another scale`);
  return draw.noisy.slice(number * units.length, (number + 1) * units.length).map(integer);
}

// Leaves that were drawn together along one axis: the rates of its levels from the cap, and the leaves in row order.
function treeLeaves(name, own, draw, position, unit, cap, number) {
  const [{ levels, total }, { tree }] = [own[position], draw];
  const rates = levels.shares.map((share) => (cap * BigInt(share)) / BigInt(total));
  const alone = own.every((axis, at) => at === position || axis.budget.every((budget) => budget === axis.total));
  const leaf = own[position].budget.every((budget) => budget === levels.shares.at(-1));
  const same = alone && leaf && tree && draw.denominator === unit && `${tree.rates}` === `${rates}`
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
