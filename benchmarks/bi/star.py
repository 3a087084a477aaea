"""A made-up star of hotel bookings that end today, so that statements by the clock have something to count.

    booking -> hotel -> city     public
    booking -> guest             private

Times are whole hours, the grain of `booked_at`; every value lies inside its declared domain, whose ends occur.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.answers.clinic import exact_release
from dpsql.executor.engine import ReleaseEngine

if TYPE_CHECKING:
    import psycopg

DAYS, GUESTS, BOOKINGS, HOTELS = 500, 900, 9000, 24
CHANNELS = ("web", "app", "phone", "desk")
COUNTRIES = ("Chile", "Ghana", "India", "Japan", "Latvia", "Peru")
TIERS = ("basic", "silver", "gold")
CITIES = (
    ("Accra", "Africa"), ("Bogota", "America"), ("Cairo", "Africa"), ("Delhi", "Asia"), ("Lima", "America"),
    ("Osaka", "Asia"), ("Quito", "America"), ("Riga", "Europe"),
)  # fmt: skip

CATALOG = """
dpsql: 1
name: lodging
source: {{kind: parquet, root: data, tables: {{booking: booking.parquet, guest: guest.parquet, hotel: hotel.parquet,
  city: city.parquet}}}}
privacy: {{lineage: lodging, cap: 10000, unit: guest.guest_id, epsilon: 10000}}
tables:
  booking:
    role: fact
    foreign_keys: {{guest_id: guest, hotel_id: hotel}}
    max_ids: 60
    columns:
      booked_at: {{type: timestamp, grain: hour, lower: "{first} 00:00:00", upper: "{last} 23:00:00"}}
      checkin_on: {{type: date, lower: {first}, upper: {last}}}
      channel: {{type: string, categories: [web, app, phone, desk], nullable: true, out_of_domain: drop}}
      cancelled: {{type: bool}}
      party: {{type: int, lower: 1, upper: 6}}
      nights: {{type: int, lower: 1, upper: 21, measure: true}}
      price: {{type: decimal, scale: 2, lower: 0, upper: 3000, measure: true}}
  guest:
    role: dimension
    key: guest_id
    private: true
    columns:
      age: {{type: int, lower: 18, upper: 89}}
      country: {{type: string, categories: [Chile, Ghana, India, Japan, Latvia, Peru], out_of_domain: drop}}
      tier: {{type: string, categories: [basic, silver, gold], out_of_domain: drop}}
  hotel:
    role: dimension
    key: hotel_id
    private: false
    foreign_keys: {{city_id: city}}
    columns: {{name: {{type: string}}, stars: {{type: int}}}}
  city:
    role: dimension
    key: city_id
    private: false
    columns: {{city: {{type: string}}, continent: {{type: string}}}}
views:
  hours: {{of: booking, axes: [booking.booked_at, booking.channel], measures: [count, booking.price]}}
  days: {{of: booking, axes: [booking.checkin_on, booking.channel, guest.tier],
    measures: [count, booking.price, booking.nights]}}
  hotels: {{of: booking, axes: [{{axis: hotel, by: [hotel_id]}}, booking.channel, booking.cancelled, booking.party],
    measures: [count, booking.price, booking.nights]}}
  stays: {{of: booking, axes: [booking.checkin_on, {{axis: hotel, by: [hotel_id]}}, booking.channel],
    measures: [count]}}
  people: {{of: booking, axes: [guest.age, guest.tier, booking.cancelled, booking.party],
    measures: [count, booking.price, booking.nights]}}
  guests: {{of: guest, axes: [guest.age, guest.country, guest.tier], measures: [count]}}
"""

TABLES = {
    "city": "city_id INT, city VARCHAR, continent VARCHAR",
    "hotel": "hotel_id INT, name VARCHAR, stars INT, city_id INT",
    "guest": "guest_id INT, age INT, country VARCHAR, tier VARCHAR",
    "booking": "guest_id INT, hotel_id INT, booked_at TIMESTAMP, checkin_on DATE, channel VARCHAR, cancelled BOOLEAN, "
    "party INT, nights INT, price DECIMAL(9, 2)",
}
WIDE = """CREATE VIEW lodging AS SELECT b.*, g.age, g.country, g.tier, h.name, h.stars, h.city_id, c.city, c.continent
FROM booking b LEFT JOIN guest g USING (guest_id) LEFT JOIN hotel h USING (hotel_id) LEFT JOIN city c USING (city_id)"""

Rows = dict[str, list[tuple[Any, ...]]]


def made(seed: int, today: datetime.date) -> Rows:
    """Rows of all tables, for a star whose last day is today."""
    draw = random.Random(seed)
    first = today - datetime.timedelta(days=DAYS - 1)

    def booking() -> tuple[Any, ...]:
        hour = datetime.timedelta(hours=draw.randrange(DAYS * 24))
        nights = min(21, 1 + int(draw.expovariate(0.4)))
        channel = draw.choices([*CHANNELS, None], [40, 30, 15, 10, 5])[0]
        price = draw.randrange(3000, 14000) * nights / 100
        stay = first + datetime.timedelta(days=draw.randrange(DAYS))
        return (
            draw.randrange(GUESTS), draw.randrange(HOTELS),
            datetime.datetime.combine(first, datetime.time()) + hour, stay, channel,
            draw.random() < 0.15, draw.choices(range(1, 7), [30, 40, 12, 12, 4, 2])[0], nights, price,
        )  # fmt: skip

    def age(number: int) -> int:
        return (18, 89)[number] if number < 2 else 18 + min(71, int(draw.gammavariate(4, 7)))

    return {
        "city": [(i, *city) for i, city in enumerate(CITIES)],
        "hotel": [(i, f"Hotel {chr(65 + i)}", 2 + i % 4, i % len(CITIES)) for i in range(HOTELS)],
        "guest": [
            (i, age(i), draw.choice(COUNTRIES), draw.choices(TIERS, [6, 3, 1])[0]) for i in range(GUESTS)
        ],
        "booking": [booking() for _ in range(BOOKINGS)],
    }  # fmt: skip


def publish(folder: Path, rows: Rows, today: datetime.date) -> ReleaseEngine:
    """The star's release without noise, opened."""
    first = today - datetime.timedelta(days=DAYS - 1)
    return exact_release(folder / "lodging.yaml", CATALOG.format(first=first, last=today), TABLES, rows)


def fill(database: psycopg.Connection[Any], rows: Rows) -> None:
    """The same rows in PostgreSQL, with the wide table as a view."""
    for table, columns in TABLES.items():
        database.execute(f"CREATE TABLE {table} ({columns})")
        marks = ", ".join("%s" for _ in rows[table][0])
        with database.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", rows[table])
    database.execute(WIDE)


def statements(folder: Path, today: datetime.date) -> Sequence[tuple[str, str, str]]:
    """All statements: tool, heading, text with its days filled in."""
    texts = []
    for path in sorted(folder.glob("*.sql")):
        for part in path.read_text(encoding="utf-8").split("-- ")[1:]:
            heading, _, text = part.partition("\n")
            days = {f"{{day-{n}}}": str(today - datetime.timedelta(days=n)) for n in range(DAYS)}
            for mark, day in days.items():
                text = text.replace(mark, day)
            texts.append((path.stem, heading, text.strip().rstrip(";")))
    return texts
