"""Writes `dpsql/interfaces/pgwire/postgres.json`: PostgreSQL 15's own catalogue, without anything of a database.

    PYTHONPATH=. python -m tests.interfaces.wire_zoo.dump

Relations of `pg_catalog` and `information_schema` with their columns, and the rows that are the same in every database:
types, their functions, operator classes, casts, key words.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dpsql
from tests.interfaces.wire_zoo.record import postgres
from tests.interfaces.wire_zoo.wire import Asker

TARGET = Path(dpsql.__file__).parent / "interfaces" / "pgwire" / "postgres.json"
RELATIONS = """
SELECT n.nspname, c.relname, c.oid, c.relkind, string_agg(a.attname || ' ' || t.typname, ',' ORDER BY a.attnum)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    JOIN pg_type t ON t.oid = a.atttypid
WHERE n.nspname IN ('pg_catalog', 'information_schema') AND c.relkind IN ('r', 'v')
    AND c.relname !~ '^(pg_stat|_pg_|pg_authid|pg_shadow|pg_largeobject$|pg_subscription|pg_hba|pg_ident|pg_file)'
    OR c.relname IN ('pg_stat_activity', 'pg_stat_user_tables', 'pg_stat_all_tables', 'pg_stat_gssapi', 'pg_stat_ssl',
        'pg_stat_database', 'pg_statio_user_tables')
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2
"""
TYPE_FUNCTIONS = (
    "SELECT unnest(ARRAY[typinput, typoutput, typreceive, typsend]) FROM pg_type WHERE typrelid = 0"
)
ROWS = {
    "pg_type": "SELECT * FROM pg_type WHERE typrelid = 0 AND (typelem = 0 OR typelem IN "
               "(SELECT oid FROM pg_type WHERE typrelid = 0)) ORDER BY oid",
    "pg_proc": f"SELECT oid, proname, pronamespace, prolang, prorettype, proargtypes FROM pg_proc WHERE oid IN "
               f"({TYPE_FUNCTIONS}) ORDER BY oid",
    "pg_range": "SELECT rngtypid, rngsubtype, rngmultitypid FROM pg_range ORDER BY 1",
    "pg_am": "SELECT oid, amname, amtype FROM pg_am WHERE amname IN ('heap', 'btree')",
    "pg_opclass": "SELECT oid, opcmethod, opcname, opcnamespace, opcowner, opcfamily, opcintype, opcdefault, "
                  "opckeytype FROM pg_opclass ORDER BY oid",
    "pg_cast": "SELECT * FROM pg_cast ORDER BY oid",
    "pg_collation": "SELECT oid, collname, collnamespace, collowner, collprovider, collisdeterministic, "
                    "collencoding FROM pg_collation WHERE collname IN ('default', 'C', 'POSIX')",
    "pg_tablespace": "SELECT oid, spcname, spcowner FROM pg_tablespace",
    "pg_language": "SELECT oid, lanname, lanowner, lanispl, lanpltrusted FROM pg_language",
    "pg_keywords": "SELECT word, catcode::text, catdesc FROM pg_get_keywords() ORDER BY 1",
}  # fmt: skip


def main() -> None:
    """Ask a PostgreSQL, and write."""
    with postgres() as (port, _):
        asker = Asker(port, "dpsql")
        relations: dict[str, Any] = {"pg_catalog": {}, "information_schema": {}}
        for schema, name, number, kind, columns in asker.ask(RELATIONS).rows:
            relations[str(schema)][str(name)] = [int(str(number)), kind, columns]
        rows = {}
        for table, text in ROWS.items():
            given = asker.ask(text)
            assert not given.error, given.error
            kept = [i for i, _ in enumerate(given.columns) if any(row[i] is not None for row in given.rows)]
            names = [given.columns[i][0] for i in kept]
            rows[table] = [names, *([row[i] for i in kept] for row in given.rows)]
        numbers = {name: number for number, name in asker.ask("SELECT oid::int8, proname FROM pg_proc").rows}
        functions = ("input", "output", "receive", "send", "modin", "modout", "analyze", "subscript")
        for name in (f"typ{function}" for function in functions):
            head, *lines = rows["pg_type"]
            if name in head:
                place = head.index(name)
                for line in lines:
                    line[place] = numbers.get(line[place], "0")
    parts = [
        f'"{name}": {json.dumps(value, separators=(",", ":"))}'
        for name, value in {**relations, **rows}.items()
    ]
    TARGET.write_text("{" + ",\n".join(parts) + "}\n")
    print(TARGET.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
