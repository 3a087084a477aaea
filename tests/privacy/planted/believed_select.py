"""A SELECT over private rows is believed."""

from dpsql.catalog import source
from dpsql.row_expressions.rowlocal import trusted_select
from tests.privacy.market import windowed
from tests.privacy.plant import Plant

PLANT = Plant(
    "a SELECT over private rows is believed",
    (source, "checked_select"),
    lambda was: lambda text, arms: trusted_select(text),
    windowed,
    refused=True,
)
