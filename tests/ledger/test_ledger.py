"""The ledger: what it refuses, what it returns, what it reports, and how it notices that it was changed."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

from dpsql.budget import Epsilon
from dpsql.budget.curve import epsilon_of, mu2_of
from dpsql.central.central import Published
from dpsql.errors import (
    BudgetExceeded,
    IntegrityError,
    InternalError,
    LineageError,
    MachineFault,
    OperationalError,
    PrivacyError,
    ReleaseExists,
)
from dpsql.faults import BEGUN as BEGUN_WORDS
from dpsql.interfaces.cli.curate import budget_json, budget_text
from dpsql.ledger import store
from dpsql.ledger.files import beside
from dpsql.ledger.identity import (
    Label,
    Lineage,
    Receipt,
    Recovery,
    ReleaseSpend,
    SourceTable,
    SpendLine,
    new_release_id,
)
from dpsql.ledger.publish import Draft, KillPoint, Order, opened, publish_file, published_before, settle
from dpsql.ledger.store import budget_report

pytestmark = pytest.mark.usefixtures("publishes")

MILLIONTH = Fraction(1, 10**6)
SHOP = Lineage("shop", "customer.customer_id", "add_remove", Fraction(0), Fraction(4))


class Curator:
    """A folder with a ledger; counts the draws."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ledger, self.draws = folder, folder / ".dpsql" / "ledger.duckdb", 0

    def publish(
        self,
        label: str,
        epsilon: str | Fraction = "0.4",
        *,
        lineage: Lineage = SHOP,
        spec: str = "spec",
        source: str = "data",
        currency: str = "epsilon",
        tables: tuple[str, ...] = ("sales", "customer"),
        kill_point: KillPoint = lambda step: None,
        build: Callable[[Path], object] | None = lambda path: path.write_bytes(os.urandom(64)),
        draw: Callable[[Draft], None] = lambda draft: None,
        lines: tuple[SpendLine, ...] = (),
        **others: object,
    ) -> Receipt:
        def drawn(draft: Draft) -> None:
            self.draws += 1
            draw(draft)
            if build is not None:
                build(draft.file)

        line = SpendLine("view demand", Fraction(epsilon), currency)

        def digests() -> dict[str, tuple[str, ...]]:
            return {name: (f"{name}: {source}",) for name in tables}

        name = Label(lineage.name, label, spec)
        order = Order(name, self.folder / f"{label}.dpsql", new_release_id(), drawn, digests)
        places = tuple(SourceTable(table, (table,)) for table in tables)
        spend = ReleaseSpend(lineage, Fraction(epsilon), lines or (line,), places)
        return publish_file(self.ledger, spend, replace(order, **others), kill_point)

    def left_over(self) -> list[str]:
        names = [path.name for path in self.folder.iterdir() if path.name.endswith(".copy")]
        return names + [path.name for path in self.ledger.parent.iterdir() if path.name.endswith(".draft")]


@pytest.fixture
def curator(tmp_path):
    return Curator(tmp_path)


def test_ten_releases_of_a_tenth_use_up_the_cap_exactly(curator):
    for i in range(10):
        receipt = curator.publish(f"r{i}")
    assert receipt.left == 0 and receipt.charged == Fraction(2, 5)
    with pytest.raises(
        BudgetExceeded, match=r"costs epsilon 1e-20; the cap of lineage .* is 4, and 0 epsilon left of it"
    ):
        curator.publish("r10", Fraction(1, 10**20))
    assert curator.draws == 10 and curator.left_over() == []


DELTA = Fraction(1, 10**7)
KEYED = Lineage("shop", "customer.customer_id", "add_remove", 2 * DELTA, Fraction(4), DELTA)
ROUNDS = tuple(SpendLine(f"keys {part}", Fraction(1, 100), "mu2", DELTA / 2) for part in "ab")
VIEW = SpendLine("view demand", Fraction(1, 50), "mu2")


def keyed(curator: Curator, label: str, lines: tuple[SpendLine, ...], **others: object) -> Receipt:
    """A release whose lines, some of them key rounds, are charged a twentieth in all."""
    return curator.publish(label, "0.05", lineage=KEYED, currency="mu2", lines=lines, **others)


