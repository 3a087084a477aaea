"""Hands SQLAlchemy's own test plugin dpsql's dialect. Run by tests/interfaces/test_sqlalchemy.py in a process of its own."""

from __future__ import annotations

import pytest
from sqlalchemy.dialects import registry

for _name in ("dpsql", "dpsql.dpsql"):
    registry.register(_name, "standin", "SuiteDialect")

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")

from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403
