"""The dialect handed to SQLAlchemy's own test plugin; tests/interfaces/test_sqlalchemy.py runs it in a process."""

from __future__ import annotations

import pytest
from sqlalchemy.dialects import registry

for _name in ("dpsql", "dpsql.dpsql"):
    registry.register(_name, "standin", "SuiteDialect")

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")

from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403
