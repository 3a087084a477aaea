"""Commands by group with the one-line summary of each: `dpsql --help` prints them and loads no module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Entry(NamedTuple):
    """One line of `dpsql --help`.

    Args:
        module: of this package, which registers the command.
        summary: under 60 characters.
    """

    module: str
    summary: str


GROUPS: Mapping[str, Mapping[str, Entry]] = {
    "Begin": {
        "start": Entry("start", "Go from data and questions to a release, step by step"),
        "init": Entry("draft", "Draft a catalog from files, DuckDB or PostgreSQL"),
        "confirm": Entry("confirm", "Confirm the bounds that were read from private rows"),
        "plan": Entry("plan", "Forecast the error of each question; spends nothing"),
        "rehearse": Entry("rehearse", "Publish made-up rows and compare; spends nothing"),
        "publish": Entry("curate", "Spend the budget once and write a release"),
    },
    "Ask": {
        "query": Entry("analyst", "Answer one SQL statement with its intervals"),
        "explain": Entry("analyst", "Show the plan of a statement: views, nodes, error"),
        "shell": Entry("analyst", "Ask interactively, or run statements from a file"),
        "explore": Entry("analyst", "Open a local web page: SQL, tables, charts"),
        "serve": Entry("analyst", "Serve releases to PostgreSQL clients"),
        "export": Entry("analyst", "Write the noisy tables as Parquet, with errors"),
        "report": Entry("analyst", "Write one self-contained page about a release"),
        "site": Entry("analyst", "Write a static site with a question builder"),
        "mcp": Entry("analyst", "Offer releases to agents as tools"),
    },
    "Prove": {
        "audit": Entry("curate", "Check a release against its catalog, offline"),
        "verify": Entry("analyst", "Check signature, structure and numbers of a file"),
        "certificate": Entry("curate", "Write the page for a data-protection officer"),
        "check": Entry("analyst", "Check the numbers that a report quotes"),
        "budget": Entry("curate", "Show what each lineage has spent, and what is left"),
        "ledger": Entry("curate", "Back up or move the ledger"),
    },
    "Streams and collections": {
        "append": Entry("curate", "Append one batch to a stream"),
        "collection-plan": Entry("collect", "Write the plan that people's devices answer"),
        "collect": Entry("collect", "Count reports of devices and write a release"),
        "simulate": Entry("collect", "Simulate the reports of a raw star; protects nobody"),
        "forget": Entry("collect", "Erase some people from stored reports or a stream"),
    },
    "Tools": {
        "design": Entry("draft", "Propose the views with the least error for a workload"),
        "buy": Entry("curate", "Publish what a few statements need, and no more"),
        "doctor": Entry("doctor", "Check this installation, and releases if named"),
        "completion": Entry("doctor", "Print the completion script of a shell"),
    },
}
"""Groups in the order of a first use; commands in the order of use."""

COMMANDS: Mapping[str, Entry] = {name: entry for group in GROUPS.values() for name, entry in group.items()}
MODULES: tuple[str, ...] = tuple(dict.fromkeys(entry.module for entry in COMMANDS.values()))
BEGIN = "begin here: dpsql start DATA"
