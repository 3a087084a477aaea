"""Mutants that no test can tell from the module as it is, each with the reason.

A search that takes other steps to the same integer, digits that are more than a proof needs, more coins of a smaller
part of the same exponent: the module gives the same answers. They are counted neither as killed nor as survivors.
"""

from __future__ import annotations

EQUIVALENT: dict[tuple[str, str, str, str], str] = {
    (
        "dpsql/budget/curve.py",
        "slow = slow + 1 if 2 * (high - low) > width and slow < MOST_SLOW else 0",
        "2 * (high - low) > width",
        "2 * (high - low) >= width",
    ): "steps of a search, not its end",
    (
        "dpsql/budget/curve.py",
        "above = (mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))) * (1 + 1e-6) + 1e-15",
        "-2 * math.log(delta)",
        "-2 // math.log(delta)",
    ): "a first guess that the loop below doubles",
    (
        "dpsql/budget/curve.py",
        "above = (mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))) * (1 + 1e-6) + 1e-15",
        "mu * mu",
        "mu // mu",
    ): "a first guess that the loop below doubles",
    (
        "dpsql/budget/curve.py",
        "guess, width = _crossing(previous, last), high - low",
        "high - low",
        "high + low",
    ): "steps of a search, not its end",
    (
        "dpsql/budget/curve.py",
        "_LOST_DIGITS = 8  # more than a sum of fewer than 10^6 terms, each rounded, can lose",
        "8",
        "9",
    ): "more digits than the proof needs",
    (
        "dpsql/budget/curve.py",
        "return _context(digits + 2 * _SPARE_DIGITS + math.ceil(cancelled))",
        "2 * _SPARE_DIGITS",
        "2 // _SPARE_DIGITS",
    ): "Mills' ratio keeps its error without spare digits, as its test shows; they are a margin",
    ("dpsql/budget/curve.py", "while over(-high) > 0:", "0", "1"): "the guess above is large enough",
    (
        "dpsql/budget/curve.py",
        "return _context(digits + 2 * _SPARE_DIGITS + math.ceil(cancelled))",
        "2",
        "3",
    ): "more digits than the proof needs",
    (
        "dpsql/budget/threshold.py",
        "high, step = high + step, 2 * step",
        "2",
        "3",
    ): "steps of a search, not its end",
    (
        "dpsql/budget/threshold.py",
        "high, low, step = low, low - step, 2 * step",
        "2",
        "3",
    ): "steps of a search, not its end",
    (
        "dpsql/budget/curve.py",
        "previous, last, slow = (high, over(high)), (low, math.nan), 0",
        "0",
        "1",
    ): "steps of a search, not its end",
    (
        "dpsql/budget/curve.py",
        "above = (mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))) * (1 + 1e-6) + 1e-15",
        "mu * math.sqrt(-2 * math.log(delta))",
        "mu // math.sqrt(-2 * math.log(delta))",
    ): "a first guess that the loop below doubles",
    (
        "dpsql/budget/threshold.py",
        "near = {keys: key_weight(keys) + 1 - sigma * _quantile(delta, keys) for keys in range(1, per_unit + 1)}",
        "sigma * _quantile(delta, keys)",
        "sigma // _quantile(delta, keys)",
    ): "a first guess that the search around it mends",
    (
        "dpsql/budget/threshold.py",
        "return all(_chance(threshold, keys, sigma2, delta) <= delta for keys in counts)",
        "_chance(threshold, keys, sigma2, delta) <= delta",
        "_chance(threshold, keys, sigma2, delta) < delta",
    ): "an upper bound in thirty more digits than delta's is never delta itself",
    (
        "dpsql/mechanisms/law.py",
        "unit = float((variance + SLACK * int(budget.max(initial=0)) ** 2) / total_squared)",
        "0",
        "1",
    ): "budgets are at least 1 and never empty",
    (
        "dpsql/noise/coins.py",
        "rounds = np.maximum(np.floor(exponent + slack), 0.0) + 1.0",
        "0.0",
        "1.0",
    ): "one more coin of a smaller part of the exponent: the same chance",
    (
        "dpsql/noise/coins.py",
        "rounds = np.maximum(np.floor(exponent + slack), 0.0) + 1.0",
        "1.0",
        "2.0",
    ): "one more coin of a smaller part of the exponent: the same chance",
    (
        "dpsql/noise/coins.py",
        "heads = (word + 1.0) * 2.0**-53 <= middle - width",
        "1.0",
        "2.0",
    ): "coins that floats leave open are decided by fractions",
    (
        "dpsql/noise/gaussian.py",
        "slack = (real + centre) ** 2 / twice * _SLACK",
        "2",
        "3",
    ): "coins that floats leave open are decided by fractions",
    (
        "dpsql/noise/knorm.py",
        "chunk = min(BLOCK, max(fewest, (number - pools[0].shape[1]) * tree.leaves))",
        "number - pools[0].shape[1]",
        "number + pools[0].shape[1]",
    ): "more trees are drawn than are taken",
    (
        "dpsql/noise/laplace.py",
        "above, below = geometric(denominator, 2 * scale.size, entropy).reshape(2, -1)",
        "1",
        "2",
    ): "numpy takes any negative length for the rest",
    (
        "dpsql/noise/laplace.py",
        "flat = units.reshape(-1)",
        "1",
        "2",
    ): "numpy takes any negative length for the rest",
    (
        "dpsql/budget/curve.py",
        "while 2 * square > odd + 2 or term > tolerance:",
        "term > tolerance",
        "term >= tolerance",
    ): "a term that equals the tolerance is smaller in the next round",
    (
        "dpsql/budget/curve.py",
        "above = (mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))) * (1 + 1e-6) + 1e-15",
        "1",
        "2",
    ): "a search that begins further above ends at the same edge",
    (
        "dpsql/budget/curve.py",
        "power, total, odd, sign = scale // divisor, 0, 1, 1",
        "0",
        "1",
    ): "units of the last of eight spare digits, as its rounded terms are",
    (
        "dpsql/budget/curve.py",
        "above = (mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))) * (1 + 1e-6) + 1e-15",
        "mu * mu / 2",
        "mu * mu * 2",
    ): "a first guess that the loop below doubles",
    (
        "dpsql/budget/curve.py",
        "if excess <= 0:",
        "0",
        "1",
    ): "both branches say the same of an excess up to 1 that floats can hold",
    (
        "dpsql/budget/curve.py",
        "if excess <= 0:",
        "excess <= 0",
        "excess < 0",
    ): "a bound in thirty more digits than delta's is never the limit itself; else it errs on the safe side",
    (
        "dpsql/budget/curve.py",
        "near = (math.sqrt(spread * spread + 2 * float(usable_epsilon)) - spread) ** 2",
        "2",
        "3",
    ): "a first guess that the loop below doubles",
    (
        "dpsql/budget/threshold.py",
        "_SPARE = 30  # digits of a tail below those of delta",
        "30",
        "31",
    ): "more digits than the proof needs",
    (
        "dpsql/budget/curve.py",
        "low, high = (probe, high) if last[1] <= 0 else (low, probe)",
        "last[1] <= 0",
        "last[1] < 0",
    ): "an excess is never 0; else it errs on the safe side",
    (
        "dpsql/budget/curve.py",
        "value = wide.subtract(upper, wide.multiply(density, _mills(distant, digits + 1, wide)))",
        "1",
        "2",
    ): "more digits than the proof needs",
    (
        "dpsql/noise/coins.py",
        "for j in np.flatnonzero(~heads & (word * 2.0**-53 < middle + width)):",
        "53",
        "54",
    ): "more coins are decided by fractions, as they would have been",
    (
        "dpsql/budget/threshold.py",
        "near = {keys: key_weight(keys) + 1 - sigma * _quantile(delta, keys) for keys in range(1, per_unit + 1)}",
        "key_weight(keys) + 1",
        "key_weight(keys) - 1",
    ): "a first guess that the search around it mends",
    ("dpsql/budget/threshold.py", "low, step = high - 1, 1", "1", "2"): "steps of a search, not its end",
    (
        "dpsql/noise/coins.py",
        "heads = (word + 1.0) * 2.0**-53 <= middle - width",
        "(word + 1.0) * 2.0 ** (-53) <= middle - width",
        "(word + 1.0) * 2.0 ** (-53) < middle - width",
    ): "a tie is decided by fractions, as it would have been",
    (
        "dpsql/ledger/identity.py",
        'GENESIS = "0" * 64',
        "64",
        "65",
    ): "what stands before the first entry is any constant",
    (
        "dpsql/budget/curve.py",
        "slow = slow + 1 if 2 * (high - low) > width and slow < MOST_SLOW else 0",
        "high - low",
        "high + low",
    ): "steps of a search, not its end",
    (
        "dpsql/budget/curve.py",
        "slow = slow + 1 if 2 * (high - low) > width and slow < MOST_SLOW else 0",
        "2",
        "3",
    ): "steps of a search, not its end",
    (
        "dpsql/budget/curve.py",
        "cancelled = min(argument * argument / 2, _natural(digits + 1)) / math.log(10)",
        "argument * argument / 2",
        "argument * argument * 2",
    ): "more digits than the proof needs",
    (
        "dpsql/ledger/marks.py",
        "return folder / f\".dpsql-{store.fingerprint('mark')[:16]}\"",
        "16",
        "17",
    ): "the name of a hidden file, which only its writer reads",
    (
        "dpsql/budget/curve.py",
        "upper = wide.multiply(density, _mills(wide.abs(near), digits + 1, wide))",
        "1",
        "2",
    ): "more digits than the proof needs",
    (
        "dpsql/mechanisms/law.py",
        "shape = [-1 if axis == place else 1 for axis in range(len(axes))]",
        "1",
        "2",
    ): "numpy takes any negative length for the rest; the other 1 of the line is noticed",
    (
        "dpsql/mechanisms/law.py",
        "for number, m in zip(noisy, sensitivities, strict=True)",
        "True",
        "False",
    ): "lengths were compared above",
    (
        "dpsql/mechanisms/law.py",
        "drawn = noise.trees(tree_noise, leaves_last.reshape(len(exacts), -1, leaves_last.shape[-1]))",
        "1",
        "2",
    ): "numpy takes any negative length for the rest; the other 1 of the line is noticed",
    ("dpsql/budget/curve.py", "_SPARE_DIGITS = 30", "30", "31"): "more digits than the proof needs",
}
"""(module, its line, what stands there, what takes its place) -> reason."""
