// Exact numbers of a witness: fractions of BigInt, and integers of 64 bits.

export class Refused extends Error {}
export function refuse(condition, reason) {
  if (condition) throw new Refused(reason);
}

export const magnitude = (value) => (value < 0n ? -value : value);
const gcd = (a, b) => (b ? gcd(b, a % b) : magnitude(a));

export class Fraction {
  constructor(numerator, denominator = 1n) {
    refuse(denominator === 0n, "a fraction has no denominator");
    const common = (denominator < 0n ? -1n : 1n) * gcd(numerator, denominator);
    [this.n, this.d] = [numerator / common, denominator / common];
  }

  // "3/7" or "-2"
  static parse(text) {
    const match = /^(-?\d+)(?:\/([1-9]\d*))?$/.exec(text);
    refuse(!match, `${text} is no fraction`);
    return new Fraction(BigInt(match[1]), BigInt(match[2] ?? 1));
  }

  plus = (other) => new Fraction(this.n * other.d + other.n * this.d, this.d * other.d);
  times = (other) => new Fraction(this.n * other.n, this.d * other.d);
  over = (other) => new Fraction(this.n * other.d, this.d * other.n);
  equals = (other) => this.n === other.n && this.d === other.d;
  isAbove = (other) => this.n * other.d > other.n * this.d;
  floor = () => this.n / this.d - (this.n % this.d < 0n ? 1n : 0n);
  ceil = () => -new Fraction(-this.n, this.d).floor();
  toString = () => `${this.n}/${this.d}`;

  // a double, of 63 digits at least before it is rounded
  toNumber() {
    const shift = Math.max(0, 64 - this.n.toString(2).length + this.d.toString(2).length);
    return Number((this.n << BigInt(shift)) / this.d) / 2 ** Math.min(shift, 1000) / 2 ** Math.max(shift - 1000, 0);
  }
}

export const whole = (value) => new Fraction(BigInt(value));
export const circle = (value) => BigInt.asIntN(64, value);

// Integers up to 2^53 are numbers, larger ones decimal strings.
export function integer(value) {
  const exact = typeof value === "number" ? Number.isInteger(value) && Math.abs(value) <= 2 ** 53 : /^-?\d+$/.test(value);
  refuse(!exact, `${value} is no exact integer`);
  return BigInt(value);
}
