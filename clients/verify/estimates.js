// Leaf estimates of statistics from their noisy integers, against those that were released.

import { integer, refuse } from "./exact.js";
import { lacksInPart, merged, roundings, settled, tiedDimensions } from "./partners.js";
import { alongAll, size, subsets, total } from "./tensors.js";

const UNIT = 2 ** 20; // stored estimates are integers of step / UNIT
const DOUBLES = 2 ** -50; // of all leaves of a statistic: what the doubles of a release and of this program may differ by

// Every family again; gives the largest distance from the released leaves in units of 2^-20.
export function checkEstimates(statistics) {
  return Math.max(0, ...[...new Set(statistics.map(({ family }) => family))].flatMap((family) => {
    const members = statistics.filter((statistic) => statistic.family === family);
    const isProduct = members[0].method === "product";
    const [estimates, tied] = isProduct ? [agreed(members), tiedDimensions(members)] : [residual(members), []];
    checkStep(members, estimates);
    return members.map((member, i) => distance(member, estimates[i], tied, members));
  }));
}

const magnitude = (estimate) => total(estimate.map(Math.abs));

// The step of a family is the least power of two that leaves 62 bits for its largest statistic.
function checkStep([{ name, step }, ...others], estimates) {
  const share = Math.max(...estimates.map(magnitude)) / (2 ** 42 * step);
  refuse(others.some((other) => other.step !== step) || !Number.isInteger(Math.log2(step)) || step < 1
    || share > 1 + 1e-9 || (step > 1 && share < 0.5 - 1e-9), `${name}: its estimates have another step`);
}

const leafShape = ({ own }) => own.map((axis) => axis.leaves);

function scaled({ factor, added, name }, leaves) {
  refuse(added !== null && added.length !== leaves.length, `${name}: leaves are missing`);
  return leaves.map((value, cell) => value * factor + (added?.[cell] ?? 0));
}

// Least squares axis by axis; repeated on what the rounded estimate leaves of the integers, so that errors of doubles
// are small beside the noise.
function estimated({ own, values, name }, rounds) {
  refuse(values.some((value) => BigInt(Number(value)) !== value), `${name}: integers beyond doubles are not redone here`);
  const estimate = (rows) => alongAll(rows, own.map((axis) => axis.rows), (at) => [own[at].leaves, own[at].estimate]);
  const noisy = Float64Array.from(values, Number);
  let first = estimate(noisy);
  for (let round = 0; round < rounds; round += 1) {
    const integers = first.map(Math.round);
    const again = alongAll(integers, leafShape({ own }), (at) => [own[at].rows, own[at].measure]);
    const step = estimate(noisy.map((value, row) => value - again[row]));
    first = integers.map((value, cell) => value + step[cell]);
  }
  return first;
}

// Sums over the axes that are not kept, which stay as axes of one place.
const margin = (values, shape, kept) =>
  alongAll(values, shape, (at) => (kept.includes(at) ? [shape[at], (line) => line] : [1, (line) => [total(line)]]));

// Views that share axes tell the same margins and the same rows without a partner.
function agreed(members) {
  const tables = members.map((member) => ({
    axes: member.axes, own: member.own, values: scaled(member, estimated(member, 2)), variance: member.variance * member.factor ** 2,
  }));
  return settled(tables, averaged).map(({ values }) => values);
}

// Tables of numbers over axes: each part is averaged by precision over the tables that hold it.
function averaged(tables) {
  const result = tables.map(({ values }) => Float64Array.from(values));
  const parts = new Map(tables.flatMap((table) => subsets(table.axes)).map((part) => [`${part}`, part]));
  for (const part of parts.values()) {
    const holders = [...tables.keys()].filter((k) => part.every((axis) => tables[k].axes.includes(axis)));
    const kept = holders.map((k) => part.map((axis) => tables[k].axes.indexOf(axis)));
    const margins = holders.map((k, i) => margin(tables[k].values, leafShape(tables[k]), kept[i]));
    const precision = holders.map((k, i) => tables[k].own.reduce(
      (value, axis, at) => value / (kept[i].includes(at) ? 1 : axis.spread.total), 1 / tables[k].variance));
    holders.forEach((k, i) => {
      const step = margins[i].map((value, cell) =>
        margins.reduce((sum, other, j) => sum + (precision[j] / total(precision)) * (other[cell] - value), 0));
      spread(step, tables[k], kept[i]).forEach((value, cell) => { result[k][cell] += value; });
    });
  }
  return tables.map((table, k) => ({ ...table, values: result[k] }));
}

