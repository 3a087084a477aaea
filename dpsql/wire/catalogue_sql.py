"""Tables and functions of pg_catalog as DuckDB statements; what a read-only star never has stays empty."""

from __future__ import annotations

TABLES = (
    """CREATE TABLE pg_namespace (oid BIGINT, nspname VARCHAR, nspowner BIGINT, nspacl VARCHAR)""",
    """INSERT INTO pg_namespace VALUES (11, 'pg_catalog', 10, NULL), (2200, 'main', 10, NULL),
       (13000, 'information_schema', 10, NULL)""",
    """CREATE TABLE pg_class (oid BIGINT, relname VARCHAR, relnamespace BIGINT, reltype BIGINT DEFAULT 0,
       reloftype BIGINT DEFAULT 0, relowner BIGINT DEFAULT 10, relam BIGINT DEFAULT 0, relfilenode BIGINT DEFAULT 0,
       reltablespace BIGINT DEFAULT 0, relpages BIGINT DEFAULT 0, reltuples DOUBLE DEFAULT -1,
       reltoastrelid BIGINT DEFAULT 0, relhasindex BOOLEAN DEFAULT false, relisshared BOOLEAN DEFAULT false,
       relpersistence VARCHAR DEFAULT 'p', relkind VARCHAR, relnatts BIGINT, relchecks BIGINT DEFAULT 0,
       relhasrules BOOLEAN DEFAULT false, relhastriggers BOOLEAN DEFAULT false, relhassubclass BOOLEAN DEFAULT false,
       relrowsecurity BOOLEAN DEFAULT false, relforcerowsecurity BOOLEAN DEFAULT false,
       relreplident VARCHAR DEFAULT 'n', relispartition BOOLEAN DEFAULT false, relpartbound VARCHAR,
       relacl VARCHAR, reloptions VARCHAR[], relhasoids BOOLEAN DEFAULT false)""",
    """CREATE TABLE pg_attribute (attrelid BIGINT, attname VARCHAR, atttypid BIGINT, attstattarget BIGINT DEFAULT -1,
       attlen BIGINT DEFAULT -1, attnum INTEGER, attndims BIGINT DEFAULT 0, atttypmod BIGINT DEFAULT -1,
       attnotnull BOOLEAN, atthasdef BOOLEAN DEFAULT false, attidentity VARCHAR DEFAULT '',
       attgenerated VARCHAR DEFAULT '', attisdropped BOOLEAN DEFAULT false, attcollation BIGINT DEFAULT 0,
       attstorage VARCHAR DEFAULT 'p', attcompression VARCHAR DEFAULT '', attoptions VARCHAR, attacl VARCHAR)""",
    """CREATE TABLE pg_type (oid BIGINT, typname VARCHAR, typnamespace BIGINT, typlen BIGINT, typtype VARCHAR,
       typcategory VARCHAR, typrelid BIGINT, typelem BIGINT, typbasetype BIGINT, typtypmod BIGINT,
       typcollation BIGINT DEFAULT 0, typnotnull BOOLEAN DEFAULT false, typdelim VARCHAR DEFAULT ',',
       typarray BIGINT DEFAULT 0, typinput VARCHAR DEFAULT '')""",
    """CREATE TABLE pg_description (objoid BIGINT, classoid BIGINT, objsubid INTEGER, description VARCHAR)""",
    """CREATE TABLE pg_database (oid BIGINT, datname VARCHAR, datdba BIGINT, encoding BIGINT,
       datcollate VARCHAR DEFAULT 'C', datctype VARCHAR DEFAULT 'C', daticulocale VARCHAR,
       datlocprovider VARCHAR DEFAULT 'c', datacl VARCHAR[], datallowconn BOOLEAN DEFAULT true,
       datistemplate BOOLEAN DEFAULT false)""",
    """CREATE TABLE pg_roles AS SELECT 10::BIGINT AS oid, 'dpsql' AS rolname, false AS rolsuper, true AS rolinherit,
       false AS rolcreaterole, false AS rolcreatedb, true AS rolcanlogin, -1 AS rolconnlimit,
       NULL::TIMESTAMP AS rolvaliduntil, false AS rolreplication, false AS rolbypassrls""",
    """CREATE TABLE star_tables (table_catalog VARCHAR, table_schema VARCHAR, table_name VARCHAR,
       table_type VARCHAR)""",
    """CREATE TABLE star_columns (table_catalog VARCHAR, table_schema VARCHAR, table_name VARCHAR, column_name VARCHAR,
       ordinal_position INTEGER, column_default VARCHAR, is_nullable VARCHAR, data_type VARCHAR, udt_name VARCHAR)""",
    """CREATE VIEW star_schemata AS SELECT pg_database_name() AS catalog_name, 'main' AS schema_name,
       'dpsql' AS schema_owner""",
    """CREATE VIEW pg_user AS SELECT rolname AS usename, oid AS usesysid, rolsuper AS usesuper FROM pg_roles""",
)

