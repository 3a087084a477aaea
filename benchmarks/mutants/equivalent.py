"""Mutants that no test can tell from the module as it is, each with the reason.

A search that takes other steps to the same integer, digits that are more than a proof needs, more coins of a smaller
part of the same exponent: the module gives the same answers. They are counted neither as killed nor as survivors.
"""

from __future__ import annotations

_TABLE = """\
dpsql/budget/curve.py
  steps of a search, not its end
    slow = slow + 1 if 2 * (high - low) > width and slow < MOST_SLOW else 0
      2 * (high - low) > width  ->  2 * (high - low) >= width
      high - low  ->  high + low
      2  ->  3
      slow + 1  ->  slow - 1
    guess, width = _crossing(previous, last), high - low
      high - low  ->  high + low
    previous, last, slow = (high, over(high)), (low, math.nan), 0
      0  ->  1
  a first guess that the loop below doubles
    above = (mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))) * (1 + 1e-6) + 1e-15
      -2 * math.log(delta)  ->  -2 // math.log(delta)
      mu * mu  ->  mu // mu
      mu * math.sqrt(-2 * math.log(delta))  ->  mu // math.sqrt(-2 * math.log(delta))
      mu * mu / 2  ->  mu * mu * 2
    near = (math.sqrt(spread * spread + 2 * float(usable_epsilon)) - spread) ** 2
      2  ->  3
  more digits than the proof needs
    _LOST_DIGITS = 8  # more than a sum of fewer than 10^4 terms, each rounded, can lose where errors add up
      8  ->  9
    return _context(digits + 2 * _SPARE_DIGITS + math.ceil(cancelled))
      2  ->  3
    value = wide.subtract(upper, wide.multiply(density, _mills(distant, digits + 1, wide)))
      1  ->  2
    cancelled = min(argument * argument / 2, _natural(digits + 1)) / math.log(10)
      argument * argument / 2  ->  argument * argument * 2
    upper = wide.multiply(density, _mills(wide.abs(near), digits + 1, wide))
      1  ->  2
    wide = _context_of(digits, float(epsilon) / mu + mu / 2)
      mu / 2  ->  mu * 2
    return (digits + _SPARE_DIGITS) * math.log(10)
      10  ->  11
    _SPARE_DIGITS = 10  # of Mills' ratio below those that it is asked for
      10  ->  11
  Mills' ratio keeps its error without spare digits, as its test shows; they are a margin
    return _context(digits + 2 * _SPARE_DIGITS + math.ceil(cancelled))
      2 * _SPARE_DIGITS  ->  2 // _SPARE_DIGITS
  the guess above is large enough
    while over(-high) > 0:
      0  ->  1
  a term that equals the tolerance is smaller in the next round
    while odd < rising or term > least:
      term > least  ->  term >= least
  a search that begins further above ends at the same edge
    above = (mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))) * (1 + 1e-6) + 1e-15
      1  ->  2
  units of the last of eight spare digits, as its rounded terms are
    power, total, odd, sign = scale // divisor, 0, 1, 1
      0  ->  1
  both branches say the same of an excess up to 1 that floats can hold
    if excess <= 0:
      0  ->  1
  a bound in thirty more digits than delta's is never the limit itself; else it errs on the safe side
    if excess <= 0:
      excess <= 0  ->  excess < 0
  an excess is never 0; else it errs on the safe side
    low, high = (probe, high) if last[1] <= 0 else (low, probe)
      last[1] <= 0  ->  last[1] < 0
  the guess above is large enough, so the loop is not entered
    low, high = high, 2 * high
      2 * high  ->  2 // high
  terms that the sum leaves out are still far below its error
    square, kept = wide.multiply(x, x), digits + _SPARE_DIGITS // 2
      2  ->  3
dpsql/mechanisms/distribution.py
  budgets are at least 1 and never empty
    unit = float((variance + SLACK * int(budget.max(initial=0)) ** 2) / total_squared)
      0  ->  1
  numpy takes any negative length for the rest; the other 1 of the line is noticed
    shape = [-1 if axis == place else 1 for axis in range(len(axes))]
      1  ->  2
    drawn = noise.trees(tree_noise, leaves_last.reshape(len(exacts), -1, leaves_last.shape[-1]))
      1  ->  2
  over one is times one, of integers
    ideal = np.float64(cap) * np.ones(budget.shape)
      np.float64(cap) * np.ones(budget.shape)  ->  np.float64(cap) // np.ones(budget.shape)
  lengths were compared above
    for number, m in zip(noisy, sensitivities, strict=True)
      True  ->  False
dpsql/noise/discrete.py
  one more coin of a smaller part of the exponent: the same chance
    rounds = np.maximum(np.floor(exponent + slack), 0.0) + 1.0
      0.0  ->  1.0
      1.0  ->  2.0
  coins that floats leave open are decided by fractions
    heads = (word + 1.0) * 2.0**-53 <= middle - width
      1.0  ->  2.0
    slack = (real + centre) ** 2 / twice * _SLACK
      2  ->  3
  numpy takes any negative length for the rest
    above, below = geometric(denominator, 2 * scale.size, entropy).reshape(2, -1)
      1  ->  2
    flat = units.reshape(-1)
      1  ->  2
  more coins are decided by fractions, as they would have been
    for j in np.flatnonzero(~heads & (word * 2.0**-53 < middle + width)):
      53  ->  54
      word * 2.0 ** (-53) < middle + width  ->  word * 2.0 ** (-53) <= middle + width
  a tie is decided by fractions, as it would have been
    heads = (word + 1.0) * 2.0**-53 <= middle - width
      (word + 1.0) * 2.0 ** (-53) <= middle - width  ->  (word + 1.0) * 2.0 ** (-53) < middle - width
  powers of two again; 1, which is none here, has remainder 0
    if bound & (bound - 1) == 0:
      1  ->  2
dpsql/noise/knorm.py
  more trees are drawn than are taken
    chunk = min(BLOCK, max(fewest, (number - pools[0].shape[1]) * tree.leaves))
      number - pools[0].shape[1]  ->  number + pools[0].shape[1]
  how many trees are drawn at a time
    _FEWEST, _CHUNK = 1 << 9, 1 << 13
      1  ->  2
  numpy takes any negative length for the rest
    flat = units.reshape(-1)
      1  ->  2
  a pool more, which nothing takes from
    pools = [np.empty((len(bounds), 0, prod(arities[level:])), np.int64) for level in range(len(arities) + 1)]
      1  ->  2
dpsql/ledger/identity.py
  what stands before the first entry is any constant
    GENESIS = "0" * 64
      64  ->  65
  a pause between two tries of a lock
    time.sleep(0.02)
      0.02  ->  1.02
dpsql/ledger/rules.py
  the name of a hidden file, which only its writer reads
    return folder / f".dpsql-{store.fingerprint('mark')[:16]}"
      16  ->  17
dpsql/ledger/files.py
  the name of a file until it is whole
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
      8  ->  9
  a pause between two tries of a lock
    time.sleep(min(0.05, patience - waited))
      patience - waited  ->  patience + waited
"""
"""A module, below it each reason, below it lines of the module, below each what becomes what."""


def _read(table: str) -> dict[tuple[str, str, str, str], str]:
    found: dict[tuple[str, str, str, str], str] = {}
    path = [""] * 4
    for line in table.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        path[depth] = line.strip()
        if depth == 3:
            before, after = path[3].split("  ->  ")
            found[path[0], path[2], before, after] = path[1]
    return found


EQUIVALENT = _read(_TABLE)
"""(module, its line, what stands there, what takes its place) -> reason."""
