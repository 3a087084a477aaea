"""`privacy: {cap: 4, releases: 12}`: equal shares of a cap, of which twelve fit and a thirteenth is refused."""

from __future__ import annotations

import json
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpsql import api
from dpsql.budget import Mu2, currency_at, share_of_cap
from dpsql.catalog import catalog_from_json, load_catalog
from dpsql.catalog.catalog import parse_catalog
from dpsql.central.central import publish_release
from dpsql.curator.forecast import refreshes
from dpsql.errors import BudgetExceeded, CatalogError
from dpsql.ledger.identity import Lineage, charge_grains, limit_grains
from dpsql.release import open_release
from tests.command import dpsql_command as run
from tests.people_star import CATALOG, make_people

MILLIONTH = Mu2(Fraction(1, 10**6))
VIEW = "  months: {of: sales, axes: [sales.month], measures: [count], mechanism: identity}\n"


def shop(folder: Path, privacy: str) -> Path:
    """A star with one view whose releases share a cap of 9."""
    catalog = make_people(folder, customers=20, privacy=privacy)
    text = catalog.read_text()
    catalog.write_text(text[: text.index("  months:")] + VIEW)
    return catalog


class NoDraw:
    """Noise that must not be drawn."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"noise was asked for {name}")


@given(cap=st.fractions(Fraction(1, 10), 10_000, max_denominator=1000), releases=st.integers(1, 10_000))
@example(cap=Fraction(4), releases=7)  # a seventh is no whole number of grains
def test_so_many_fit_and_one_more_does_not(cap: Fraction, releases: int) -> None:
    fits(cap, Fraction(0), releases)


@pytest.mark.parametrize("releases", [1, 7, 12, 365])
def test_shares_of_mu2_fit_too(releases: int) -> None:
    fits(Fraction(4), Fraction(1, 10**6), releases)


def fits(cap: Fraction, delta: Fraction, releases: int) -> None:
    each, limit = (
        share_of_cap(cap, currency_at(delta, Fraction(0)), releases),
        Lineage("x", "row", "add_remove", delta, cap).limit,
    )
    assert limit - releases * each < Fraction(releases, 10**27)
    assert charge_grains(each) * releases <= limit_grains(limit) < charge_grains(each) * (releases + 1)


@pytest.mark.slow
@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_twelve_are_published_and_the_thirteenth_is_refused_before_a_draw(tmp_path: Path, delta: str) -> None:
    file = shop(tmp_path, f"releases: 12, delta: {delta}, neighbours: replace_one")
    catalog = load_catalog(file)
    currency = currency_at(catalog.privacy.delta, catalog.privacy.key_delta)
    each = currency.counted(Fraction(9)) / 12
    for number in range(12):
        plan = refreshes(catalog)
        assert plan is not None and (plan.planned, plan.left) == (12, 12 - number)
        done = api.publish(file, tmp_path / f"{number}.dpsql")
        assert float(done.receipt.charged) == pytest.approx(float(each), rel=1e-20)
    spent = api.budget(file).lineages[0]
    assert (
        spent.spent == currency.counted(Fraction(9))
        if not catalog.privacy.delta
        else spent.left < Fraction(1, 10**26)
    )
    with pytest.raises(BudgetExceeded, match="a cap never rises"):
        publish_release(catalog, tmp_path / "13.dpsql", noise=NoDraw(), key=bytes(32))  # type: ignore[arg-type]
    assert not list(tmp_path.glob("*13.dpsql*")) and len(api.budget(file).lineages[0].entries) == 12
    told = run("plan", file).stdout
    assert "none is left: 9 is spent, and publish refuses" in told


@pytest.mark.usefixtures("publishes")
def test_plan_says_when_the_cap_ends(tmp_path: Path) -> None:
    file = shop(tmp_path, "releases: 3, delta: 1e-6")
    each = float(MILLIONTH.epsilon(share_of_cap(Fraction(9), MILLIONTH, 3)))
    assert each > 3  # epsilons of shares do not add up under a delta
    start = f"refreshes: each spends epsilon {each:.4g}, one of 3 equal shares of 9 at delta 1e-06; "
    assert f"{start}3 left, 0 spent; the cap ends with the 3rd from now\n" in run("plan", file).stdout
    bought = ("buy", file, "SELECT COUNT(*) FROM sales", "--epsilon", "0.5", "-o", tmp_path / "bought.dpsql")
    assert run(*bought).returncode == 0
    assert "2 left, 0.5 spent; the cap ends with the 2nd from now" in run("plan", file).stdout
    assert json.loads(run("plan", file, "--json").stdout)["refreshes"]["left"] == 2
    assert run("publish", file, "-o", tmp_path / "first.dpsql").returncode == 0
    for release in ("first", "bought"):
        checked = run("audit", tmp_path / f"{release}.dpsql", "--catalog", file, "--samples", "0")
        assert "ok   charged to the ledger" in checked.stdout, checked.stdout
        assert "ok   the catalog is the one it was made from" in checked.stdout, checked.stdout
    with closing(open_release(tmp_path / "first.dpsql")) as first:
        assert float(Fraction(first.meta.privacy.epsilon)) == pytest.approx(each)


PRIVACY = {
    "releases: 12, epsilon: 1": "`epsilon` is not `cap` shared by `releases: 12`; remove one of them",
    "releases: 12, epsilon: 3/4, delta: 1e-6": "both say what a release spends; remove one of them",
    "releases: 0": "greater than or equal to 1",
    "delta: 0": "`epsilon` is missing; write what one release spends, or how many `releases` share the cap",
}


@pytest.mark.parametrize("privacy", PRIVACY)
def test_what_contradicts_itself_is_refused(privacy: str) -> None:
    with pytest.raises(CatalogError) as caught:
        parse_catalog(CATALOG.replace("PRIVACY", privacy).replace("BOUND", "3"))
    assert PRIVACY[privacy] in str(caught.value)


def test_one_share_said_twice_is_one_share() -> None:
    both, one = (
        parse_catalog(CATALOG.replace("PRIVACY", privacy).replace("BOUND", "3"))
        for privacy in ("releases: 12, epsilon: 3/4", "releases: 12")
    )
    assert both.privacy.epsilon == Fraction(3, 4) and one.privacy.epsilon is None
    assert catalog_from_json(one.to_json()).privacy == one.privacy


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            "stream: {column: sales.day, horizon: 9}\n",
            "a stream is charged once, for all of its batches; write `epsilon`",
        ),
        ("collection: {tau: 1}\n", "a person's report draws on no cap; write `epsilon`"),
    ],
)
def test_what_is_not_refreshed_takes_an_epsilon(more: str, why: str) -> None:
    text = CATALOG.replace("PRIVACY", "releases: 12").replace("BOUND", "3")
    day = "day: {type: date, lower: 2025-01-01, upper: 2025-12-31}, store: {"
    text = text.replace(", people", "").replace("store: {", day)
    with pytest.raises(CatalogError, match=r"privacy\.releases") as caught:
        parse_catalog(text + more)
    assert why in str(caught.value)