EMPTY = {
    "pg_attrdef": "oid BIGINT, adrelid BIGINT, adnum INTEGER, adbin VARCHAR",
    "pg_index": (
        "indexrelid BIGINT, indrelid BIGINT, indisprimary BOOLEAN, indisunique BOOLEAN, "
        "indisclustered BOOLEAN, indisvalid BOOLEAN, indisreplident BOOLEAN, indkey BIGINT[], "
        "indnatts BIGINT, indoption BIGINT[], indexprs VARCHAR, indpred VARCHAR"
    ),
    "pg_constraint": (
        "oid BIGINT, conname VARCHAR, conrelid BIGINT, confrelid BIGINT, contype VARCHAR, "
        "conkey BIGINT[], confkey BIGINT[], conparentid BIGINT, condeferrable BOOLEAN, "
        "condeferred BOOLEAN, conindid BIGINT, confupdtype VARCHAR, confdeltype VARCHAR, "
        "connamespace BIGINT"
    ),
    "pg_inherits": "inhrelid BIGINT, inhparent BIGINT, inhseqno INTEGER, inhdetachpending BOOLEAN",
    "pg_trigger": (
        "oid BIGINT, tgrelid BIGINT, tgname VARCHAR, tgisinternal BOOLEAN, tgenabled VARCHAR, "
        "tgparentid BIGINT, tgconstraint BIGINT, tgdeferrable BOOLEAN, tginitdeferred BOOLEAN"
    ),
    "pg_rewrite": "oid BIGINT, ev_class BIGINT, rulename VARCHAR, ev_enabled VARCHAR",
    "pg_policy": (
        "oid BIGINT, polname VARCHAR, polrelid BIGINT, polcmd VARCHAR, polpermissive BOOLEAN, "
        "polroles BIGINT[], polqual VARCHAR, polwithcheck VARCHAR"
    ),
    "pg_statistic_ext": (
        "oid BIGINT, stxrelid BIGINT, stxname VARCHAR, stxnamespace BIGINT, stxkind VARCHAR[], "
        "stxstattarget BIGINT"
    ),
    "pg_publication": "oid BIGINT, pubname VARCHAR, puballtables BOOLEAN",
    "pg_publication_rel": "oid BIGINT, prpubid BIGINT, prrelid BIGINT, prqual VARCHAR, prattrs BIGINT[]",
    "pg_publication_namespace": "oid BIGINT, pnpubid BIGINT, pnnspid BIGINT",
    "pg_am": "oid BIGINT, amname VARCHAR",
    "pg_collation": "oid BIGINT, collname VARCHAR, collnamespace BIGINT",
    "pg_tablespace": "oid BIGINT, spcname VARCHAR",
    "pg_foreign_table": "ftrelid BIGINT, ftserver BIGINT, ftoptions VARCHAR[]",
    "pg_foreign_server": "oid BIGINT, srvname VARCHAR",
    "pg_enum": "oid BIGINT, enumtypid BIGINT, enumlabel VARCHAR, enumsortorder DOUBLE",
    "pg_proc": "oid BIGINT, proname VARCHAR, pronamespace BIGINT, prokind VARCHAR",
    "pg_auth_members": "roleid BIGINT, member BIGINT",
    "pg_range": "rngtypid BIGINT, rngsubtype BIGINT, rngmultitypid BIGINT",
    "pg_depend": (
        "classid BIGINT, objid BIGINT, refclassid BIGINT, refobjid BIGINT, refobjsubid INTEGER, "
        "deptype VARCHAR"
    ),
    "pg_sequence": "seqrelid BIGINT, seqtypid BIGINT",
    "pg_settings": "name VARCHAR, setting VARCHAR",
}

EMPTY_TABLES = tuple(f"CREATE TABLE {name} ({columns})" for name, columns in EMPTY.items())

