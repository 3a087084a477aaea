// Losses of a pair of neighbours, draw by draw, as exact fractions.

import { Fraction, circle, integer, magnitude, refuse, whole } from "./exact.js";

const [ZERO, SLACK] = [whole(0), whole(-4)]; // a discrete Gaussian hides as much as a continuous one of 4 less variance

// What one draw tells of the pair; refuses integers that do not fit each other.
export function readDraw(record, number) {
  const { left, noise, noisy } = record;
  const name = `draw ${number}`;
  refuse(record.draw !== number || left.length !== noise.length || left.length !== noisy.length, `${name} is incomplete`);
  left.forEach((value, row) => {
    const sum = circle(integer(value) + integer(noise[row]));
    refuse(sum !== circle(integer(noisy[row])), `${name}, row ${row}: exact integer and noise do not make the noisy one`);
  });
  const laplaceOf = record.arities ? trees : laplace;
  const law = record.law === "laplace" ? laplaceOf(record, name) : gaussian(record, name);
  refuse(law.rows !== left.length, `${name}: its law is of ${law.rows} rows`);
  refuse(!law.ones.equals(Fraction.parse(record.loss_of_ones)), `${name}: its law does not cost what is stated`);
  return { name, record, noisy, ...readMoved(record, name), law: record.law, ...law };
}

// Rows in which the two sides differ: row -> distance, and with its sign, the shorter way round the circle of 2^64.
function readMoved({ left, right, shift }, name) {
  const [moved, sides] = [new Map(), new Map()];
  let [sum, last] = [0n, -1];
  for (const [row, value] of right) {
    refuse(!(Number.isInteger(row) && row > last && row < left.length), `${name}: row ${row} is out of order`);
    const difference = circle(integer(left[row]) - integer(value));
    refuse(difference === 0n, `${name}, row ${row}: the sides do not differ there`);
    moved.set(row, magnitude(difference));
    sides.set(row, difference);
    [sum, last] = [sum + difference, row];
  }
  refuse(circle(sum) !== integer(shift), `${name}: the sides do not differ by what is stated`);
  return { moved, sides };
}

// Rows of one number, or of several (`bounds`): d lines of rows, and a row moves by the largest |d_j| / M_j.
function laplace({ units: runs, denominator: scale, bounds: texts }, name) {
  const [denominator, bounds] = [integer(scale), (texts ?? [1]).map(integer)];
  const units = runs.flatMap(([value, times]) => Array(times).fill(integer(value)));
  refuse(denominator <= 0n || [...units, ...bounds].some((unit) => unit <= 0n), `${name}: a budget is not positive`);
  const least = bounds.reduce((a, b) => (a < b ? a : b));
  const ones = new Fraction(units.reduce((sum, unit) => sum + unit, 0n), denominator * least);
  const loss = (moved) => {
    const sizes = new Map();
    for (const [place, distance] of moved) {
      const row = place % units.length;
      const size = new Fraction(distance, bounds[(place - row) / units.length]);
      if (size.isAbove(sizes.get(row) ?? ZERO)) sizes.set(row, size);
    }
    const sum = [...sizes].reduce((total, [row, size]) => total.plus(size.times(whole(units[row]))), ZERO);
    return sum.over(whole(denominator));
  };
  return { units, denominator, bounds: texts && bounds, ones, loss, rows: units.length * bounds.length };
}