def test_chosen_keys_spend_their_delta_to_the_last_grain(curator: Curator) -> None:
    assert keyed(curator, "half", ROUNDS[:1]).drawn
    with pytest.raises(BudgetExceeded, match="no delta left to choose keys"):
        keyed(curator, "beyond", ROUNDS)
    assert keyed(curator, "rest", ROUNDS[1:]).drawn
    with pytest.raises(BudgetExceeded, match="no delta left to choose keys"):
        keyed(curator, "none", ROUNDS[:1])


def test_a_release_is_charged_what_its_catalog_says_and_no_plan_costs_more(curator: Curator) -> None:
    assert keyed(curator, "a", (*ROUNDS[:1], VIEW)).charged == Fraction(1, 20)
    with pytest.raises(InternalError, match="more than its charge"):
        curator.publish("b", "0.01", lineage=KEYED, currency="mu2", lines=(VIEW,))
    assert curator.draws == 1


def test_a_release_that_was_charged_and_not_shown_is_finished_and_said(curator: Curator) -> None:
    def killed(step: str) -> None:
        if step == "readable":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        curator.publish("a", kill_point=killed)
    again = curator.publish("a")
    assert again.recovery == Recovery(finished=again.path) and not again.drawn
    with pytest.raises(KeyboardInterrupt):
        curator.publish("b", kill_point=lambda step: killed("readable" if step == "renamed" else step))
    shown = curator.publish("b")
    assert shown.recovery == Recovery(finished=shown.path) and curator.draws == 2


def fails(path: Path) -> None:
    path.write_text("a draw")
    raise ValueError("the draw failed")


def test_a_reservation_is_taken_up_again_for_nothing(curator: Curator) -> None:
    with pytest.raises(ValueError, match="the draw failed"):
        curator.publish("a", build=fails)
    assert curator.left_over() == []
    (reserved,) = budget_report(curator.ledger).lineages[0].entries
    assert (reserved.state, reserved.cost, reserved.present) == ("reserved", Fraction(2, 5), False)
    with pytest.raises(ReleaseExists, match="reserved with another specification"):
        curator.publish("a", spec="other")
    again = curator.publish("a", target=curator.folder / "b.dpsql")
    assert again.drawn and again.taken_up and not again.ended and again.left == 4 - Fraction(2, 5)
    (sealed,) = budget_report(curator.ledger).lineages[0].entries
    assert (sealed.state, sealed.release_id, sealed.path) == ("sealed", reserved.release_id, again.path)


def test_the_last_of_a_cap_is_taken_up_too(curator: Curator) -> None:
    with pytest.raises(ValueError):
        curator.publish("a", "4", build=fails)
    with pytest.raises(BudgetExceeded):
        curator.publish("b", "0.1")
    assert curator.publish("a", "4").left == 0


@pytest.mark.parametrize(("begun", "deltas"), [(["keys"], 1), (["keys", "all"], 1), (["all"], 0)])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError])
def test_what_had_begun_is_never_taken_up(
    curator: Curator, begun: list[str], deltas: int, stop: type[BaseException]
) -> None:
    """The whole charge and delta stay, since key rounds are priced by all of it; the label is charged anew."""

    def stopped(draft: Draft) -> None:
        for step in begun:
            draft.begin(keys=step == "keys")
        draft.file.write_text("a draw")
        raise stop("city 1")

    lines = (*ROUNDS[:deltas], VIEW)
    with pytest.raises(KeyboardInterrupt if stop is KeyboardInterrupt else MachineFault) as caught:
        keyed(curator, "a", lines, **{"build": None, "draw": stopped})
    if stop is ValueError:
        assert str(caught.value).endswith(BEGUN_WORDS) and "city" not in str(caught.value)
    assert curator.left_over() == []
    (lineage,) = budget_report(curator.ledger).lineages
    assert (lineage.spent, lineage.key_spent) == (Fraction(1, 20), deltas * DELTA / 2)
    again = keyed(curator, "a", lines)
    assert not again.taken_up and again.ended == Fraction(1, 20)
    (lineage,) = budget_report(curator.ledger).lineages
    assert (lineage.spent, lineage.key_spent) == (Fraction(1, 10), 2 * deltas * DELTA / 2)
    assert [entry.state for entry in lineage.entries] == ["ended", "sealed"]
    with pytest.raises(BudgetExceeded if deltas else ReleaseExists):
        keyed(curator, "b" if deltas else "a", lines, **({} if deltas else {"spec": "other"}))


