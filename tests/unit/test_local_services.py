"""Several services that cannot join on the device."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dpsql.client.plan import largest_weight
from dpsql.mechanisms.local import oracles, services, simulate

W1 = largest_weight(Fraction(1))


def test_several_services_are_joined_without_bias() -> None:
    rng, people = np.random.default_rng(8), 60_000
    half = largest_weight(Fraction(1, 2))
    first, second = rng.integers(0, 4, people), rng.integers(0, 3, people)
    second = np.where(first == 0, 0, second)
    tools = (oracles.Oracle("GRR", 4, half), oracles.Oracle("GRR", 3, half))
    sets = (np.array([True, True, False, False]), np.array([True, False, False]))
    scores = [
        services.grr_scores(tool, simulate.grr_reports(tool.domain, half, items, rng), chosen)
        for tool, items, chosen in zip(tools, (first, second), sets, strict=True)
    ]
    found, exact = services.joined_share(scores), float(np.mean(sets[0][first] & sets[1][second]))
    assert abs(found.share - exact) < 4.5 * found.error
    assert services.noise_ratio(tools, oracles.choose_oracle(12, W1), (2, 1)) > 2
    smaller, offset, sign = services.complemented(~sets[1])
    assert (smaller.sum(), offset, sign) == (1, 1.0, -1.0)
    assert services.complemented(sets[1])[1:] == (0.0, 1.0)
