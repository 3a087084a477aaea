// Arrays of several axes, flat in row order, and least squares along one axis.

import { refuse } from "./exact.js";

export const size = (shape) => shape.reduce((product, n) => product * n, 1);
export const subsets = (list) => list.reduce((sets, value) => [...sets, ...sets.map((set) => [...set, value])], [[]]);

// A sum of doubles; what each addition rounds off is added up too.
export function total(values) {
  let [sum, error] = [0, 0];
  for (const value of values) {
    const before = sum;
    sum += value;
    error += Math.abs(before) >= Math.abs(value) ? before - sum + value : value - sum + before;
  }
  return sum + error;
}

// A function of one line of numbers, along one axis; `length` of what it gives.
export function along(values, shape, axis, length, map) {
  const [inner, n] = [size(shape.slice(axis + 1)), shape[axis]];
  const made = new values.constructor((values.length / n) * length);
  for (let outer = 0; outer < values.length / n / inner; outer += 1) {
    for (let i = 0; i < inner; i += 1) {
      const line = new values.constructor(n).map((_, k) => values[(outer * n + k) * inner + i]);
      map(line).forEach((value, k) => { made[(outer * length + k) * inner + i] = value; });
    }
  }
  return made;
}

// The same along every axis in turn: (axis's place) -> [length, function].
export function alongAll(values, shape, each) {
  return shape.reduce(([made, sizes], _, at) => {
    const [length, map] = each(at);
    return [along(made, sizes, at, length, map), sizes.with(at, length)];
  }, [values, shape])[0];
}

// The rows H of one axis with their budgets b of a total B: measuring, and least squares by the normal equations
// H' W H x = H' W y with W = (b / B)^2. Rows that add to zero leave the mean of x open, which is 0 then.
export class Axis {
  constructor({ axis, leaves, start, stop, offset, entry, budget, total, zero_sum: zeroSum, levels, dimension, missing }) {
    const rows = start.length;
    const good = (r) => start[r] >= 0 && start[r] < stop[r] && stop[r] <= leaves && budget[r] >= 1 && budget[r] <= total
      && [0, stop[r] - start[r]].includes(offset[r + 1] - offset[r]);
    refuse(start.some((_, r) => !good(r)) || stop.length !== rows || offset.length !== rows + 1 || budget.length !== rows
      || offset[rows] !== entry.length, `axis ${axis}: a row is no row`);
    refuse(dimension !== undefined && !(missing >= 0 && missing < leaves), `axis ${axis}: MISSING is no leaf`);
    Object.assign(this, { leaves, rows, budget, total, zeroSum, levels, dimension, missing, weights: budget.map((b) => (b / total) ** 2) });
    this.lists = start.map((from, r) => Array.from({ length: stop[r] - from }, (_, k) =>
      [from + k, offset[r + 1] > offset[r] ? entry[offset[r] + k] : 1]));
  }

  measure = (x) => this.lists.map((list) => list.reduce((sum, [leaf, value]) => sum + value * x[leaf], 0));

  estimate = (y) => {
    const right = new Float64Array(this.leaves);
    this.lists.forEach((list, r) => list.forEach(([leaf, value]) => { right[leaf] += value * this.weights[r] * y[r]; }));
    return this.solve(right);
  };

  covered = (x) => (this.levels ? this.levelled(x) : this.solve(x)); // C x

  // C 1 and its sum, C the covariance of the leaves: how the axis's total is spread over them
  get spread() {
    this.ones ??= this.covered(new Float64Array(this.leaves).fill(1));
    return { total: total(this.ones), leaves: this.ones.map((value) => value / total(this.ones)) };
  }

  // Of MISSING where the axis's total is known: its variance, and what of it each other leaf takes (their regression on it)
  get lacking() {
    if (this.regression) return this.regression;
    const column = this.covered(Float64Array.from({ length: this.leaves }, (_, leaf) => (leaf === this.missing ? 1 : 0)));
    const { total: whole, leaves: shares } = this.spread;
    const left = column.map((value, leaf) => value - whole * shares[leaf] * shares[this.missing]);
    const noise = Math.max(left[this.missing], column[this.missing] * 1e-9);
    const others = left.map((value, leaf) => (leaf === this.missing ? 0 : -value / noise));
    return (this.regression = { noise, spread: others.map((value) => value / total(others)) });
  }

  // C x of leaves drawn together: two leaves have the weights of all levels at which they lie below one node
  levelled(x) {
    const { arities, weights } = this.levels;
    const product = new Float64Array(this.leaves);
    weights.forEach((weight, level) => {
      const width = size(arities.slice(level));
      for (let first = 0; first < this.leaves; first += width) {
        const sum = total(x.slice(first, first + width));
        for (let leaf = first; leaf < Math.min(first + width, this.leaves); leaf += 1) product[leaf] += weight * sum;
      }
    });
    return product;
  }

  // Cholesky's factor of the normal matrix, each row from its first entry on
  get factor() {
    if (this.lower) return this.lower;
    const lower = Array.from({ length: this.leaves }, () => new Float64Array(this.leaves));
    this.lists.forEach((list, r) => {
      for (const [i, a] of list) for (const [j, b] of list) if (j <= i) lower[i][j] += a * b * this.weights[r];
    });
    if (this.zeroSum) lower.forEach((row, i) => { for (let j = 0; j <= i; j += 1) row[j] += 1; });
    this.first = lower.map((row, i) => row.findIndex((value, j) => value !== 0 || j === i));
    lower.forEach((row, i) => {
      for (let j = this.first[i]; j <= i; j += 1) {
        for (let k = Math.max(this.first[i], this.first[j]); k < j; k += 1) row[j] -= row[k] * lower[j][k];
        row[j] = i === j ? Math.sqrt(row[j]) : row[j] / lower[j][j];
      }
    });
    return (this.lower = lower);
  }

  solve(right) {
    const [lower, x] = [this.factor, Float64Array.from(right)];
    for (let i = 0; i < x.length; i += 1) {
      for (let j = this.first[i]; j < i; j += 1) x[i] -= lower[i][j] * x[j];
      x[i] /= lower[i][i];
    }
    for (let i = x.length - 1; i >= 0; i -= 1) {
      x[i] /= lower[i][i];
      for (let j = this.first[i]; j < i; j += 1) x[j] -= lower[i][j] * x[i];
    }
    return x;
  }
}