// A part over all leaves of a view: what has no total along the part's axes, spread over all others as totals are.
function spread(part, { own }, kept) {
  return alongAll(part, own.map((axis, at) => (kept.includes(at) ? axis.leaves : 1)), (at) => {
    const { leaves } = own[at].spread;
    const rest = (line, sum) => line.map((value, leaf) => value - leaves[leaf] * sum);
    return [leaves.length, (line) => (kept.includes(at) ? rest(line, total(line)) : leaves.map((share) => share * line[0]))];
  });
}

// Sets of axes measured free of their subsets: a set's leaves are its own deviations and those of all sets within it.
function residual(members) {
  const deviations = new Map(members.map((member) => [`${member.axes}`, estimated(member, 0)]));
  return members.map((member) => {
    const leaves = new Float64Array(size(leafShape(member)));
    for (const part of subsets(member.axes)) {
      const own = deviations.get(`${part}`);
      refuse(!own, `${member.name}: the set of axes ${part} is missing`);
      const isIn = (at) => part.includes(member.axes[at]);
      const even = (line, n) => (line.length === n ? line : Array(n).fill(line[0] / n));
      const shape = leafShape(member).map((n, at) => (isIn(at) ? n : 1));
      alongAll(own, shape, (at) => [member.own[at].leaves, (line) => even(line, member.own[at].leaves)])
        .forEach((value, cell) => { leaves[cell] += value; });
    }
    return scaled(member, leaves);
  });
}

// Released leaves are rounded with their totals, so every margin without the last leaves is compared, each rounded once.
// On an axis of a tied dimension MISSING and the leaf that takes what leaves it are one leaf of such a margin, and rows
// without a partner are compared by themselves; the distance is over the number of margins that were rounded for them.
function distance(member, estimate, tied, members) {
  const [{ own, name }, shape] = [member, leafShape(member)];
  refuse(member.leaves.length !== size(shape), `${name}: leaves are missing`);
  const [released, units] = [BigInt64Array.from(member.leaves, integer), UNIT / member.step];
  const precision = Math.max(1, magnitude(estimate) * units * DOUBLES);
  const dimensions = tied.filter((dimension) => own.some((axis) => axis.dimension === dimension));
  refuse(dimensions.some((dimension) => lacksInPart(released, own, dimension)), `${name}: rows lack a partner on one axis alone`);
  return Math.max(...subsets(dimensions).flatMap((lacking) => {
    const others = [...shape.keys()].filter((at) => !lacking.includes(own[at].dimension));
    return subsets(others).map((kept) => {
      const margin = (values, add) => alongAll(values, shape, (at) => {
        if (!others.includes(at)) return [1, (line) => line.slice(own[at].missing, own[at].missing + 1)];
        if (!kept.includes(at)) return [1, (line) => [add(line)]];
        return dimensions.includes(own[at].dimension) ? merged(own[at]) : [shape[at] - 1, (line) => line.slice(0, -1)];
      });
      const [wanted, weight] = [margin(estimate, total), roundings(members, lacking)];
      const merges = margin(Float64Array.from(estimate, () => 1), ([one]) => one);
      return margin(released, (line) => line.reduce((a, b) => a + b)).reduce((worst, value, cell) =>
        Math.max(worst, Math.abs(Number(value) - wanted[cell] * units) / (merges[cell] * weight * precision)), 0);
    });
  }));
}