def test_no_two_key_rounds_are_drawn_on_one_charge(curator: Curator) -> None:
    def twice(draft: Draft) -> None:
        draft.begin(keys=True)
        draft.begin(keys=True)

    with pytest.raises(MachineFault, match="InternalError"):
        keyed(curator, "a", (*ROUNDS[:1], VIEW), **{"build": None, "draw": twice})
    (lineage,) = budget_report(curator.ledger).lineages
    assert [entry.state for entry in lineage.entries] == ["ended"]


def test_a_release_is_private_until_it_is_read_only(curator):
    receipt = curator.publish("a")
    assert stat.S_IMODE(receipt.path.stat().st_mode) == 0o444
    assert stat.S_IMODE(curator.ledger.stat().st_mode) == 0o600
    modes = []
    curator.publish("b", build=lambda path: modes.append(path.parent.stat().st_mode) or path.write_text("x"))
    assert stat.S_IMODE(modes[0]) == 0o700


def test_the_ledger_and_its_log_are_never_open_to_others(curator, monkeypatch):
    folder, seen = curator.ledger.parent, {}

    def look(step="made"):
        for path in folder.rglob("*"):
            closed = path.parent != folder and not path.parent.stat().st_mode & 0o077
            if path.is_file() and path.suffix != ".lock":
                seen[step, path.name] = closed or not path.stat().st_mode & 0o077

    def entropy():
        look()
        return source()

    source = store.os_entropy
    monkeypatch.setattr(store, "os_entropy", entropy)
    old = os.umask(0)
    try:
        folder.mkdir(mode=0o777)
        curator.publish("a", kill_point=look)
        curator.publish("b", kill_point=look)
    finally:
        os.umask(old)
    assert all(seen.values()), seen
    assert {("made", "ledger.duckdb"), ("sealed: committed", "ledger.duckdb.wal")} <= {*seen}


def test_same_specification_and_label_is_returned_without_a_draw(curator):
    first = curator.publish("a")
    again = curator.publish("a", target=curator.folder / "other.dpsql")
    assert not again.drawn and again.charged == 0 and again.left == first.left == Fraction(18, 5)
    assert (again.release_id, again.copied, again.sha256) == (first.release_id, first.path, first.sha256)
    first.path.rename(curator.folder / "moved.dpsql")
    assert curator.publish("a", target=curator.folder / "moved.dpsql").path.name == "moved.dpsql"
    assert curator.draws == 1


def test_a_label_stands_for_one_specification_whatever_the_data(curator):
    first = curator.publish("a")
    with pytest.raises(ReleaseExists, match="another specification"):
        curator.publish("a", spec="other")
    assert curator.publish("a", source="other") == replace(first, drawn=False, charged=Fraction(0))
    (curator.folder / "a.dpsql").unlink()
    with pytest.raises(ReleaseExists, match="gone or changed"):
        curator.publish("a")
    assert curator.draws == 1


def test_a_label_asked_for_elsewhere_is_copied_there(curator):
    (curator.folder / "x").mkdir()
    (curator.folder / "y").mkdir()
    (curator.folder / "y" / "b.dpsql").write_text("something else")
    first, second = curator.folder / "x" / "a.dpsql", curator.folder / "y" / "a.dpsql"
    curator.publish("a", target=first)
    receipt = curator.publish("a", target=second)
    assert (receipt.drawn, receipt.charged, receipt.path, receipt.copied) == (False, 0, second, first)
    assert second.read_bytes() == first.read_bytes() and stat.S_IMODE(second.stat().st_mode) == 0o444
    assert curator.publish("a", target=second).copied is None
    curator.publish("b", target=curator.folder / "x" / "b.dpsql")
    with pytest.raises(ReleaseExists, match="is not the release of label 'b', which is"):
        curator.publish("b", target=curator.folder / "y" / "b.dpsql")
    first.unlink()
    with pytest.raises(ReleaseExists, match="its file is gone"):
        curator.publish("a", target=curator.folder / "a.dpsql")
    assert curator.draws == 2


