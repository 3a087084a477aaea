"""The report page: one HTML file that needs no network, for whoever has to trust or use a release."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from dpsql.release import Release
from dpsql.report.model import page_model

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""Nothing may be fetched: the page works offline and tells nobody what is looked at."""

NEIGHBOURS = {
    "add_remove": "adding or removing everything that one {unit} owns",
    "replace_one": "replacing everything that one {unit} owns",
    "replace": "replacing everything that one {unit} owns",
}


def report_page(release: Release) -> str:
    """The page as HTML.

    Args:
        release: an open release.

    Returns:
        A whole document.

    **Privacy**: shows what the release publishes to everybody anyway.
    """
    model = page_model(release)
    parts = [
        f"<h1>{escape(model['name'])}</h1>",
        f"<p>{escape(str(model['description']))}</p>" if model["description"] else "",
        f'<p class="soft">release {escape(str(model["id"]))}</p>',
        "<h2>What is promised</h2>",
        *_promise(model["privacy"]),
        "<h2>What was spent</h2>",
        _table(("on", "amount"), [(str(what), str(amount)) for what, amount in model["spends"]]),
        "<p>Questions cost nothing: the budget was spent once, when the release was made.</p>",
        "<h2>How good is my question?</h2>",
        '<div id="ask"></div><div id="answer"></div>',
        *(_view(view, model) for view in model["views"]),
    ]
    return _document(model["name"], "\n".join(parts), model)


def _promise(privacy: dict[str, Any]) -> list[str]:
    unit = str(privacy.get("unit", "row"))
    change = NEIGHBOURS.get(str(privacy.get("neighbours")), "changing one {unit}").format(unit=unit)
    currency = "rho" if privacy.get("rho") else "epsilon"
    bound = f"{currency} = {privacy.get(currency)}"
    if str(privacy.get("delta", "0")) != "0":
        bound += f", delta = {privacy['delta']}"
    words = (
        f"Whatever is computed from this release, {change} changes the chance of any outcome "
        f"by a factor of at most exp(epsilon): {bound}."
    )
    rows = [
        (str(key), json.dumps(value) if isinstance(value, dict) else str(value))
        for key, value in privacy.items()
    ]
    return [f"<p>{escape(words)}</p>", _table(("part", "value"), rows)]


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    def line(tag: str, cells: tuple[str, ...]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{line('th', head)}{''.join(line('td', row) for row in rows)}</table>"


def _view(view: dict[str, Any], model: dict[str, Any]) -> str:
    axes = ", ".join(model["axes"][number]["name"] for number in view["axes"]) or "no axis"
    rows = [(s["measure"], s["mechanism"], f"{s['currency']} {s['budget']}") for s in view["statistics"]]
    return (
        f"<h2>View {escape(view['name'])}</h2>"
        f"<p>{escape(view['of'])} by {escape(axes)}: {view['cells']} cells</p>"
        f"{_table(('measure', 'mechanism', 'budget'), rows)}"
        f'<div id="view-{escape(view["name"])}"></div>'
    )


def _document(title: str, body: str, model: dict[str, Any]) -> str:
    data = json.dumps(model, separators=(",", ":")).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}: release report</title>
<style>
{_asset("page.css")}</style>
</head>
<body>
{body}
<script type="application/json" id="model">{data}</script>
<script>
{_asset("page.js")}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return files("dpsql.report").joinpath(name).read_text(encoding="utf-8")
