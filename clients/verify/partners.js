// Rows without a partner: a foreign key that names no row of a dimension is MISSING on every axis of that dimension.

import { alongAll, size } from "./tensors.js";

const unique = (list) => [...new Set(list)];
const leafShape = ({ own }) => own.map((axis) => axis.leaves);
const isOf = (axis, dimension) => axis.dimension === dimension; // axes that keep no such rows have no dimension

// Dimensions of which a family's tables have two axes or more, in the order in which they are settled.
export function tiedDimensions(tables) {
  const axes = unique(tables.flatMap(({ own }) => own));
  const times = (dimension) => axes.filter((axis) => isOf(axis, dimension)).length;
  return unique(axes.map(({ dimension }) => dimension)).filter((d) => d !== undefined && times(d) > 1).sort((a, b) => a - b);
}

// Tables that agree on what they share, and on the rows without a partner: these are tables themselves, over the other axes.
export function settled(tables, agree) {
  let result = agree(tables);
  for (const dimension of tiedDimensions(tables)) {
    const holders = [...result.keys()].filter((k) => result[k].own.some((axis) => isOf(axis, dimension)));
    const lacking = holders.map((k) => withoutPartner(result[k], dimension));
    const after = settled(lacking, agree);
    result = result.map((table, k) => (holders.includes(k)
      ? { ...table, values: replaced(table, dimension, ...[lacking, after].map((of) => of[holders.indexOf(k)].values)) } : table));
  }
  return result;
}

function withoutPartner({ axes, own, values, variance }, dimension) {
  const others = [...own.keys()].filter((at) => !isOf(own[at], dimension));
  const noise = own.reduce((product, axis) => (isOf(axis, dimension) ? product * axis.lacking.noise : product), variance);
  const missing = (axis) => [1, (line) => [line[axis.missing]]];
  const cells = alongAll(values, leafShape({ own }), (at) => (others.includes(at) ? [own[at].leaves, (line) => line] : missing(own[at])));
  return { axes: others.map((at) => axes[at]), own: others.map((at) => own[at]), values: cells, variance: noise };
}

// A table with other rows without a partner, and none that is MISSING on one axis of the dimension alone. What leaves
// MISSING is spread over the axis's other leaves, so sums along the axis stay.
function replaced({ own, values }, dimension, before, after) {
  const at = (place, map) => [own[place].leaves, isOf(own[place], dimension) ? map(own[place]) : (line) => line];
  const placed = (cells, map) => alongAll(cells, own.map((axis) => (isOf(axis, dimension) ? 1 : axis.leaves)), (place) => at(place, map));
  const onMissing = ({ leaves, missing }) => ([value]) => Array.from({ length: leaves }, (_, leaf) => (leaf === missing ? value : 0));
  const onOthers = ({ lacking }) => ([value]) => Array.from(lacking.spread, (share) => share * value);
  const away = ({ missing, lacking }) => (line) =>
    line.map((value, leaf) => (leaf === missing ? 0 : value + lacking.spread[leaf] * line[missing]));
  const [old, fresh] = [placed(before, onMissing), placed(after, onMissing)];
  const moved = placed(before.map((value, cell) => value - after[cell]), onOthers);
  const rest = alongAll(values.map((value, cell) => value - old[cell]), leafShape({ own }), (place) => at(place, away));
  return rest.map((value, cell) => value + moved[cell] + fresh[cell]);
}

// Whether a row is MISSING on one axis of a dimension and not on another.
export function lacksInPart(leaves, own, dimension) {
  const places = [...own.keys()].filter((at) => isOf(own[at], dimension));
  return places.some((first) => places.some((second) => first !== second && alongAll(leaves, leafShape({ own }), (at) => {
    const { leaves: n, missing } = own[at];
    if (at === first) return [1, (line) => line.slice(missing, missing + 1)];
    return at === second ? [n - 1, (line) => line.filter((_, leaf) => leaf !== missing)] : [n, (line) => line];
  }).some((value) => value !== 0n)));
}

// Leaves of an axis of which MISSING and the leaf that takes what leaves it (the first other one) are one, without the
// last one: its total tells it.
export function merged({ leaves, missing }) {
  const taker = missing === 0 ? 1 : 0;
  const redundant = leaves - 1 === missing || leaves - 1 === taker;
  const others = (line) => line.filter((_, leaf) => leaf !== missing && leaf !== taker);
  return [leaves - 2, (line) => (redundant ? others(line) : [line[missing] + line[taker], ...others(line).slice(0, -1)])];
}

// How many rounded margins the rows that lack some partners are made of, at most: a last leaf is what its axis's total
// and all other leaves leave of it.
export function roundings(members, lacking) {
  const ofView = ({ own }) => size(own.map(({ dimension, missing, leaves }) =>
    (lacking.includes(dimension) && missing === leaves - 1 ? leaves : 1)));
  const hold = ({ own }) => lacking.every((dimension) => own.some((axis) => isOf(axis, dimension)));
  return Math.max(...members.filter(hold).map(ofView));
}
