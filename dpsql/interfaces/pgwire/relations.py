"""The relations of PostgreSQL's catalogue in DuckDB: PostgreSQL's own, from `postgres.json`, and the star's.

Every relation that PostgreSQL 15 has is there with its columns; those that a read-only star has no use for are empty.
Of the star there are tables, columns with types and comments, primary keys with their indexes, and foreign keys: all
of it stands in the public catalog.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from dpsql.interfaces.pgwire.protocol import TYPES, oid_of
from dpsql.interfaces.python.describe import TableInfo
from dpsql.planner.schema import data_type

POSTGRES = Path(__file__).with_name("postgres.json")
FIRST_OID = 16384
PG_CATALOG, PUBLIC, INFORMATION = 11, 2200, 13000
SCHEMAS = {PG_CATALOG: "pg_catalog", PUBLIC: "public", INFORMATION: "information_schema"}
OWNER, HEAP, BTREE = 10, 2, 403
FLOATS, BOOLS = {"float4": "FLOAT", "float8": "DOUBLE"}, {"bool": "BOOLEAN"}
INTEGERS = {"oid": "BIGINT", "int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT", "regproc": "BIGINT",
            "regtype": "BIGINT", "xid": "BIGINT", "cardinal_number": "INTEGER"}  # fmt: skip
LISTS = {"int2vector": "SMALLINT[]", "oidvector": "BIGINT[]", "_int2": "SMALLINT[]", "_oid": "BIGINT[]",
         "_regtype": "BIGINT[]", "_text": "VARCHAR[]", "_name": "VARCHAR[]", "_aclitem": "VARCHAR[]",
         "_char": "VARCHAR[]", "_float4": "FLOAT[]", "_float8": "DOUBLE[]", "_bool": "BOOLEAN[]"}  # fmt: skip
STORED = {**FLOATS, **BOOLS, **INTEGERS, **LISTS, "timestamptz": "TIMESTAMP", "time_stamp": "TIMESTAMP"}
"""DuckDB's types of PostgreSQL's; all others are texts."""
LONG_TYPES = {
    "bool": "boolean", "char": '"char"', "int8": "bigint", "int2": "smallint", "int4": "integer", "float4": "real",
    "float8": "double precision", "bpchar": "character", "varchar": "character varying",
    "time": "time without time zone",
    "timestamp": "timestamp without time zone", "timestamptz": "timestamp with time zone",
    "timetz": "time with time zone",
    "varbit": "bit varying",
}  # fmt: skip
"""Types as information_schema and format_type call them."""


SYSTEM_COLUMNS = {"tableoid": 26, "cmax": 29, "xmax": 28, "cmin": 29, "xmin": 28, "ctid": 27}
"""Columns that every table of PostgreSQL has, the last numbered -1."""


@cache
def _postgres() -> dict[str, Any]:
    """PostgreSQL's own catalogue."""
    content: dict[str, Any] = json.loads(POSTGRES.read_text(encoding="utf-8"))
    return content


@cache
def relations() -> Mapping[str, Mapping[str, str]]:
    """Columns of every relation with PostgreSQL's types, by its name in DuckDB, where all relations share a schema."""
    return {
        stored: dict(column.rsplit(" ", 1) for column in columns.split(","))
        for stored, (_, _, _, _, columns) in _listed().items()
    }


def _listed() -> dict[str, tuple[str, str, int, str, str]]:
    """PostgreSQL's relations by their names in DuckDB: schema, name, OID, `r` (table) or `v` (view), and columns."""
    return {
        (f"information_schema.{name}" if schema == "information_schema" else name): (schema, name, *facts)
        for schema in ("pg_catalog", "information_schema")
        for name, facts in _postgres()[schema].items()
    }


def keywords() -> list[list[str]]:
    """PostgreSQL's key words: names of columns, then rows."""
    return list(_postgres()["pg_keywords"])


@cache
def column_types() -> Mapping[str, str]:
    """PostgreSQL's types of the columns that have one and the same wherever they occur."""
    kinds: dict[str, set[str]] = {}
    for columns in relations().values():
        for name, kind in columns.items():
            kinds.setdefault(name, set()).add(kind)
    return {name: kind.pop() for name, kind in kinds.items() if len(kind) == 1}


