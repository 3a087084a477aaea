$NEVER = WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT
$AWAY = ALTER TABLE meta RENAME TO meta_before;

## statements
-- meta is a view
$AWAY CREATE VIEW meta AS FROM meta_before;
-- meta is a view that never ends
$AWAY CREATE VIEW meta AS $NEVER 'format' AS key, i::VARCHAR AS value FROM r;
-- numbers are a view that never ends
ALTER TABLE node_combination_0 RENAME TO n; CREATE VIEW node_combination_0 AS SELECT a.*
  FROM n AS a, range(1000000000) AS b, range(1000000000) AS c;
-- an axis is a view
ALTER TABLE axis_0 RENAME TO a; CREATE VIEW axis_0 AS FROM a;
-- a macro sum
CREATE MACRO sum(x) AS 42;
-- a macro count
CREATE MACRO count(x) AS 42;
-- a macro strlen
CREATE MACRO strlen(x) AS 0;
-- a macro unnest
CREATE MACRO list_value(x) AS 0;
-- a table macro of DuckDB's name
CREATE MACRO duckdb_views() AS TABLE SELECT 1 AS view_name WHERE false; CREATE VIEW hidden AS SELECT 1;
-- a macro that never ends
CREATE MACRO m() AS TABLE $NEVER i FROM r;
-- a sequence
CREATE SEQUENCE s;
-- a type
CREATE TYPE mood AS ENUM ('happy');
-- an index
CREATE INDEX i ON node_combination_0 (n1);
-- a schema
CREATE SCHEMA other;
-- a table elsewhere
CREATE SCHEMA other; CREATE TABLE other.meta AS FROM meta;
-- a comment on a column
COMMENT ON COLUMN node.id IS 'alice';
-- a default
ALTER TABLE node ALTER COLUMN id SET DEFAULT 7;
-- a computed column
ALTER TABLE scale ADD COLUMN x INTEGER; DROP TABLE scale; CREATE TABLE scale (of_table VARCHAR, measure VARCHAR
  GENERATED ALWAYS AS (of_table));
-- a check
$AWAY CREATE TABLE meta (key VARCHAR CHECK (key <> ''), value VARCHAR); INSERT INTO meta FROM meta_before; DROP TABLE meta_before;
-- a key
$AWAY CREATE TABLE meta (key VARCHAR PRIMARY KEY, value VARCHAR); INSERT INTO meta FROM meta_before; DROP TABLE meta_before;
-- an unexpected table
CREATE TABLE raw AS SELECT 1 AS card;
-- a table too few
DROP TABLE variance_0;
-- no node table
DROP TABLE node;
-- a renamed column
ALTER TABLE node_combination_0 RENAME COLUMN estimate TO guess;
-- columns swapped
CREATE TABLE node_new AS SELECT id, axis, parent, level, lo, hi
  FROM node; DROP TABLE node; ALTER TABLE node_new RENAME TO node;
-- estimates are floats
ALTER TABLE node_combination_0 ALTER COLUMN estimate TYPE DOUBLE;
-- estimates are text
ALTER TABLE node_combination_0 ALTER COLUMN estimate TYPE VARCHAR;
-- estimates are wide
ALTER TABLE node_combination_0 ALTER COLUMN estimate TYPE HUGEINT;
-- leaves are wide
ALTER TABLE axis_0 ALTER COLUMN leaf TYPE BIGINT;
-- leaves are lists
CREATE TABLE axis_0_new AS SELECT * REPLACE ([leaf] AS leaf)
  FROM axis_0; DROP TABLE axis_0; ALTER TABLE axis_0_new RENAME TO axis_0;
-- NULL estimates
UPDATE node_combination_0 SET estimate = NULL;
-- NULL nodes
UPDATE node_combination_0 SET n1 = NULL;
-- huge estimates
UPDATE node_combination_0 SET estimate = 9223372036854775807;
-- nodes of no tree
UPDATE node_combination_0 SET n1 = n1 + 100000;
-- numbers twice
INSERT INTO node_combination_0 FROM node_combination_0;
-- numbers missing
DELETE FROM node_combination_0 WHERE n1 > 3;
-- no numbers
DELETE FROM node_combination_0;
-- NULL leaves
UPDATE axis_0 SET leaf = NULL;
-- leaves out of range
UPDATE axis_0 SET leaf = leaf + 1000000;
-- negative leaves
UPDATE axis_0 SET leaf = -1;
-- NaN weights
UPDATE axis_0 SET weight = 'NaN';
-- infinite weights
UPDATE axis_0 SET weight = 'Infinity';
-- negative weights
UPDATE axis_0 SET weight = -1;
-- atoms of no kind
UPDATE axis_0 SET kind = 77;
-- no atoms
DELETE FROM axis_0;
-- millions of atoms
INSERT INTO axis_0 SELECT a.* FROM axis_0 AS a, range(200000);
-- control characters in labels
UPDATE axis_1 SET region = region || chr(27) || ']0;owned' || chr(7);
-- a label of megabytes
UPDATE axis_1 SET region = repeat('x', 40000000) WHERE atom = 0;
-- a tree upside down
UPDATE node SET lo = hi, hi = lo;
-- a tree in a ring
UPDATE node SET parent = id;
-- a tree of other leaves
UPDATE node SET axis = 1 - axis WHERE axis < 2;
-- a tree in one chain
DELETE FROM node; INSERT INTO node SELECT 0, i, i - 1, i, 0, 1 FROM range(1000000) AS r(i);
-- node ids twice
UPDATE node SET id = 0;
-- NULL nodes of a tree
UPDATE node SET hi = NULL;
-- no nodes
DELETE FROM node;
-- NULL variances
UPDATE variance_0 SET leaf = NULL;
-- NaN variances
UPDATE variance_0 SET leaf = 'NaN';
-- no variances
DELETE FROM variance_0;
-- millions of variances
INSERT INTO variance_0 SELECT 1 FROM range(40000000);
-- meta has a key twice
INSERT INTO meta SELECT key, value FROM meta WHERE key = 'format';
-- meta has a NULL
UPDATE meta SET value = NULL WHERE key = 'privacy';
-- meta lacks a key
DELETE FROM meta WHERE key = 'privacy';
-- meta has a key more
INSERT INTO meta VALUES ('note', '1');
-- meta is empty
DELETE FROM meta;
-- meta has a million rows
INSERT INTO meta SELECT 'k' || i, '1' FROM range(1000000) AS r(i);
-- meta is enormous
UPDATE meta SET value = repeat('[', 300000000) WHERE key = 'catalog';