FORMAT_TYPE = """CREATE MACRO format_type(kind, modifier) AS CASE kind WHEN 16 THEN 'boolean' WHEN 17 THEN 'bytea'
    WHEN 20 THEN 'bigint' WHEN 21 THEN 'smallint' WHEN 23 THEN 'integer' WHEN 25 THEN 'text' WHEN 26 THEN 'oid'
    WHEN 700 THEN 'real' WHEN 701 THEN 'double precision' WHEN 1043 THEN 'character varying' WHEN 1082 THEN 'date'
    WHEN 1083 THEN 'time without time zone' WHEN 1114 THEN 'timestamp without time zone' WHEN 1700 THEN 'numeric' END"""

PG_OID = """CREATE MACRO pg_oid(word) AS coalesce(TRY_CAST(word AS BIGINT),
    (SELECT c.oid FROM pg_class AS c WHERE c.relname = replace(replace(word::VARCHAR, '"', ''), 'main.', '')),
    CASE word::VARCHAR WHEN 'pg_class' THEN 1259 WHEN 'pg_namespace' THEN 2615 END, 0)"""

MACROS = (
    FORMAT_TYPE,
    PG_OID,
    "CREATE MACRO pg_get_userbyid(role) AS 'dpsql'",
    "CREATE MACRO pg_table_is_visible(relation) AS true",
    "CREATE MACRO pg_type_is_visible(kind) AS true",
    "CREATE MACRO pg_get_expr(body, relation) AS NULL::VARCHAR, (body, relation, pretty) AS NULL::VARCHAR",
    "CREATE MACRO pg_get_indexdef(number) AS NULL::VARCHAR, (number, place, pretty) AS NULL::VARCHAR",
    "CREATE MACRO pg_get_constraintdef(number) AS NULL::VARCHAR, (number, pretty) AS NULL::VARCHAR",
    "CREATE MACRO pg_get_ruledef(number) AS NULL::VARCHAR, (number, pretty) AS NULL::VARCHAR",
    "CREATE MACRO pg_get_triggerdef(number) AS NULL::VARCHAR, (number, pretty) AS NULL::VARCHAR",
    "CREATE MACRO pg_get_viewdef(number) AS NULL::VARCHAR, (number, pretty) AS NULL::VARCHAR",
    "CREATE MACRO pg_get_partkeydef(number) AS NULL::VARCHAR",
    "CREATE MACRO pg_get_statisticsobjdef_columns(number) AS NULL::VARCHAR",
    "CREATE MACRO array_upper(list, dimension) AS len(list)",
    "CREATE MACRO pg_table_size(relation) AS 0",
    "CREATE MACRO pg_size_pretty(bytes) AS bytes::VARCHAR || ' bytes'",
    "CREATE MACRO pg_get_function_result(number) AS NULL::VARCHAR",
    "CREATE MACRO pg_get_function_arguments(number) AS NULL::VARCHAR",
    "CREATE MACRO pg_function_is_visible(number) AS true",
    "CREATE MACRO pg_relation_is_publishable(relation) AS false",
    "CREATE MACRO pg_encoding_to_char(number) AS 'UTF8'",
    "CREATE MACRO pg_my_temp_schema() AS 0",
    "CREATE MACRO pg_is_in_recovery() AS true",
    "CREATE MACRO pg_backend_pid() AS 0",
    "CREATE MACRO current_schemas(implicit) AS ['pg_catalog', 'main']",
    "CREATE MACRO quote_ident(word) AS '\"' || word || '\"'",
    "CREATE MACRO set_config(name, value, here) AS value",
    "CREATE MACRO current_setting(name) AS CASE name WHEN 'server_version_num' THEN '150000' ELSE '' END",
    "CREATE MACRO has_table_privilege(relation, what) AS true, (role, relation, what) AS true",
    "CREATE MACRO has_schema_privilege(schema, what) AS true, (role, schema, what) AS true",
    "CREATE MACRO obj_description(number) AS (SELECT d.description FROM pg_description AS d WHERE d.objoid = number "
    "AND d.objsubid = 0), (number, catalogue) AS (SELECT d.description FROM pg_description AS d "
    "WHERE d.objoid = number AND d.objsubid = 0)",
    "CREATE MACRO col_description(number, place) AS (SELECT d.description FROM pg_description AS d "
    "WHERE d.objoid = number AND d.objsubid = place)",
)