def fill(
    connection: duckdb.DuckDBPyConnection, tables: Sequence[tuple[str, TableInfo]], database: str
) -> None:
    """Make every relation.

    Args:
        connection: an empty DuckDB.
        tables: (release name, table) of everything a statement may name; of tables of one name the first is listed.
        database: what current_database() says.
    """
    for relation, kinds in relations().items():
        columns = ", ".join(f'"{name}" {STORED.get(kind, "VARCHAR")}' for name, kind in kinds.items())
        connection.execute(f'CREATE TABLE "{relation}" ({columns})')
    connection.execute("CREATE TABLE key_texts (oid BIGINT, definition VARCHAR)")
    connection.execute("CREATE TABLE type_names (oid BIGINT, name VARCHAR, spelling VARCHAR)")
    star = _Star(database)
    star.add_system()
    listed = {table.name.lower(): table for _, table in reversed(tables)}
    oids = {name: FIRST_OID + i for i, name in enumerate(dict.fromkeys(t.name.lower() for _, t in tables))}
    star.next_oid = FIRST_OID + len(oids)
    for name, oid in oids.items():
        star.add_table(oid, listed[name])
    for name, oid in oids.items():
        table = listed[name]
        if table.key:
            numbers = {column.name.lower(): number for number, column in enumerate(table.columns, 1)}
            star.add_primary_key(oid, table, table.key, numbers[table.key.lower()])
    for name, oid in oids.items():
        star.add_keys(oid, listed[name], oids, listed)
    for name, rows in star.rows.items():
        stored = relations()[name]
        # what rows do not say is 0, false or NULL, as PostgreSQL has it
        values = [[_value(row.get(column), kind) for row in rows] for column, kind in stored.items()]
        unnested = ", ".join(f"unnest(?)::{STORED.get(kind, 'VARCHAR')}" for kind in stored.values())
        connection.execute(f'INSERT INTO "{name}" SELECT {unnested}', values)
    # (OID, name as format_type gives it, spelling) of every type and each of its spellings.
    head, *lines = _postgres()["pg_type"]
    places = [head.index(name) for name in ("oid", "typname", "typelem", "typcategory")]
    types = {int(line[places[0]]): (line[places[1]], int(line[places[2]]), line[places[3]]) for line in lines}
    spelled = list[tuple[int, str, str]]()
    for oid, (name, element, category) in types.items():
        base = types[element][0] if category == "A" and element in types else name
        long_name = LONG_TYPES.get(base, base) + ("[]" if base != name else "")
        spelled += [(oid, long_name, spelling) for spelling in {long_name, name}]
    connection.execute(
        "INSERT INTO type_names SELECT unnest(?), unnest(?), unnest(?)",
        [list(column) for column in zip(*spelled, strict=True)],
    )
    if star.definitions:
        connection.executemany("INSERT INTO key_texts VALUES (?, ?)", star.definitions)


def _value(value: Any, domain: str) -> Any:
    if value is None:
        if domain in BOOLS:
            return False
        return 0 if domain in INTEGERS and domain != "cardinal_number" else None
    if domain in BOOLS and isinstance(value, str):
        return value == "t"
    if domain in LISTS and isinstance(value, str):
        elements = value.strip("{}").replace(",", " ").split()
        return elements if "VARCHAR" in LISTS[domain] else [int(element) for element in elements]
    return value