def test_an_occupied_target(curator):
    curator.publish("a")
    with pytest.raises(ReleaseExists, match="contains the release 'a'"):
        curator.publish("b", target=curator.folder / "a.dpsql")
    (curator.folder / "c.dpsql").write_text("not ours")
    with pytest.raises(IntegrityError, match="does not know it"):
        curator.publish("c")


def test_a_public_release_that_the_ledger_does_not_know_stops_spending(curator):
    charged = curator.publish("a")
    known = (charged.path, charged.release_id)
    curator.publish("b", public=[known])
    stranger = (curator.folder / "stranger.dpsql", "f" * 32)
    with pytest.raises(IntegrityError, match="does not know"):
        curator.publish("c", public=[known, stranger])


@pytest.mark.parametrize(
    "fields",
    [{"unit": "row"}, {"neighbours": "replace_one"}, {"delta": MILLIONTH}, {"cap": Fraction("4.01")}],
)
def test_a_lineage_is_fixed_at_first_use(curator, fields):
    curator.publish("a")
    with pytest.raises(LineageError, match="shop"):
        curator.publish("b", lineage=replace(SHOP, **fields))


def test_a_cap_may_fall_but_not_rise_again(curator):
    curator.publish("a")
    assert curator.publish("b", lineage=replace(SHOP, cap=Fraction(1))).left == Fraction(1, 5)
    with pytest.raises(LineageError, match="caps never rise"):
        curator.publish("c")
    with pytest.raises(BudgetExceeded):
        curator.publish("c", lineage=replace(SHOP, cap=Fraction(1, 2)))


def test_a_table_belongs_to_one_lineage(curator):
    curator.publish("a")
    with pytest.raises(LineageError, match="'customer' belongs to lineage 'shop'"):
        curator.publish("b", lineage=replace(SHOP, name="fresh"), tables=("visits", "customer"))
    assert curator.publish("b", lineage=replace(SHOP, name="fresh"), tables=("visits",)).drawn


def test_a_copy_of_a_table_belongs_to_the_lineage_of_its_rows(curator):
    curator.publish("a", tables=("sales",))
    copy = {"tables": ("copy",), "digests": lambda: {"copy": ("sales: data",)}}
    with pytest.raises(LineageError, match="'copy' has the same rows as a table of lineage 'shop'"):
        curator.publish("b", lineage=replace(SHOP, name="fresh"), **copy)
    assert curator.draws == 1 and curator.publish("b", **copy).drawn


def test_a_lineage_takes_lines_of_its_own_currency(curator):
    lineage = replace(SHOP, name="z", delta=MILLIONTH, cap=Fraction(1))
    with pytest.raises(LineageError, match="counts mu2 and cannot record a spend in epsilon"):
        curator.publish("a", "0.1", lineage=lineage)
    with pytest.raises(LineageError, match="counts epsilon and cannot record a spend in mu2"):
        curator.publish("b", "0.1", currency="mu2")
    assert curator.draws == 0


def test_a_cap_is_an_epsilon_at_delta_and_holds_what_mu2_allows(curator):
    """The cap in mu^2, read as a number, would be epsilon 18.9: 164 releases of epsilon 1 instead of 12."""
    lineage, one = replace(SHOP, delta=MILLIONTH), mu2_of(Fraction(1), MILLIONTH)
    fits = int(mu2_of(Fraction(4), MILLIONTH) / one)
    for i in range(fits):
        receipt = curator.publish(f"r{i}", one, lineage=lineage, currency="mu2")
    assert fits == 12 and epsilon_of(fits * one, MILLIONTH) <= 4 < epsilon_of((fits + 1) * one, MILLIONTH)
    assert 0.999 < receipt.charged_epsilon <= 1 and receipt.left_epsilon < 1
    left = f"{float(receipt.left_epsilon):.12g}"
    with pytest.raises(
        BudgetExceeded, match=f"costs epsilon 1.*is 4 at delta 1e-06, and {left} epsilon left of it"
    ):
        curator.publish("more", one, lineage=lineage, currency="mu2")
    assert (
        curator.publish("rest", mu2_of(receipt.left_epsilon, MILLIONTH), lineage=lineage, currency="mu2").left
        >= 0
    )


