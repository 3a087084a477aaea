"""Superset's settings for the check: one folder, no login, every statement it sends written down."""

import os
from pathlib import Path

HOME = Path(os.environ["SUPERSET_HOME"])
SECRET_KEY = "a check on one machine, thrown away afterwards"
SQLALCHEMY_DATABASE_URI = f"sqlite:///{HOME}/superset.db"
WTF_CSRF_ENABLED = False
TALISMAN_ENABLED = False
RATELIMIT_ENABLED = False


def SQL_QUERY_MUTATOR(sql, **_):
    """Keeps the statement for the golden cases."""
    with (HOME / "sent.sql").open("a", encoding="utf-8") as sent:
        sent.write(sql.strip().rstrip(";") + "\n;\n")
    return sql


def FLASK_APP_MUTATOR(app):
    """Everybody is the administrator, the browser included."""

    @app.before_request
    def log_in():
        from flask_login import current_user, login_user
        from superset import security_manager

        if not current_user.is_authenticated:
            login_user(security_manager.find_user("a"))
