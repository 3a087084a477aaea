"""Interfaces for people and programs: command line, shell, DB-API, SQLAlchemy, Superset, the wire, a report.

An interface holds no method of its own: it asks `dpsql.api` or an open session and shows what comes back.
"""