def test_one_release_of_the_whole_cap_fits(curator):
    for cap in (Fraction(1), Fraction(1, 3), Fraction("0.1"), Fraction(20)):
        lineage = replace(SHOP, name=str(cap), delta=MILLIONTH, cap=cap)
        whole = mu2_of(cap, MILLIONTH)
        made = curator.publish(
            f"r{float(cap):g}", whole, lineage=lineage, currency="mu2", tables=(f"table {cap}",)
        )
        assert made.left == 0 == made.left_epsilon


def test_a_lineage_keeps_its_delta(curator):
    lineage = replace(SHOP, delta=MILLIONTH)
    curator.publish("a", "0.001", lineage=lineage, currency="mu2")
    for delta in (Fraction(0), MILLIONTH / 10, MILLIONTH * 10):
        with pytest.raises(LineageError, match="was opened with delta 1e-06, not"):
            currency = "mu2" if delta else "epsilon"
            curator.publish("b", "0.001", lineage=replace(SHOP, delta=delta), currency=currency)


def test_report_under_a_delta(curator):
    lineage, one = replace(SHOP, delta=MILLIONTH), mu2_of(Fraction(1), MILLIONTH)
    for label in "ab":
        curator.publish(label, one, lineage=lineage, currency="mu2")
    report = budget_report(curator.ledger)
    (shop,) = report.lineages
    assert (shop.spent, shop.left) == (2 * one, mu2_of(Fraction(4), MILLIONTH) - 2 * one)
    assert shop.spent_epsilon == epsilon_of(2 * one, MILLIONTH)
    assert (
        mu2_of(shop.left_epsilon, MILLIONTH) <= shop.left < mu2_of(shop.left_epsilon + MILLIONTH, MILLIONTH)
    )
    (told,) = budget_json(report)["lineages"]
    assert (told["currency"], told["delta"], told["cap"]) == ("mu2", "1/1000000", "4")
    assert told["mu2"] == {"cap": str(lineage.limit), "spent": str(shop.spent), "left": str(shop.left)}
    first, second, *_ = budget_text(report).splitlines()
    assert first.startswith(
        "shop: 1.455 of 4 epsilon spent at delta 1e-06, 3.628 left (unit customer.customer_id"
    )
    assert (
        second == "  mu^2 0.1121 of 0.702 spent, 0.5899 left: under a delta mu^2 adds up and epsilon does not"
    )


def test_an_older_ledger_is_refused_in_one_sentence(curator):
    curator.publish("a")
    with duckdb.connect(str(curator.ledger)) as connection:
        connection.execute("UPDATE meta SET value = 'dpsql-ledger-1' WHERE key = 'format'")
        connection.execute("ALTER TABLE lineage DROP COLUMN delta")
    with pytest.raises(IntegrityError, match=r"not a ledger of this version of dpsql.*name another file"):
        curator.publish("b")


def test_the_file_refuses_a_charge_that_the_rules_would_let_through(curator, monkeypatch):
    """The counter row has a CHECK of its own: a defect of the rules charges nothing beyond the cap."""
    curator.publish("a", "3.8")
    monkeypatch.setattr("dpsql.ledger.rules.check_spend", lambda *_, **__: None)
    with pytest.raises(BudgetExceeded, match=r"the ledger refused a spend of 2/5 on lineage 'shop'"):
        curator.publish("b", "0.4")
    assert not (curator.folder / "b.dpsql").exists()
    monkeypatch.undo()
    assert curator.publish("c", "0.2").left == 0


def test_spends_must_be_positive(curator):
    with pytest.raises(PrivacyError, match="above 0"):
        curator.publish("a", "0")
    with pytest.raises(PrivacyError, match="above 0"):
        ReleaseSpend(SHOP, Fraction(1), (), ()).check()


