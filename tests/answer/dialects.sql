## keys of postgres
-- age // 10
age / 10;
# towards 0 for negative numbers
-- (age - 30) // 7
(age - 30) / 7;
-- age / 10.0
age / 10.0;
-- age / 10.0
CAST(age AS DOUBLE PRECISION) / 10;
-- 202.5 + age
EXTRACT(YEAR FROM DATE '2025-03-01') / 10 + age;
-- CAST(age / 8.0 AS INT)
CAST(age / 8.0 AS INT);
-- -age % 7
-age % 7;
-- SUBSTRING(region, 1, 2)
SUBSTRING(region, -1, 4);
-- REGEXP_MATCHES(region, 'or')
region ~ 'or';
-- region = 'north'
region LIKE 'n\orth';

## keys of trino
-- 202 + age
year(DATE '2025-03-01') / 10 + age;

## keys of tsql
-- age // 10
age / 10;
-- TRUNC(age / 8.0)
CAST(age / 8.0 AS INT);

## keys of mysql
-- age / 10
age / 10;

## keys of duckdb
-- age / 10
age / 10;
-- SUBSTRING(region, -2, 2)
SUBSTRING(region, -2, 2);
-- REGEXP_FULL_MATCH(region, 'n.*')
region ~ 'n.*';
-- FALSE AND region = ''
region LIKE 'n\orth';

## times of mysql
-- DAYOFWEEK(sold_on) + 1
DAYOFWEEK(sold_on);
-- ISODOW(sold_on) - 1
WEEKDAY(sold_on);

## times of bigquery
-- DAYOFWEEK(sold_on) + 1
EXTRACT(DAYOFWEEK FROM sold_on);
-- sold_on >= DATE '2025-02-01'
sold_on >= TIMESTAMP '2025-02-01';

## times of postgres
-- DAYOFWEEK(sold_on)
EXTRACT(DOW FROM sold_on);
-- (sold_on - DATE '2025-01-01') // 7
(sold_on - DATE '2025-01-01') / 7;
-- sold_on >= DATE '2025-02-01'
sold_on::timestamptz >= '2025-02-01 02:00:00+02'::timestamptz;
-- DATE_TRUNC('month', sold_on)
DATE_TRUNC('month', sold_on)::timestamptz;

## times of tsql
-- DAYOFWEEK(sold_on) + 1
DATEPART(weekday, sold_on);

## clocks of postgres
-- sold_on >= DATE '2025-01-16'
sold_on >= CURRENT_DATE - INTERVAL '30 days';
-- sold_on >= DATE '2025-01-06'
sold_on >= CURRENT_DATE + (-40) * INTERVAL '1 DAY';
-- sold_on < DATE '2025-02-01'
sold_on < DATE_TRUNC('month', NOW());
-- sold_on < DATE '2025-02-15'
sold_on < NOW()::date;
-- sold_on = DATE '2025-02-15'
sold_on = (LOCALTIMESTAMP AT TIME ZONE 'UTC')::date;
-- sold_on = DATE '2025-02-16'
sold_on = (NOW() AT TIME ZONE 'Pacific/Kiritimati')::date;
-- sold_on >= DATE '2025-02-06'
sold_on >= (SELECT (DATE_TRUNC('day', CURRENT_TIMESTAMP AT TIME ZONE 'UTC') + (-9 || ' day')::INTERVAL));

## clocks of mysql
-- sold_on >= DATE '2025-02-08'
sold_on >= CURDATE() - INTERVAL 7 DAY;

## clocks of tsql
-- sold_on >= DATE '2025-02-08'
sold_on >= DATEADD(day, -7, CAST(GETDATE() AS DATE));

## clocks of snowflake
-- sold_on >= DATE '2025-02-08'
sold_on >= DATEADD(day, -7, CURRENT_DATE());

## clocks of bigquery
-- sold_on >= DATE '2025-02-08'
sold_on >= DATE_SUB(CURRENT_DATE(), INTERVAL 7 DAY);

## clocks of duckdb
-- sold_on >= DATE '2025-02-08'
sold_on >= today() - 7;

## names of postgres
-- count, sum, amount_2, Mean, max
COUNT(*), SUM(amount), amount_2, AVG(qty) AS "Mean", MAX(Age);
-- count, ?column?, text, ?column?, coalesce, int4
COUNT(*)::float8, 1, 'a'::text, 2 * COUNT(*), COALESCE(SUM(qty), 0), CAST(1 AS INT);
-- case, sum, ?column?
CASE WHEN COUNT(*) > 1 THEN 1 END, CASE WHEN COUNT(*) > 1 THEN 1 ELSE SUM(qty) END, -COUNT(*);
-- round, greatest, c, count
ROUND(AVG(qty), 2), GREATEST(COUNT(*), 1), (SELECT COUNT(*) AS c FROM sales), COUNT(*) FILTER (WHERE age > 20);

## names of bigquery
-- f0_, s, f1_
COUNT(*), SUM(amount) AS s, COUNT(*) + 1;

## names of trino
-- _col0, s, _col2
COUNT(*), SUM(amount) AS s, COUNT(*) + 1;

## names of duckdb
-- count_star(), sum(amount)
COUNT(*), SUM(amount);
