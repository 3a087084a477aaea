"""What `dpsql --help` says of each command: no module is loaded to say a line of it.

A test holds every sentence to the first one of the command's own help.
"""

from __future__ import annotations

from collections.abc import Mapping

SUMMARIES: Mapping[str, Mapping[str, str]] = {
    "analyst": {
        "check": "Look up every number of REPORT that was quoted from `dpsql mcp`; exit code 3 if one is not "
        "right.",
        "explain": "Say how a statement would be answered: route, view, nodes, predicted error, the DuckDB "
        "SQL.",
        "explore": "Explore RELEASES (files or streams) in a web page of this machine, until interrupted.",
        "export": "Write the noisy tables of a release as Parquet files with their errors, for tools that "
        "speak no SQL.",
        "mcp": "Offer RELEASES (files or streams) to agents as tools of the Model Context Protocol, on "
        "standard input and output.",
        "query": "Answer one SQL statement on RELEASES (files or streams); every aggregate comes with its "
        "error.",
        "report": "Write one self-contained page about a release: totals, what to ask and how well, "
        "promise, spends, histograms.",
        "serve": "Serve RELEASES (files or streams) read-only to psql, JDBC and every PostgreSQL driver, "
        "until interrupted.",
        "shell": "Ask RELEASES (files or streams) interactively; reads statements from standard input when"
        " it is not a terminal.",
        "site": "Write a folder of plain files for any host: every grouping by one column or two, and a builder "
        "without SQL.",
        "verify": "Read the whole file RELEASE (of a stream, its newest state): signature, structure, "
        "trees, models, all numbers.",
    },
    "collect": {
        "collect": "Count REPORTS (Parquet, CSV, JSON lines, or folders of these) of PLAN and write a "
        "release.",
        "collection-plan": "Write the public plan that people's devices answer, and say how noisy the answers will "
        "be.",
        "forget": "Erase some people from HELD: a collection's state, stored reports, or a stream.",
        "simulate": "Let everybody of CATALOG's raw star report; protects nobody, and what is made of it says"
        " so.",
    },
    "confirm": {
        "confirm": "Show what CATALOG holds that was read from private rows, table by table, and take the "
        "marks off.",
    },
    "curate": {
        "append": "Append one batch to the stream directory RELEASE; the first append makes it and spends "
        "its budget.",
        "audit": "Check offline that RELEASE holds what its catalog says and nothing else; exit code 3 if "
        "not.",
        "budget": "Show what the ledger of CATALOG holds: each lineage's cap, what it has spent on which "
        "releases, what is left.",
        "buy": "Publish just what a few SQL STATEMENTS need of CATALOG, with the least error for exactly"
        " these.",
        "certificate": "Write what a data-protection officer files about RELEASE, a page and JSON; exit code 3 "
        "if a check fails.",
        "ledger": "Back up the ledger, or move it; it must never exist twice.",
        "publish": "Spend the budget once and write a release of CATALOG.",
    },
    "doctor": {
        "completion": 'Print the completion script of SHELL: eval "$(dpsql completion bash)".',
        "doctor": "Check this installation, and RELEASES if any are named; exit code 2 if something is "
        "wrong.",
    },
    "draft": {
        "design": "Propose the views of CATALOG that answer the questions of a workload with the least "
        "predicted error.",
        "init": "Draft a catalog from SOURCE: a folder of Parquet or CSV files, one such file, a DuckDB "
        "file, or postgresql://..",
    },
    "start": {
        "start": "Go from DATA (as for init) and QUESTIONS in SQL to a release and its page, asking as little as "
        "possible.",
    },
    "plan": {
        "plan": "Say how far each answer over CATALOG will be off and what publishing it will cost; spends "
        "nothing.",
    },
}
"""By the module that has the commands."""