def test_a_build_that_fails_leaves_nothing_and_costs_once(curator):
    def broken(path):
        path.write_text("half a draw")
        raise KeyboardInterrupt

    with pytest.raises(OperationalError, match="choose another output"):
        curator.publish("a", target=curator.folder / "absent" / "a.dpsql")
    assert budget_report(curator.ledger).lineages == ()
    with pytest.raises(KeyboardInterrupt):
        curator.publish("a", build=broken)
    with pytest.raises(InternalError, match="one closed file"):
        curator.publish("a", build=lambda path: None)
    with pytest.raises(InternalError, match="one closed file"):
        curator.publish("a", build=lambda path: [path.with_name(n).touch() for n in (path.name, "a.wal")])
    assert curator.left_over() == [] and not (curator.folder / "a.dpsql").exists()
    (lineage,) = budget_report(curator.ledger).lineages
    assert lineage.spent == Fraction(2, 5) and curator.publish("a").left == 4 - Fraction(2, 5)


def test_a_release_id_is_used_once(curator):
    curator.publish("a", release_id="0" * 32)
    with pytest.raises(InternalError, match="release id"):
        curator.publish("b", release_id="0" * 32)


def test_report(curator):
    assert budget_report(curator.ledger).lineages == ()
    curator.publish("a")
    curator.publish("b", "1/3").path.unlink()
    (shop,) = budget_report(curator.ledger).lineages
    assert (shop.lineage, shop.spent, shop.left) == (SHOP, Fraction(11, 15), Fraction(49, 15))
    assert [(e.label, e.cost, e.present) for e in shop.entries] == [
        ("a", Fraction(2, 5), True),
        ("b", Fraction(1, 3), False),
    ]
    assert shop.entries[1].lines == (SpendLine("view demand", Fraction(1, 3), "epsilon"),)


def test_the_source_digest_is_not_stored(curator):
    curator.publish("a", source="digest-of-the-raw-rows")
    with duckdb.connect(str(curator.ledger), read_only=True) as connection:
        stored = str(connection.execute("SELECT * FROM entry").fetchall())
    assert "digest-of-the-raw-rows" not in stored


TAMPER = {
    "label": "UPDATE entry SET label = 'x' WHERE sequence = 1",
    "cost": "UPDATE entry SET cost = '1/100' WHERE sequence = 2",
    "counter": "UPDATE lineage SET spent = 0",
    "cap": "UPDATE lineage SET cap = '8'",
    "ceiling": "UPDATE lineage SET ceiling = ceiling * 2",
    "delta": "UPDATE lineage SET delta = '1/10'",
    "unit": "UPDATE lineage SET unit = 'row'",
    "removed last": "DELETE FROM entry WHERE sequence = 3",
    "removed middle": "DELETE FROM entry WHERE sequence = 2",
    "removed all": "DELETE FROM entry; DELETE FROM lineage",
    "format": "UPDATE meta SET value = 'other' WHERE key = 'format'",
    "table": "DROP TABLE lineage",
}


@pytest.mark.parametrize("statement", TAMPER.values(), ids=TAMPER)
def test_a_changed_ledger_stops_spending(curator, statement):
    for label in "abc":
        curator.publish(label)
    with duckdb.connect(str(curator.ledger)) as connection:
        connection.execute(statement)
    for attempt in (lambda: curator.publish("d"), lambda: budget_report(curator.ledger)):
        with pytest.raises(IntegrityError, match="restore the ledger"):
            attempt()
    assert curator.draws == 3


def test_an_old_copy_a_missing_head_and_a_missing_ledger_stop_spending(curator):
    curator.publish("a")
    curator.publish("b")
    old, head = curator.ledger.read_bytes(), curator.ledger.with_name("ledger.duckdb.head")
    for label in "cd":
        curator.publish(label)
    new = curator.ledger.read_bytes()
    curator.ledger.write_bytes(old)
    with pytest.raises(IntegrityError, match="has 4 entries, its head 8"):
        curator.publish("e")
    curator.ledger.unlink()
    with pytest.raises(IntegrityError, match="is gone"):
        curator.publish("e")
    curator.ledger.write_bytes(new)
    for text in ('{"sequence": 8, "hash": "0"}', "{", "[]"):
        head.write_text(text)
        with pytest.raises(IntegrityError, match="head"):
            curator.publish("e")
    head.unlink()
    with pytest.raises(IntegrityError, match="head"):
        curator.publish("e")


