"""Defects that once stood here, or could, each put back through a small seam: measurements must find them all.

A plant is one file of `tests/privacy/planted`: what it breaks, the one attribute that is patched, and the measurement
that finds it by a loss above its claim, by something that no noise covers, or by a refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import NamedTuple
from unittest import mock

from dpsql.errors import InternalError, PrivacyError
from tests.privacy.loss import Loss


class Plant(NamedTuple):
    """A defect.

    Args:
        name: what is broken, in words.
        seam: module or class, and the attribute that is replaced.
        broken: what stands there instead, made from what stood there.
        measured: the measurement that finds it.
        refused: whether the catalog is refused where nothing is planted.
    """

    name: str
    seam: tuple[object, str]
    broken: Callable[..., object]
    measured: Callable[[Path], Loss]
    refused: bool = False


def planted() -> tuple[Plant, ...]:
    """Every plant, by its file."""
    folder = Path(__file__).with_name("planted")
    names = sorted(module.name for module in iter_modules([str(folder)]))
    return tuple(import_module(f"tests.privacy.planted.{name}").PLANT for name in names)


def is_found(plant: Plant, folder: Path) -> bool:
    """Whether the defect shows once it is put back."""
    where, attribute = plant.seam
    with mock.patch.object(where, attribute, plant.broken(getattr(where, attribute))):
        try:
            return plant.measured(folder).share > 1
        except (PrivacyError, InternalError):  # told apart without noise, or refused
            return True