class _Star:
    """Rows of the catalogue as they are collected."""

    def __init__(self, database: str) -> None:
        self.database, self.next_oid = database, FIRST_OID
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.definitions: list[tuple[int, str]] = []
        self.indexes: dict[str, int] = {}

    def add(self, relation: str, **values: Any) -> None:
        """Add a row."""
        self.rows.setdefault(relation, []).append(values)

    def add_information(self, relation: str, **values: Any) -> None:
        """Add a row of information_schema, whose catalogs and schemas are this database's."""
        columns = relations()[f"information_schema.{relation}"]
        places = {name: self.database for name in columns if name.endswith("_catalog")}
        places |= {name: "public" for name in columns if name.endswith("_schema")}
        self.add(f"information_schema.{relation}", **{**places, **values})

    def oid(self) -> int:
        """A number that nothing has."""
        self.next_oid += 1
        return self.next_oid - 1

    def add_system(self) -> None:
        """Add the system objects of every database."""
        for name in relations():
            names, *lines = _postgres().get(name, [[]])
            for line in lines:
                row = dict(zip(names, line, strict=True))
                if name == "pg_type" and row["typnamespace"] != str(PG_CATALOG):
                    row["typnamespace"] = INFORMATION  # domains of information_schema
                self.add(name, **row)
        for oid, schema in SCHEMAS.items():
            self.add("pg_namespace", oid=oid, nspname=schema, nspowner=OWNER)
            self.add("information_schema.schemata", catalog_name=self.database, schema_name=schema,
                     schema_owner="dpsql")  # fmt: skip
        locale = {"datcollate": "C.UTF-8", "datctype": "C.UTF-8", "datlocprovider": "c"}
        self.add("pg_database", oid=1, datname=self.database, datdba=OWNER, encoding=6, datallowconn=True,
                 datconnlimit=-1, dattablespace=1663, **locale)  # fmt: skip
        self.add("pg_roles", oid=OWNER, rolname="dpsql", rolinherit=True, rolcanlogin=True, rolconnlimit=-1)
        self.add("pg_user", usesysid=OWNER, usename="dpsql")
        self.add("information_schema.character_sets", character_set_name="UTF8", character_repertoire="UCS",
                 form_of_use="UTF8", default_collate_catalog=self.database)  # fmt: skip
        self.add("information_schema.enabled_roles", role_name="dpsql")
        self.add(
            "pg_stat_activity",
            datid=1,
            datname=self.database,
            usesysid=OWNER,
            usename="dpsql",
            state="active",
        )
        self.add("pg_stat_gssapi")
        self.add("pg_timezone_names", name="UTC", abbrev="UTC")
        schemas = {name: oid for oid, name in SCHEMAS.items()}
        head, *lines = _postgres()["pg_type"]
        kinds = {line[head.index("typname")]: line for line in lines}
        for stored, (schema, name, oid, relkind, _) in _listed().items():
            self.add_class(oid, name, relkind, len(relations()[stored]), schemas[schema])
        for stored, (_, _, oid, _, _) in _listed().items():
            for number, (name, kind) in enumerate(relations()[stored].items(), 1):
                line = kinds.get(kind, kinds["text"])
                self.add_attribute(oid, name, number, line[head.index("oid")], line[head.index("typlen")])

    def add_class(self, oid: int, name: str, relkind: str, columns: int, schema: int, **values: Any) -> None:
        """Add a row of pg_class."""
        self.add("pg_class", **{
            "oid": oid, "relname": name, "relnamespace": schema, "relowner": OWNER, "relkind": relkind,
            "relnatts": columns,
            "relpersistence": "p", "relreplident": "n", "reltuples": -1, "relispopulated": True,
            "relam": HEAP if relkind == "r" else 0, **values,
        })  # fmt: skip

    def add_attribute(
        self, relation: int, name: str, number: int, kind: Any, width: Any, **values: Any
    ) -> None:
        """Add a row of pg_attribute."""
        self.add("pg_attribute", **{
            "attrelid": relation, "attname": name, "attnum": number, "atttypid": kind, "attlen": width,
            "atttypmod": -1, "attstattarget": -1, "attislocal": True, "attidentity": "", "attgenerated": "",
            "attcompression": "", "attstorage": "p", "attalign": "i", "attcacheoff": -1, **values,
        })  # fmt: skip

    def add_table(self, oid: int, table: TableInfo) -> None:
        """Add a table of the star with its columns and comments."""
        self.add_class(oid, table.name, "r", len(table.columns), PUBLIC, relhasindex=bool(table.key))
        for number, (name, system) in enumerate(SYSTEM_COLUMNS.items(), -len(SYSTEM_COLUMNS)):
            self.add_attribute(oid, name, number, system, 4, attnotnull=True)
        row_type = self.oid()
        self.rows["pg_class"][-1]["reltype"] = row_type
        self.add("pg_type", oid=row_type, typname=table.name, typnamespace=PUBLIC, typowner=OWNER, typlen=-1,
                 typtype="c", typcategory="C", typisdefined=True, typdelim=",", typrelid=oid, typtypmod=-1)  # fmt: skip
        self.add(
            "pg_tables",
            schemaname="public",
            tablename=table.name,
            tableowner="dpsql",
            hasindexes=bool(table.key),
        )
        for relation in ("pg_stat_user_tables", "pg_statio_user_tables", "pg_statio_all_tables"):
            self.add(relation, relid=oid, schemaname="public", relname=table.name)
        self.add("pg_description", objoid=oid, classoid=1259, objsubid=0, description=table.comment)
        self.add_information("tables", table_name=table.name, table_type="BASE TABLE", is_insertable_into="NO",
                             is_typed="NO", user_defined_type_catalog=None, user_defined_type_schema=None)  # fmt: skip
        self.add_information("table_privileges", grantor="dpsql", grantee="dpsql", table_name=table.name,
                             privilege_type="SELECT", is_grantable="NO", with_hierarchy="YES")  # fmt: skip
        for number, column in enumerate(table.columns, 1):
            kind = column.type or data_type("")
            type_oid = oid_of(kind)
            self.add_attribute(
                oid, column.name, number, type_oid, TYPES[type_oid].width, attnotnull=not column.nullable
            )
            self.add("pg_description", objoid=oid, classoid=1259, objsubid=number, description=column.comment)
            precisions = {20: (64, 2, 0), 23: (32, 2, 0), 21: (16, 2, 0), 701: (53, 2, None)}
            precision = precisions.get(type_oid, (None,) * 3)
            self.add_information(
                "columns", table_name=table.name, column_name=column.name, ordinal_position=number,
                is_nullable="YES" if column.nullable else "NO", udt_schema="pg_catalog", udt_name=TYPES[type_oid].name,
                data_type=LONG_TYPES.get(TYPES[type_oid].name, TYPES[type_oid].name),
                numeric_precision=precision[0], numeric_precision_radix=precision[1], numeric_scale=precision[2],
                datetime_precision={1082: 0, 1114: 6}.get(type_oid), dtd_identifier=str(number), is_identity="NO",
                is_self_referencing="NO", is_generated="NEVER", is_updatable="NO", identity_cycle="NO",
                character_octet_length=1 << 30 if type_oid == 25 else None,
                **dict.fromkeys(NOT_OF_COLUMNS),
            )  # fmt: skip

    def add_keys(
        self, oid: int, table: TableInfo, oids: Mapping[str, int], tables: Mapping[str, TableInfo]
    ) -> None:
        """Add the foreign keys of a table."""
        places = {column.name.lower(): number for number, column in enumerate(table.columns, 1)}
        for column, (target, key) in table.references.items():
            if target.lower() in oids:
                name = f"{table.name}_{column}_fkey"
                target_places = {c.name.lower(): i for i, c in enumerate(tables[target.lower()].columns, 1)}
                target_key = f"{target}_pkey"
                self.add_constraint(
                    table.name, name, "f", f"FOREIGN KEY ({column}) REFERENCES {target}({key})", column,
                    conrelid=oid, conkey=[places[column.lower()]], confrelid=oids[target.lower()],
                    confkey=[target_places[key.lower()]],
                    confupdtype="a", confdeltype="a", confmatchtype="s", conindid=self.indexes.get(target.lower(), 0),
                )  # fmt: skip
                self.add_information("referential_constraints", constraint_name=name, unique_constraint_name=target_key,
                                     match_option="NONE", update_rule="NO ACTION", delete_rule="NO ACTION")  # fmt: skip
                self.add_information(
                    "constraint_column_usage", table_name=target, column_name=key, constraint_name=name
                )

    def add_primary_key(self, oid: int, table: TableInfo, key: str, place: int) -> None:
        """Add a primary key and its index."""
        name, index = f"{table.name}_pkey", self.oid()
        kind = oid_of(table.columns[place - 1].type)
        self.indexes[table.name.lower()] = index
        self.add_class(index, name, "i", 1, PUBLIC, relam=BTREE)
        self.add_attribute(index, key, 1, kind, TYPES[kind].width)
        self.add("pg_index", indexrelid=index, indrelid=oid, indnatts=1, indnkeyatts=1, indisunique=True,
                 indisprimary=True,
                 indimmediate=True, indisvalid=True, indisready=True, indislive=True, indkey=[place], indcollation=[0],
                 indclass=[{20: 3124, 23: 1978, 1082: 3122}.get(kind, 3126)], indoption=[0])  # fmt: skip
        definition = f"CREATE UNIQUE INDEX {name} ON public.{table.name} USING btree ({key})"
        self.definitions.append((index, definition))
        self.add("pg_indexes", schemaname="public", tablename=table.name, indexname=name, indexdef=definition)
        self.add_constraint(
            table.name, name, "p", f"PRIMARY KEY ({key})", key, conrelid=oid, conkey=[place], conindid=index
        )
        self.add_information(
            "constraint_column_usage", table_name=table.name, column_name=key, constraint_name=name
        )

    def add_constraint(
        self, table: str, name: str, kind: str, definition: str, column: str, **values: Any
    ) -> None:
        """Add a key of one column."""
        number = self.oid()
        self.add("pg_constraint", oid=number, conname=name, connamespace=PUBLIC, contype=kind, convalidated=True,
                 conislocal=True, connoinherit=True, **values)  # fmt: skip
        self.definitions.append((number, definition))
        if kind == "f":
            self.add("pg_depend", classid=2606, objid=number, refclassid=1259, refobjid=values["conindid"],
                     deptype="n")  # fmt: skip
        words = {"p": "PRIMARY KEY", "f": "FOREIGN KEY"}[kind]
        self.add_information("table_constraints", constraint_name=name, table_name=table, constraint_type=words,
                             is_deferrable="NO", initially_deferred="NO", enforced="YES")  # fmt: skip
        self.add_information("key_column_usage", constraint_name=name, table_name=table, column_name=column,
                             ordinal_position=1, position_in_unique_constraint=1 if kind == "f" else None)  # fmt: skip


NOT_OF_COLUMNS = ("character_set_catalog", "character_set_schema", "collation_catalog", "collation_schema",
                  "domain_catalog", "domain_schema", "scope_catalog", "scope_schema")  # fmt: skip
"""Places that a column of the star does not have."""