// Leaves of trees, one tree after the other: every node moves by the largest |sum of d_j below it| / M_j.
function trees({ arities, rates: texts, leaves, denominator: scale, bounds: boundTexts, left }, name) {
  const [denominator, bounds, rates] = [integer(scale), boundTexts.map(integer), texts.map(integer)];
  const drawn = arities.reduce((product, arity) => product * arity, 1);
  refuse(denominator <= 0n || bounds.some((bound) => bound <= 0n) || rates.some((rate) => rate < 0n) || rates.length !== arities.length + 1
    || rates.at(-1) < BigInt(drawn) || !(leaves <= drawn) || arities.some((arity) => !(arity >= 2)), `${name}: its tree is no tree`);
  const [number, least] = [left.length / bounds.length / leaves, bounds.reduce((a, b) => (a < b ? a : b))];
  const ones = new Fraction(BigInt(number * leaves) * rates.reduce((a, b) => a + b), denominator * least);
  const loss = (moved, sides) => {
    let sum = ZERO;
    rates.forEach((rate, level) => {
      const width = arities.slice(level).reduce((product, arity) => product * arity, 1);
      const nodes = new Map(); // a node's sums of each number
      for (const place of moved.keys()) {
        const [j, cell] = [Math.floor(place / (number * leaves)), place % (number * leaves)];
        const node = Math.floor(cell / leaves) * drawn + Math.floor((cell % leaves) / width);
        const sums = nodes.get(node) ?? bounds.map(() => 0n);
        sums[j] += sides.get(place);
        nodes.set(node, sums);
      }
      for (const sums of nodes.values()) {
        const sizes = sums.map((value, j) => new Fraction(magnitude(value), bounds[j]));
        sum = sum.plus(sizes.reduce((a, b) => (b.isAbove(a) ? b : a)).times(whole(rate)));
      }
    });
    return sum.over(whole(denominator));
  };
  return { tree: { arities, rates, leaves, number }, denominator, bounds, ones, loss, rows: bounds.length * number * leaves };
}

function gaussian({ law, sigma2: text, left }, name) {
  refuse(law !== "gaussian", `${name}: no law is called ${law}`);
  const [sigma2, kept] = [Fraction.parse(text), Fraction.parse(text).plus(SLACK)];
  refuse(!kept.isAbove(ZERO), `${name}: a variance of ${text} hides nothing`);
  const loss = (moved) => whole([...moved.values()].reduce((sum, distance) => sum + distance ** 2n, 0n)).over(kept);
  return { sigma2, ones: whole(left.length).over(kept), loss, rows: left.length };
}

function* lossesOf(draws) {
  for (const { name, record, loss: lossOf, moved, sides, law } of draws) {
    const loss = lossOf(moved, sides);
    refuse(!loss.equals(Fraction.parse(record.loss)), `${name}: it loses ${loss}, not ${record.loss}`);
    yield { law, loss };
  }
}

// The whole pair against what the ledger was charged; gives loss over claim. `slots` is the mu^2 of keys. Parts may be rounded down.
export function checkLosses(pair, draws, slots) {
  refuse(draws.length !== pair.draws, `${pair.draws} draws are stated, ${draws.length} are there`);
  const claimed = Fraction.parse(pair.claimed);
  const parts = pair.lines.map(([, amount]) => Fraction.parse(amount)).reduce((a, b) => a.plus(b), ZERO);
  refuse(parts.isAbove(claimed), `its parts add up to ${parts}, more than ${claimed}`);
  const sums = { laplace: ZERO, gaussian: slots };
  for (const { law, loss } of lossesOf(draws)) sums[law] = sums[law].plus(loss);
  refuse(!sums.laplace.equals(Fraction.parse(pair.epsilon)), `the pair loses epsilon ${sums.laplace}, not ${pair.epsilon}`);
  refuse(!sums.gaussian.equals(Fraction.parse(pair.mu2)), `the pair loses mu^2 ${sums.gaussian}, not ${pair.mu2}`);
  const [loss, other] = { epsilon: [sums.laplace, sums.gaussian], mu2: [sums.gaussian, sums.laplace] }[pair.currency] ?? [];
  refuse(!loss || other.n, `losses are no amounts of ${pair.currency}`);
  const share = loss.over(claimed).toNumber();
  refuse(!(Math.abs(share - pair.loss_over_claim) <= 1e-9), `loss over claim is ${share}, not ${pair.loss_over_claim}`);
  refuse(loss.isAbove(claimed), `the pair loses ${share} of its claim`);
  return share;
}

// The upper normal tail Q(x), x >= 0.
export const upperTail = (x) => 1 / (1 + Math.exp(logOdds(x)));

// log((1 - Q(x)) / Q(x)) of the normal tail Q, by a series near 0 and a continued fraction beyond 3
function logOdds(x) {
  const log = (-x * x - Math.log(2 * Math.PI)) / 2; // of the density
  let [term, sum, below] = [x, x, x];
  for (let k = 1; k < 100; k += 1) sum += term *= (x * x) / (2 * k + 1);
  if (x < 3) return 2 * Math.atanh(2 * Math.exp(log) * sum);
  for (let k = 200; k > 0; k -= 1) below = x + k / below;
  const tail = log - Math.log(below);
  return Math.log1p(-Math.exp(tail)) - tail;
}