def test_keys_need_a_lineage_that_was_opened_with_their_delta(curator):
    millionth = replace(SHOP, delta=MILLIONTH)
    curator.publish("a", currency="mu2", epsilon="0.01", lineage=millionth)
    with pytest.raises(LineageError, match="opened without `key_delta`"):
        curator.publish(
            "b", currency="mu2", epsilon="0.01", lineage=replace(millionth, key_delta=MILLIONTH / 10)
        )


def test_a_draw_whose_file_is_gone_after_its_charge_is_reported_as_lost(curator):
    """A crash between the commit and the rename, and somebody who clears folders."""

    def crash(step: str) -> None:
        if step == "sealed: committed":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        curator.publish("a", kill_point=crash)
    for file in curator.folder.rglob("a.dpsql"):
        file.unlink()
    with opened(curator.ledger) as (store, _):
        assert settle(store) == Recovery(lost=curator.folder / "a.dpsql")
        assert settle(store) == Recovery()


def test_a_file_that_is_no_ledger(curator):
    curator.publish("a")
    curator.ledger.write_text("not a database")
    with pytest.raises(OperationalError, match="cannot be opened"):
        curator.publish("b")


def test_a_draft_of_nobody_is_destroyed(curator):
    curator.publish("a")
    stranger = curator.ledger.with_name(f"{curator.ledger.name}.{'0' * 32}.draft")
    stranger.mkdir()
    (stranger / "b.dpsql").write_text("a draw")
    with opened(curator.ledger) as (store, _):
        assert settle(store) == Recovery(removed=stranger)
    assert not stranger.exists() and (curator.folder / "a.dpsql").exists()


def test_recovery_without_a_crash_finds_nothing(curator):
    assert curator.publish("a").recovery == Recovery()
    assert curator.publish("a").recovery == Recovery()


@pytest.mark.parametrize(
    ("recovery", "words"),
    [
        (Recovery(), "published"),
        (Recovery(finished=Path("a.dpsql")), "a.dpsql is now in place"),
        (Recovery(lost=Path("b.dpsql")), "stays charged but its file b.dpsql is gone"),
        (Recovery(removed=Path(".c")), "its draw was destroyed"),
    ],
)
def test_recovery_is_said(recovery, words):
    receipt = Receipt("id", Path("x.dpsql"), "0" * 64, True, Fraction(1), Fraction(3), Epsilon(), recovery)
    assert words in Published(Path("x.dpsql"), receipt, 2, 10).summary().splitlines()[0]


@pytest.mark.usefixtures("publishes")
def test_a_label_is_looked_up_only_where_a_ledger_is_and_never_beside_a_lost_one(tmp_path: Path) -> None:
    curator, name = Curator(tmp_path), Label("shop", "a", "spec")
    assert published_before(curator.ledger, name, tmp_path / "a.dpsql") is None
    assert not curator.ledger.exists()
    curator.publish("a")
    receipt = published_before(curator.ledger, name, tmp_path / "a.dpsql")
    assert receipt is not None and receipt.path == tmp_path / "a.dpsql"
    beside(curator.ledger, ".head").rename(tmp_path / "head")
    with pytest.raises(IntegrityError):
        published_before(curator.ledger, name, tmp_path / "a.dpsql")
    (tmp_path / "head").rename(beside(curator.ledger, ".head"))
    curator.ledger.unlink()
    with pytest.raises(IntegrityError):
        published_before(curator.ledger, name, tmp_path / "a.dpsql")


@pytest.mark.usefixtures("publishes")
def test_a_head_may_lie_one_row_behind_and_no_more(tmp_path: Path) -> None:
    curator, heads = Curator(tmp_path), []
    for label in "abc":
        curator.publish(label)
        heads.append(beside(curator.ledger, ".head").read_bytes())
    beside(curator.ledger, ".head").write_bytes(heads[0])
    with pytest.raises(IntegrityError, match="has 6 entries, its head 2"):
        curator.publish("d")
    beside(curator.ledger, ".head").write_bytes(heads[2])
    with opened(curator.ledger) as (store, _):
        behind = {"sequence": 5, "hash": store.entries[4].hash}
    beside(curator.ledger, ".head").write_text(json.dumps(behind))
    assert curator.publish("d").drawn
