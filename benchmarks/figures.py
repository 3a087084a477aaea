"""`figure` lines: one for each promise, `ok` or `short`, and an exit code that says whether all held."""

from __future__ import annotations


class Figures:
    """Collects figures; prints each as it is measured."""

    def __init__(self) -> None:
        self.short = 0

    def at_most(self, name: str, value: float, bound: float) -> None:
        """A figure that must not pass its bound."""
        self._print(name, value, f"<= {bound:g}", value <= bound)

    def at_least(self, name: str, value: float, bound: float) -> None:
        """A figure that must reach its bound."""
        self._print(name, value, f">= {bound:g}", value >= bound)

    def within(self, name: str, value: float, low: float, high: float) -> None:
        """A figure that must lie between two bounds."""
        self._print(name, value, f"{low:g} to {high:g}", low <= value <= high)

    def finish(self) -> int:
        """Exit code: 0 if every figure held."""
        return 1 if self.short else 0

    def _print(self, name: str, value: float, bound: str, held: bool) -> None:
        self.short += not held
        print(f"figure {name}: {value:.6g} ({bound}) {'ok' if held else 'short'}", flush=True)
