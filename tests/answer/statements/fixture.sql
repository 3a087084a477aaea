$JOINED = FROM sales s JOIN customer c ON s.customer_id = c.customer_id
$LEFT = FROM sales s LEFT JOIN customer c ON s.customer_id = c.customer_id
$PRICED = FROM sales JOIN product USING (product_id)
$CATEGORY = JOIN category g ON p.category_id = g.category_id
$YOUNG = CASE WHEN c.age < 30 THEN 1 WHEN c.region = 'north' THEN 2 ELSE 3 END
$THREE = CASE WHEN c.age < 30 THEN 'a' WHEN c.region = 'north' THEN 'b' ELSE 'c' END
$REGIONS = (SELECT region AS r, COUNT(*) AS n FROM customer GROUP BY 1) AS t
$TOP = (SELECT c.region AS r__, COUNT(*) AS n__ $JOINED GROUP BY c.region ORDER BY n__ DESC LIMIT 2) AS t

## as duckdb
SELECT SUM(amount - 1), SUM(2 - amount), AVG(amount + 3) FROM sales;
SELECT SUM(qty + 0), SUM(qty - 1), AVG(10 - qty), COUNT(qty - 1) FROM sales;
SELECT c.region, SUM(CASE WHEN c.age < 30 THEN qty + 1 END) $JOINED GROUP BY 1;
SELECT COUNT(*) $JOINED WHERE $YOUNG = 2;
SELECT COUNT(*) $JOINED WHERE NOT $YOUNG = 2;
SELECT COUNT(*) $JOINED WHERE $YOUNG <> 3;
SELECT COUNT(*) $JOINED WHERE CASE WHEN c.age < 30 THEN c.region = 'north' ELSE c.region = 'south' END;
SELECT COUNT(*) $JOINED WHERE NOT CASE WHEN c.age < 30 THEN c.region = 'north' ELSE c.region = 'south' END;
SELECT SUM(CASE WHEN $YOUNG = 1 THEN amount ELSE 0 END) $JOINED;
SELECT COUNT(*) FROM sales WHERE amount IS NULL;
SELECT COUNT(*) FROM sales NATURAL JOIN customer;
SELECT c.region, COUNT(*) $JOINED GROUP BY 1 ORDER BY 1 LIMIT 2 OFFSET 1;
SELECT c.region, c.age > 30 AS old, COUNT(*), SUM(amount) $JOINED GROUP BY ROLLUP (c.region, old);
SELECT c.region > 'n' AS region, c.age > 30 AS old, COUNT(*) $JOINED GROUP BY CUBE (region, old) ORDER BY 3, 1;
SELECT c.region, GROUPING(c.region), COUNT(*) $JOINED GROUP BY CUBE (c.region);
SELECT c.region, c.age > 30 AS old, COUNT(*) $JOINED GROUP BY GROUPING SETS ((c.region), (old), ())
  HAVING COUNT(*) > 100;
SELECT SUM(n) FROM (SELECT c.region, COUNT(*) AS n $JOINED GROUP BY ROLLUP (c.region)) AS t;
SELECT COUNT(*) FROM (sales s JOIN customer c ON s.customer_id = c.customer_id) JOIN product p USING (product_id);
SELECT COUNT(*), SUM(s.amount) FROM sales s JOIN (product p $CATEGORY) ON s.product_id = p.product_id
  WHERE g.category = 'tea';
SELECT g.category, COUNT(*) FROM ((sales s JOIN product p USING (product_id)) $CATEGORY) GROUP BY 1;
SELECT g.category, COUNT(*) FROM sales s LEFT JOIN (product p LEFT $CATEGORY) ON s.product_id = p.product_id
  GROUP BY 1;
SELECT g.category, COUNT(s.amount), SUM(s.amount), AVG(s.qty + 1), COUNT(s.product_id) FROM product p $CATEGORY LEFT
  JOIN sales s ON p.product_id = s.product_id GROUP BY g.category;
SELECT c.region, COUNT(s.amount), SUM(s.amount) FILTER (WHERE c.age > 30) FROM sales s RIGHT JOIN customer c
  ON c.customer_id = s.customer_id WHERE c.age > 20 GROUP BY 1;
SELECT SUM(s.amount) FROM category g JOIN product p ON p.category_id = g.category_id LEFT JOIN sales s
  ON p.product_id = s.product_id WHERE s.sold_on > DATE '2025-02-01';
SELECT COUNT(*) FROM customer WHERE region = ANY (['north', 'south']) OR age = ANY (SELECT 20);
SELECT COUNT(*) FROM customer WHERE (region, age) IN (SELECT 'north', 20 UNION ALL SELECT 'east', 21);
SELECT TIME_BUCKET(INTERVAL '1 month', sold_on), COUNT(*) FROM sales GROUP BY 1;
SELECT TRUNC(age / 7), COUNT(*) FROM customer GROUP BY 1;
SELECT c.age, SUM(t.n + 1), AVG(t.n), COUNT(t.n) $JOINED JOIN (SELECT region, COUNT(*) AS n FROM customer GROUP BY 1
  ORDER BY 2 DESC LIMIT 3) AS t ON c.region = t.region GROUP BY 1;
SELECT c.region, MAX(t.n), SUM(t.n), AVG(t.n), COUNT(t.n) $JOINED LEFT JOIN (SELECT region, COUNT(*) AS n
  FROM customer GROUP BY 1 ORDER BY 2 DESC LIMIT 2) AS t ON c.region = t.region GROUP BY 1;
-- SELECT region, COUNT(*) FROM sales JOIN customer USING (customer_id) GROUP BY 1 ORDER BY 1 LIMIT 2 OFFSET 1
SELECT region, COUNT(*) FROM sales JOIN customer USING (customer_id) GROUP BY 1
  ORDER BY 1 OFFSET 1 ROWS FETCH NEXT 2 ROWS ONLY;
-- SELECT STRFTIME(sold_on, '%Y-%m'), COUNT(*) FROM sales GROUP BY 1
SELECT TO_CHAR(sold_on, 'YYYY-MM') AS m, COUNT(*) FROM sales GROUP BY 1;
-- SELECT COUNT(*) FROM sales WHERE sold_on >= DATE '2025-02-01'
SELECT COUNT(*) FROM sales WHERE sold_on AT TIME ZONE 'UTC' >= TIMESTAMP '2025-02-01';
-- SELECT COUNT(*) FROM sales WHERE sold_on >= DATE '2025-02-01' AND sold_on < DATE '2025-03-01'
SELECT COUNT(*) FROM sales WHERE sold_on >= {d '2025-02-01'} AND sold_on < {ts '2025-03-01 00:00:00'};
-- SELECT CASE WHEN age < 20 THEN 0 WHEN age >= 35 THEN 5 ELSE (age - 20) * 4 // 15 + 1 END, COUNT(*) FROM customer GROUP BY 1
SELECT WIDTH_BUCKET(age, 20, 35, 4) AS b, COUNT(*) FROM customer GROUP BY 1;
-- SELECT RPAD(DAYNAME(sold_on), 9, ' '), STRFTIME(sold_on, '%B %d, w%a'), COUNT(*) FROM sales GROUP BY 1, 2
SELECT TO_CHAR(sold_on, 'Day') AS d, TO_CHAR(sold_on, 'FMMonth DD, "w"Dy') AS e, COUNT(*) FROM sales GROUP BY 1, 2;
-- SELECT COUNT(*) FROM customer WHERE region = 'north'
SELECT COUNT(*) FROM customer WHERE region = ANY ('{north,west}') AND NOT (region) = ('west');
-- SELECT CAST(sold_on AS TIMESTAMP) + INTERVAL '345 minutes', COUNT(*) FROM sales GROUP BY 1
SELECT sold_on::timestamptz AT TIME ZONE 'Asia/Kathmandu' AS t, COUNT(*) FROM sales GROUP BY 1;
-- SELECT CAST(sold_on AS TIMESTAMP) + INTERVAL '4 hours', COUNT(*) FROM sales WHERE sold_on > '2025-03-10' GROUP BY 1
SELECT sold_on::timestamp AT TIME ZONE 'America/New_York' AS t, COUNT(*) FROM sales WHERE sold_on > '2025-03-10'
  GROUP BY 1;
-- SELECT COUNT(*) FROM sales WHERE sold_on >= DATE '2025-01-29'
SELECT COUNT(*) FROM sales WHERE sold_on >= (SELECT DATE '2025-02-01' + (-3 || ' day')::INTERVAL);
-- SELECT CAST(r AS TIMESTAMP), COUNT(s.sale_id) FROM range(TIMESTAMP '2024-12-25', TIMESTAMP '2025-01-11', INTERVAL '1 day') AS t(r) LEFT JOIN sales s ON s.sold_on = r GROUP BY 1
SELECT g.d, COALESCE(n, 0) FROM generate_series(DATE '2024-12-25', DATE '2025-01-10', INTERVAL '1 day') AS g(d) LEFT
  JOIN (SELECT sold_on AS s, COUNT(*) AS n FROM sales GROUP BY 1) AS t ON t.s = g.d;
-- SELECT unnest([9, 25, 49, 81])
SELECT n * n FROM generate_series(3, 9, 2) AS n;
SELECT $THREE AS k, COUNT(*), SUM(amount), AVG(amount), AVG(qty), SUM(c.age) $JOINED GROUP BY 1;
SELECT $THREE AS k, category, COUNT(*) $JOINED JOIN product USING (product_id) JOIN category USING (category_id)
  GROUP BY k, category HAVING COUNT(*) > 10;
SELECT c.age > 30 AND c.region = 'north', COUNT(*) $JOINED GROUP BY 1;
SELECT c.region || c.age, COUNT(*) $JOINED GROUP BY 1;
SELECT k, SUM(n) FROM (SELECT $THREE AS k, COUNT(*) AS n $JOINED GROUP BY 1) AS q GROUP BY k;
SELECT $THREE AS k, COUNT(*), 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () $JOINED GROUP BY 1;
SELECT DISTINCT c.age > 30 OR c.region = 'north' $JOINED WHERE c.age IS NOT NULL AND c.region IS NOT NULL;
SELECT STDDEV_POP(age), VAR_POP(age) FROM customer;
SELECT STDDEV(age), VARIANCE(age) FROM customer WHERE age > 0;
SELECT region, STDDEV(c.age), COUNT(*) $JOINED WHERE age > 0 GROUP BY 1;
SELECT COUNT(*), SUM(amount) $JOINED WHERE c.age - 20 > LENGTH(c.region);
SELECT c.region, COUNT(*) $JOINED WHERE c.age % 7 < LENGTH(c.region) AND c.age > 20 GROUP BY 1;
SELECT COUNT(*), SUM(amount) FROM sales WHERE product_id IN (SELECT product_id FROM product
  JOIN category USING (category_id) WHERE category = 'tea');
SELECT COUNT(*) FROM sales WHERE product_id NOT IN (SELECT p.product_id FROM product p JOIN category c
  ON p.category_id = c.category_id WHERE c.category = 'tea');
SELECT COUNT(*) FROM sales s WHERE EXISTS (SELECT 1 FROM customer c WHERE c.customer_id = s.customer_id
  AND c.age < 30);
SELECT COUNT(*) FROM sales s WHERE NOT EXISTS (SELECT * FROM customer c WHERE s.customer_id = c.customer_id
  AND c.age < 30);
SELECT COUNT(*) FROM sales s WHERE customer_id IN (SELECT customer_id FROM customer WHERE age < 30)
  AND customer_id IN (SELECT customer_id FROM customer WHERE region = 'north');
SELECT c.region, COUNT(*) $JOINED WHERE c.customer_id IN (SELECT customer_id FROM customer
  WHERE age < 30) OR c.region = 'north' GROUP BY 1;
SELECT COUNT(*) FROM sales WHERE product_id IN (SELECT product_id FROM product);
SELECT region, COUNT(*) AS n, AVG(amount) $JOINED JOIN $TOP ON region = r__ GROUP BY region;
SELECT c.region, c.age > 30, COUNT(*) $JOINED WHERE c.region IN (SELECT r__ FROM $TOP) GROUP BY 1, 2;
SELECT COUNT(*), MIN(c.age) $JOINED JOIN $TOP ON region = r__;
WITH t AS (SELECT c.region AS r, COUNT(*) AS n $JOINED GROUP BY 1) SELECT c.region, COUNT(*), SUM(amount) $JOINED
  JOIN t ON t.r = c.region WHERE t.n > 150 GROUP BY 1;
SELECT c.region, t.n, COUNT(*) $JOINED JOIN $REGIONS ON t.r = c.region GROUP BY 1, 2;
SELECT t.r, COUNT(*) FROM $REGIONS JOIN customer c ON c.region = t.r GROUP BY 1;
SELECT c.region, COUNT(*) $JOINED LEFT JOIN $TOP ON region = r__ WHERE r__ IS NULL GROUP BY 1;
SELECT c.region, COUNT(*) $JOINED JOIN (VALUES ('north', 1), ('south', 2)) AS v(r, w) ON v.r = c.region GROUP BY 1;
SELECT v.w, COUNT(*) $JOINED JOIN (VALUES ('north', 1), ('south', 2), ('south', 3)) AS v(r, w) ON v.r = c.region
  GROUP BY 1;
SELECT COUNT(*) $JOINED WHERE c.region IN (SELECT region FROM customer WHERE age < 20);
SELECT COUNT(*) $JOINED WHERE c.region NOT IN (SELECT DISTINCT region FROM customer WHERE region < 'o');
SELECT COUNT(*) FROM customer WHERE age > (SELECT AVG(age) FROM customer);
SELECT c.region, AVG(amount) $JOINED WHERE EXISTS (SELECT 1 FROM (SELECT c.region AS region, COUNT(*) AS n $JOINED
  GROUP BY c.region ORDER BY n LIMIT 2) t0 WHERE ((c.region = t0.region) OR (c.region IS NULL AND t0.region IS NULL)))
  GROUP BY 1;
SELECT c.region, COUNT(*) $JOINED WHERE EXISTS (SELECT 1 FROM $TOP WHERE c.region = t.r__) AND EXISTS (SELECT 1
  FROM (SELECT r, n FROM $REGIONS ORDER BY n DESC LIMIT 3) AS t WHERE c.region = t.r) GROUP BY 1;
SELECT region, COUNT(*), n FROM customer JOIN (SELECT region, COUNT(*) AS n FROM customer
  GROUP BY 1) AS t USING (region) GROUP BY 1, 3;
SELECT region, COUNT(*) FROM customer WHERE region IN (SELECT r FROM $REGIONS WHERE n > 20) GROUP BY 1;

## defined
SELECT SUM(age), AVG(age) FROM customer;
SELECT region, SUM(age), AVG(age) FROM customer GROUP BY 1;
SELECT SUM(age) FILTER (WHERE region = 'north'), SUM(-age), SUM(3 - age) FROM customer;
SELECT AVG(c.age * 2 + 1), SUM(c.age % 10), SUM(c.age * c.age) $JOINED WHERE c.age > 25;
SELECT SUM(amount * c.age), AVG(amount * c.age), SUM(amount / c.age), SUM(s.qty * c.age) $JOINED;
SELECT SUM(CASE WHEN c.region = 'north' THEN c.age ELSE 0 END), SUM(c.age) $LEFT;
SELECT SUM(age > 30), AVG(CASE WHEN age > 30 THEN 1 ELSE 0 END) FROM customer;
SELECT SUM(EXTRACT(day FROM sold_on)), AVG(EXTRACT(month FROM sold_on)) FROM sales;
SELECT SUM(LENGTH(region)), SUM(COALESCE(age, 0)) FROM customer;
SELECT SUM(age) / COUNT(age), SUM(age) - AVG(age) FROM customer WHERE age IS NOT NULL AND age < 99;
SELECT AVG(age * age) - AVG(age) * AVG(age) FROM customer;
SELECT region, age // 10 * 10, SUM(age) FROM customer GROUP BY 1, 2;
SELECT COUNT(*), SUM(amount) $LEFT WHERE c.customer_id IS NULL;
SELECT COUNT(*) $LEFT WHERE c.customer_id IS NOT NULL AND c.age > 30;
SELECT COUNT(*), SUM(amount) $LEFT WHERE c.customer_id IS NULL OR c.age > 30;
SELECT c.region, COUNT(c.customer_id) $LEFT GROUP BY 1;
SELECT COUNT(s.customer_id), COUNT(c.customer_id) $JOINED;
SELECT COUNT(*), COUNT(product_id) FROM sales WHERE product_id IS NOT NULL;

## row for row
SELECT COUNT(*), SUM(amount), SUM(qty), COUNT(qty), AVG(qty) FROM sales;
SELECT COUNT(*) FROM main.sales s, main.customer AS c WHERE c.customer_id = s.customer_id;
SELECT COUNT(*) FROM sales INNER JOIN customer USING (customer_id) WHERE 20 <= age AND age < 30;
SELECT region, COUNT(*) n FROM sales LEFT JOIN customer USING (customer_id) GROUP BY region;
SELECT "region" AS "count", COUNT(*) FROM "sales" JOIN "customer" ON "sales"."customer_id" =
  "customer"."customer_id"
  GROUP BY "region";
SELECT department, category, SUM(amount) $PRICED JOIN category USING (category_id) GROUP BY department, category;
SELECT EXTRACT(MONTH FROM sold_on) AS m, COUNT(*) FROM sales GROUP BY m ORDER BY m DESC LIMIT 2;
SELECT DATE_TRUNC('month', sold_on) AS sold_on, COUNT(*) FROM sales GROUP BY DATE_TRUNC('month', sold_on);
SELECT FLOOR((age - 18) / 5) * 5 + 18 AS b, COUNT(*) FROM customer WHERE age BETWEEN 18 AND 37 GROUP BY b;
SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE age > 30 OR region = 'north';
SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE NOT (age > 30 AND region = 'north');
SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE (age, region) IN ((20, 'north'), (21, 'south'));
SELECT COUNT(*) FROM sales LEFT JOIN customer USING (customer_id) WHERE region IS NULL;
SELECT COUNT(*) FROM sales LEFT JOIN customer USING (customer_id) WHERE NOT region IS NULL;
SELECT SUM(CASE WHEN age < 25 THEN amount ELSE 0 END) / NULLIF(SUM(amount), 0) FROM sales
  JOIN customer USING (customer_id);
SELECT COUNT(*) FILTER (WHERE region = 'east'), COUNT_IF(age > 30) FROM sales JOIN customer USING (customer_id);
SELECT r, n FROM (SELECT region AS r, COUNT(*) AS n FROM (SELECT c.region, s.amount $JOINED
  WHERE age > 20) AS virtual_table GROUP BY region) AS t WHERE n > 50 ORDER BY n DESC;
WITH x AS (SELECT c.region AS r, s.amount AS a FROM sales s
  JOIN customer c USING (customer_id)), y AS (SELECT r, SUM(a) AS t FROM x GROUP BY r)
  SELECT r, t, RANK() OVER (ORDER BY t DESC) AS k FROM y WHERE r IS NOT NULL ORDER BY k;
SELECT 'all' AS k, COUNT(*) AS n FROM sales UNION ALL SELECT 'teens', COUNT(*) FROM sales
  JOIN customer USING (customer_id) WHERE age < 20;
SELECT COUNT(*) * 100.0 / (SELECT COUNT(*) FROM sales) FROM sales JOIN customer USING (customer_id) WHERE age > 30;
SELECT region, COUNT(*) AS n FROM customer GROUP BY ALL HAVING COUNT(*) > 20 ORDER BY COUNT(*), region;
SELECT region, SUM(amount) AS amount FROM sales JOIN customer USING (customer_id) GROUP BY 1 HAVING amount > 100;
SELECT region AS r, COUNT(*) AS region FROM customer GROUP BY customer.region HAVING region = 'north';
SELECT AVG(sold_on - DATE '2025-01-03') AS late, SUM(DATE '2026-01-01' - sold_on) AS days FROM sales;
SELECT region, SUM(amount) AS m, SUM(SUM(amount)) OVER (ORDER BY region) FROM sales JOIN customer USING
  (customer_id)
  WHERE region IS NOT NULL GROUP BY region;
SELECT COUNT(*) FROM customer WHERE age BETWEEN 30 AND 20;
SELECT COUNT(*) FROM customer WHERE 1 = 0 OR age = 20;
SELECT SUM(amount * qty) FROM sales;
SELECT PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY age) FROM customer WHERE region = 'east';
SELECT COUNT(DISTINCT region) FROM customer;
SELECT MIN(age), MAX(age) FROM customer;
SELECT DISTINCT department FROM category ORDER BY 1;
SELECT 1 AS one, 'x' AS x;

## bounded
SELECT 'all', SUM(price), AVG(price), SUM(price * price) $PRICED;
SELECT 'all', SUM(price), SUM(10 - price) $PRICED WHERE price < 18;
SELECT 'all', SUM(price), SUM(price) FILTER (WHERE price >= 4) $PRICED;
SELECT price // 10, SUM(price), AVG(price) $PRICED GROUP BY 1;
SELECT 'all', SUM(CASE WHEN region = 'north' THEN price END) $PRICED JOIN customer USING (customer_id);

## errors alike
-- SELECT COUNT(*) $JOINED WHERE c.age < 30
SELECT n FROM (SELECT $THREE AS k, COUNT(*) AS n $JOINED GROUP BY 1) AS q WHERE k = 'a';
-- SELECT COUNT(*) $JOINED WHERE c.region < 'o'
SELECT COUNT(*) $JOINED JOIN $REGIONS ON t.r = c.region WHERE t.r < 'o';
-- SELECT COUNT(*) $JOINED WHERE c.region = 'east'
SELECT COUNT(*) $JOINED JOIN $TOP ON region = r__ WHERE region = 'east' GROUP BY region;
-- SELECT SUM(amount) FROM sales s LEFT JOIN customer c USING (customer_id) WHERE c.customer_id IS NULL
SELECT SUM(amount) FROM sales s WHERE NOT EXISTS (SELECT 1 FROM customer c WHERE c.customer_id = s.customer_id);

## refused NotSupportedError
-- keys that find no customer are counted together
SELECT COUNT(*) FROM sales WHERE customer_id NOT IN (SELECT customer_id FROM customer WHERE age < 30);
-- IN under NOT is not true where the key is NULL
SELECT COUNT(*) FROM sales WHERE NOT (customer_id IN (SELECT customer_id FROM customer) OR qty = 3);
-- rows other than a partner by its key
SELECT COUNT(*) $JOINED WHERE EXISTS (SELECT 1 FROM customer d WHERE d.region = c.region);
-- may have several rows for one
SELECT COUNT(*) FROM customer c WHERE EXISTS (SELECT 1 FROM (SELECT region, age, COUNT(*) n FROM customer
  GROUP BY 1, 2) AS t WHERE t.region = c.region);
-- a correlated subquery
SELECT COUNT(*) $JOINED WHERE c.age > (SELECT AVG(d.age) FROM customer d WHERE d.region = c.region);
-- outer side of a join
SELECT t.r, COUNT(*) FROM $REGIONS LEFT JOIN customer c ON c.region = t.r GROUP BY 1;
-- an answer's column and of rows together
SELECT SUM(t.n * c.age) $JOINED JOIN $REGIONS ON t.r = c.region;
-- of which some may have no row
SELECT MAX(t.n) $JOINED JOIN $REGIONS ON t.r = c.region;
-- inside an aggregate ties two axes
SELECT COUNT(*) FILTER (WHERE c.age - 20 > LENGTH(c.region)) $JOINED;
-- quantiles and distinct values of several groups
SELECT $THREE, MEDIAN(c.age) $JOINED GROUP BY 1;
-- a correlated subquery
SELECT region, (SELECT COUNT(*) FROM customer d WHERE d.region = c.region) FROM customer c GROUP BY 1;
-- SEMI JOIN is not supported; .. over its key
SELECT COUNT(*) FROM sales SEMI JOIN customer USING (customer_id);
-- ASOF JOIN is not supported
SELECT COUNT(*) FROM sales ASOF JOIN customer USING (customer_id);
-- no view counts rows of product
SELECT SUM(price) FROM product;
-- ask the curator for `squares(sales.amount)`
SELECT STDDEV(amount) FROM sales;
-- on one axis
SELECT SUM(c.age * price) $JOINED JOIN product USING (product_id);
-- are counted together
SELECT COUNT(*) FROM sales WHERE customer_id IS NULL;
-- the value of a single row is not published
SELECT ANY_VALUE(region) FROM customer;
-- EXISTS over answers
SELECT t.n FROM (SELECT COUNT(*) AS n FROM sales) AS t WHERE EXISTS (SELECT 1);
SELECT COUNT(*) FROM sales WHERE sold_on AT TIME ZONE 'Asia/Tokyo' >= TIMESTAMP '2025-02-01';
SELECT region, COUNT(*) FROM shop GROUP BY 1 ORDER BY 1 FETCH FIRST 10 PERCENT ROWS ONLY;
SELECT region, COUNT(*) FROM shop GROUP BY 1 ORDER BY 1 FETCH FIRST 10 ROWS WITH TIES;
SELECT TO_CHAR(sold_on, 'J'), COUNT(*) FROM sales GROUP BY 1;
SELECT TO_CHAR(sold_on, 'YYYY Q'), COUNT(*) FROM sales GROUP BY 1;
SELECT TO_CHAR(sold_on, 'MONTH'), COUNT(*) FROM sales GROUP BY 1;
SELECT UNIX_TIMESTAMP(sold_on), COUNT(*) FROM sales GROUP BY 1;
SELECT DATEADD('month', 1, sold_on), COUNT(*) FROM sales GROUP BY 1;
SELECT APPROX_COUNT_DISTINCT(age) FROM customer;
SELECT WIDTH_BUCKET(age, 40, 18, 4), COUNT(*) FROM customer GROUP BY 1;
SELECT WIDTH_BUCKET(age, 18, age, 4), COUNT(*) FROM customer GROUP BY 1;
SELECT COUNT(*) FROM sales WHERE sold_on::timestamptz AT TIME ZONE 'CET' >= TIMESTAMP '2025-02-01';
SELECT COUNT(*) FROM customer WHERE region = ANY ('{"a,b",c}');
SELECT * FROM generate_series(1, 100000000000);
SELECT * FROM generate_series(1, 5, 0);
SELECT * FROM generate_series(1, (SELECT COUNT(*) FROM sales));
SELECT * FROM sales JOIN generate_series(1, age) AS g(n) ON TRUE;
SELECT MODE(region) FROM customer;
SELECT * FROM range(3);
SELECT MODE() WITHIN GROUP (ORDER BY region) FROM customer;
SELECT STRING_AGG(region, ', ') FROM customer;
SELECT MEDIAN(t.n) $JOINED JOIN (SELECT region, COUNT(*) AS n FROM customer GROUP BY 1) AS t ON c.region = t.region;
SELECT g.category, COUNT(*) FROM product p $CATEGORY LEFT JOIN sales s USING (product_id) GROUP BY 1;
SELECT SUM(1) FROM product p $CATEGORY LEFT JOIN sales s ON p.product_id = s.product_id;
SELECT SUM(s.amount) FROM product p $CATEGORY LEFT JOIN sales s ON p.product_id = s.product_id
  WHERE s.sold_on IS NULL OR g.category = 'tea';
SELECT COUNT(p.price) FROM sales s RIGHT JOIN product p ON p.product_id = s.product_id;
SELECT COUNT(*) FROM sales s LEFT JOIN (product p $CATEGORY) ON s.product_id = p.product_id;

## refused DataError
-- region holds text
SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE region > 0;
-- types of its columns
SELECT SUM(region) FROM customer;
-- types of its columns
SELECT SUM(sold_on) FROM sales;

# A misspelt column was told that a release has no rows, and SELECT alone in DuckDB's words.
## refused UnknownName
SELECT agee FROM customer;

## refused RawRowsError
SELECT age FROM customer;
SELECT * FROM customer WHERE 1 = 1;
SELECT * FROM customer WHERE 1 = 1.0;
SELECT * FROM customer WHERE '1' = 1;

## refused SqlSyntaxError
SELECT;
SELECT *;
-- quote it if it is a name ("union")
SELECT COUNT(*) FROM sales WHERE union = 1;


# Statements in the words of other systems; each needs a dialect.
$KEYS = AS k, COUNT(*) AS n $JOINED WHERE region IS NOT NULL GROUP BY 1 ORDER BY 1
$TIMES = AS k, COUNT(*) AS n FROM sales GROUP BY 1
$WHEN = SELECT COUNT(*) AS n FROM sales WHERE

## as duckdb in postgres
-- SELECT age // 10 $KEYS
SELECT age / 10 $KEYS;
# towards 0 for negative numbers
-- SELECT (age - 30) // 7 $KEYS
SELECT (age - 30) / 7 $KEYS;
-- SELECT age / 10.0 $KEYS
SELECT age / 10.0 $KEYS;
-- SELECT age / 10.0 $KEYS
SELECT CAST(age AS DOUBLE PRECISION) / 10 $KEYS;
-- SELECT 202.5 + age $KEYS
SELECT EXTRACT(YEAR FROM DATE '2025-03-01') / 10 + age $KEYS;
-- SELECT CAST(age / 8.0 AS INT) $KEYS
SELECT CAST(age / 8.0 AS INT) $KEYS;
-- SELECT -age % 7 $KEYS
SELECT -age % 7 $KEYS;
-- SELECT SUBSTRING(region, 1, 2) $KEYS
SELECT SUBSTRING(region, -1, 4) $KEYS;
-- SELECT REGEXP_MATCHES(region, 'or') $KEYS
SELECT region ~ 'or' $KEYS;
-- SELECT region = 'north' $KEYS
SELECT region LIKE 'n\orth' $KEYS;

## as duckdb in trino
-- SELECT 202 + age $KEYS
SELECT year(DATE '2025-03-01') / 10 + age $KEYS;

## as duckdb in tsql
-- SELECT age // 10 $KEYS
SELECT age / 10 $KEYS;
-- SELECT TRUNC(age / 8.0) $KEYS
SELECT CAST(age / 8.0 AS INT) $KEYS;

## as duckdb in mysql
-- SELECT age / 10 $KEYS
SELECT age / 10 $KEYS;

## as duckdb in duckdb
-- SELECT age / 10 $KEYS
SELECT age / 10 $KEYS;
-- SELECT SUBSTRING(region, -2, 2) $KEYS
SELECT SUBSTRING(region, -2, 2) $KEYS;
-- SELECT REGEXP_FULL_MATCH(region, 'n.*') $KEYS
SELECT region ~ 'n.*' $KEYS;
-- SELECT FALSE AND region = '' $KEYS
SELECT region LIKE 'n\orth' $KEYS;

## as duckdb in mysql
-- SELECT DAYOFWEEK(sold_on) + 1 $TIMES
SELECT DAYOFWEEK(sold_on) $TIMES;
-- SELECT ISODOW(sold_on) - 1 $TIMES
SELECT WEEKDAY(sold_on) $TIMES;

## as duckdb in bigquery
-- SELECT DAYOFWEEK(sold_on) + 1 $TIMES
SELECT EXTRACT(DAYOFWEEK FROM sold_on) $TIMES;
-- SELECT sold_on >= DATE '2025-02-01' $TIMES
SELECT sold_on >= TIMESTAMP '2025-02-01' $TIMES;

## as duckdb in postgres
-- SELECT DAYOFWEEK(sold_on) $TIMES
SELECT EXTRACT(DOW FROM sold_on) $TIMES;
-- SELECT (sold_on - DATE '2025-01-01') // 7 $TIMES
SELECT (sold_on - DATE '2025-01-01') / 7 $TIMES;
-- SELECT sold_on >= DATE '2025-02-01' $TIMES
SELECT sold_on::timestamptz >= '2025-02-01 02:00:00+02'::timestamptz $TIMES;
-- SELECT DATE_TRUNC('month', sold_on) $TIMES
SELECT DATE_TRUNC('month', sold_on)::timestamptz $TIMES;

## as duckdb in tsql
-- SELECT DAYOFWEEK(sold_on) + 1 $TIMES
SELECT DATEPART(weekday, sold_on) $TIMES;

## clock in postgres
-- $WHEN sold_on >= DATE '2025-01-16'
$WHEN sold_on >= CURRENT_DATE - INTERVAL '30 days';
-- $WHEN sold_on >= DATE '2025-01-06'
$WHEN sold_on >= CURRENT_DATE + (-40) * INTERVAL '1 DAY';
-- $WHEN sold_on < DATE '2025-02-01'
$WHEN sold_on < DATE_TRUNC('month', NOW());
-- $WHEN sold_on < DATE '2025-02-15'
$WHEN sold_on < NOW()::date;
-- $WHEN sold_on = DATE '2025-02-15'
$WHEN sold_on = (LOCALTIMESTAMP AT TIME ZONE 'UTC')::date;
-- $WHEN sold_on = DATE '2025-02-16'
$WHEN sold_on = (NOW() AT TIME ZONE 'Pacific/Kiritimati')::date;
-- $WHEN sold_on >= DATE '2025-02-06'
$WHEN sold_on >= (SELECT (DATE_TRUNC('day', CURRENT_TIMESTAMP AT TIME ZONE 'UTC') + (-9 || ' day')::INTERVAL));

## clock in mysql
-- $WHEN sold_on >= DATE '2025-02-08'
$WHEN sold_on >= CURDATE() - INTERVAL 7 DAY;

## clock in tsql
-- $WHEN sold_on >= DATE '2025-02-08'
$WHEN sold_on >= DATEADD(day, -7, CAST(GETDATE() AS DATE));

## clock in snowflake
-- $WHEN sold_on >= DATE '2025-02-08'
$WHEN sold_on >= DATEADD(day, -7, CURRENT_DATE());

## clock in bigquery
-- $WHEN sold_on >= DATE '2025-02-08'
$WHEN sold_on >= DATE_SUB(CURRENT_DATE(), INTERVAL 7 DAY);

## clock in duckdb
-- $WHEN sold_on >= DATE '2025-02-08'
$WHEN sold_on >= today() - 7;

## names in postgres
-- count, sum, amount_2, Mean, max
SELECT COUNT(*), SUM(amount), COUNT(*) AS Amount_2, AVG(qty) AS "Mean", MAX(Age) FROM shop;
-- count, ?column?, text, ?column?, coalesce, int4
SELECT COUNT(*)::float8, 1, 'a'::text, 2 * COUNT(*), COALESCE(SUM(qty), 0), CAST(1 AS INT) FROM shop;
-- case, sum, ?column?
SELECT CASE WHEN COUNT(*) > 1 THEN 1 END, CASE WHEN COUNT(*) > 1 THEN 1 ELSE SUM(qty) END, -COUNT(*) FROM shop;
-- round, greatest, c, count
SELECT ROUND(AVG(qty), 2), GREATEST(COUNT(*), 1), (SELECT COUNT(*) AS c FROM sales), COUNT(*) FILTER (WHERE age > 20) FROM shop;

## names in bigquery
-- f0_, s, f1_
SELECT COUNT(*), SUM(amount) AS s, COUNT(*) + 1 FROM shop;

## names in trino
-- _col0, s, _col2
SELECT COUNT(*), SUM(amount) AS s, COUNT(*) + 1 FROM shop;

## names in duckdb
-- count_star(), sum(amount)
SELECT COUNT(*), SUM(amount) FROM shop;

## as duckdb in mysql
-- SELECT c.region, c.age > 30, COUNT(*) AS n $JOINED GROUP BY ROLLUP (1, 2)
SELECT c.region, c.age > 30, COUNT(*) AS n $JOINED GROUP BY c.region, 2 WITH ROLLUP;
-- SELECT c.region, c.age > 30, COUNT(*) AS n $JOINED GROUP BY CUBE (1, 2)
SELECT c.region, c.age > 30, COUNT(*) AS n $JOINED GROUP BY c.region, 2 WITH CUBE;

# Integers are divided outside of the block too.
## as duckdb in postgres
-- SELECT a // 10 AS decade, SUM(n) FROM (SELECT age AS a, COUNT(*) AS n $JOINED GROUP BY 1) AS t GROUP BY 1
SELECT a / 10 AS decade, SUM(n) FROM (SELECT age AS a, COUNT(*) AS n $JOINED GROUP BY 1) AS t GROUP BY 1;
-- SELECT 3
SELECT 7 / 2;

## as duckdb
SELECT 7 / 2;
SELECT SUM(CAST(amount AS DOUBLE)), SUM(CAST(qty AS BIGINT)) FROM sales;

# A sum of rounded values is not the sum of the values.
## refused NotSupportedError
SELECT SUM(CAST(amount AS INT)) FROM sales;
SELECT SUM(CAST(amount AS DECIMAL(9, 1))) FROM sales;
SELECT COUNT(*) FROM customer WHERE age < 1e400;
SELECT COUNT(*) FROM customer WHERE 1e9999999999999999999 = 0;

## refused NotSupportedError in postgres
SELECT SUM(qty / 2) FROM sales;

## refused NotSupportedError in mysql
-- ISO 8601
SELECT WEEK(sold_on), COUNT(*) FROM sales GROUP BY 1;

# A name without quotes is folded and can be used.
## names in postgres
-- region, count, sum
SELECT Q.Region, Count, sum FROM (SELECT REGION, COUNT(*), SUM(amount) FROM shop GROUP BY 1) Q ORDER BY count DESC;
-- Region, n
SELECT region AS "Region", COUNT(*) AS N FROM shop GROUP BY 1;

# The first of the rows of a domain that nothing orders is the catalog's.
## rows
-- [["north"], ["south"], ["east"], ["west"], [null]]
SELECT region FROM (SELECT region, COUNT(*) AS n FROM shop GROUP BY region) AS t;
-- [[0]]
SELECT COUNT(*) FROM customer WHERE age IS NULL;
-- [[900]]
SELECT COUNT(*) FROM shop;

# One value a bin has no bound to tell.
## notes
-- values of customer.age outside its declared range
SELECT SUM(age), AVG(age) FROM customer;

# The clause, and the part of the statement that a caret marks.
## refused RawRowsError at
-- SELECT: *
SELECT * FROM sales;

## refused ProgrammingError at
-- ORDER BY: 2
SELECT COUNT(*) FROM sales ORDER BY 2;
-- ORDER BY: 0
SELECT age, COUNT(*) FROM customer GROUP BY 1 ORDER BY 0;
-- ORDER BY: 3
SELECT age, COUNT(*) FROM customer GROUP BY 1 ORDER BY 3 LIMIT 2;
-- ORDER BY: 9
SELECT * FROM (SELECT age, COUNT(*) AS n FROM customer GROUP BY 1) ORDER BY 9 LIMIT 2;
-- ORDER BY: 2
SELECT * FROM (SELECT COUNT(*) FROM shop) a UNION ALL SELECT * FROM (SELECT COUNT(*) FROM sales) b ORDER BY 2;
-- SELECT: age
SELECT age, COUNT(*) FROM customer;
-- SELECT:
SELECT DP_STDERR() FROM sales;
-- SELECT:
SELECT DP_INTERVAL_LOW(COUNT(*), 2) FROM sales;

## refused UnknownName at
-- FROM: nowhere
SELECT COUNT(*) FROM nowhere;
-- FROM: other.sales
SELECT COUNT(*) FROM other.sales;
-- column: agee
SELECT COUNT(*) FROM customer WHERE agee > 3;
-- FROM: x.age
SELECT COUNT(*) FROM sales s JOIN customer c USING (customer_id) WHERE x.age > 3;

## refused NotSupportedError at
-- JOIN: a.age = b.age
SELECT a.region FROM customer a JOIN customer b ON a.age = b.age GROUP BY 1;
-- FROM:
SELECT COUNT(*) FROM sales s, customer c;
-- JOIN: s.qty = c.age
SELECT COUNT(*) FROM sales s JOIN customer c ON s.qty = c.age;
-- JOIN:
SELECT COUNT(*) FROM sales s FULL JOIN customer c USING (customer_id);
-- SELECT: amount
SELECT MAX(amount) FROM sales;
-- SELECT: customer_id
SELECT COUNT(DISTINCT customer_id) FROM sales;
-- SELECT: SUM
SELECT SUM(DISTINCT amount) FROM sales;
-- :
SELECT COUNT(*) FROM sales WHERE sold_on < current_time;
-- : random
SELECT COUNT(*) FROM sales WHERE random() < 0.5;
-- FROM: read_parquet
SELECT COUNT(*) FROM read_parquet('x');
-- subquery: shop.qty
SELECT COUNT(*) FROM shop WHERE age > (SELECT AVG(qty) FROM sales WHERE sales.qty = shop.qty);
-- WHERE:
SELECT COUNT(*) FROM sales s WHERE EXISTS (SELECT 1 FROM customer c);
-- GROUP BY:
SELECT age, COUNT(*) FROM shop GROUP BY CUBE (age, age, age, age, age, age, age);

## refused NoViewError at
-- WHERE: amount
SELECT COUNT(*) FROM sales WHERE amount > 5;

## refused SqlSyntaxError at
-- statement:
SELECT COUNT(*) FROM;

# NULL where SQL in DuckDB gives NaN or infinity: a ratio over an empty group is as unknown as its average.
$EMPTY = FILTER (WHERE region = 'north')

## null outside the north
SELECT region, SUM(amount) $EMPTY / COUNT(*) $EMPTY AS x FROM shop WHERE region IS NOT NULL GROUP BY region;
SELECT region, 1 / COUNT(*) $EMPTY AS x FROM shop WHERE region IS NOT NULL GROUP BY region;
SELECT region, -1.5 / COUNT(*) $EMPTY AS x FROM shop WHERE region IS NOT NULL GROUP BY region;
SELECT region, COUNT(*) // COUNT(*) $EMPTY AS x FROM shop WHERE region IS NOT NULL GROUP BY region;
SELECT region, COUNT(*) % COUNT(*) $EMPTY AS x FROM shop WHERE region IS NOT NULL GROUP BY region;
SELECT region, LN(COUNT(*) $EMPTY) AS x FROM shop WHERE region IS NOT NULL GROUP BY region;
SELECT region, LOG10(COUNT(*) $EMPTY) AS x FROM shop WHERE region IS NOT NULL GROUP BY region;
SELECT region, SQRT(COUNT(*) $EMPTY - 0.5) AS x FROM shop WHERE region IS NOT NULL GROUP BY region;
SELECT region, POWER(COUNT(*) $EMPTY, -1) AS x FROM shop WHERE region IS NOT NULL GROUP BY region;
SELECT region, POWER(COUNT(*) $EMPTY - 1, 0.5) AS x FROM shop WHERE region IS NOT NULL GROUP BY region;
SELECT region, 1 / (1 / COUNT(*) $EMPTY) AS x FROM shop WHERE region IS NOT NULL GROUP BY region;
SELECT region, CASE WHEN COUNT(*) > 0 THEN COUNT(*) / COUNT(*) $EMPTY END AS x FROM shop WHERE region IS NOT NULL GROUP BY region;
SELECT region, ROUND(COUNT(*) / COUNT(*) $EMPTY, 2) AS x FROM shop WHERE region IS NOT NULL GROUP BY region;
SELECT region, CAST(COUNT(*) / COUNT(*) $EMPTY AS INTEGER) AS x FROM shop WHERE region IS NOT NULL GROUP BY region;
SELECT region, CAST(COUNT(*) / COUNT(*) $EMPTY AS VARCHAR) AS x FROM shop WHERE region IS NOT NULL GROUP BY region;
SELECT region, EXP(1000 / (1 + COUNT(*) $EMPTY)) AS x FROM shop WHERE region IS NOT NULL GROUP BY region;

# NULL in the north too, or written as NaN or infinity.
## null
SELECT region, 1 / COUNT(*) $EMPTY - 1 / COUNT(*) $EMPTY AS x FROM shop WHERE region = 'south' GROUP BY region;
SELECT region, GREATEST(NULLIF(COUNT(*) / COUNT(*) $EMPTY, 1), NULL) AS x FROM shop WHERE region = 'south' GROUP BY region;
SELECT region, DP_STDERR(SUM(amount) $EMPTY / COUNT(*) $EMPTY) AS x FROM shop WHERE region = 'south' GROUP BY region;
SELECT region, DP_INTERVAL_HIGH(SUM(amount) $EMPTY / COUNT(*) $EMPTY) AS x FROM shop WHERE region = 'south' GROUP BY region;
SELECT region, CAST('nan' AS DOUBLE) AS x FROM (SELECT region, COUNT(*) AS n FROM shop GROUP BY region) t WHERE region = 'south';
SELECT region, TRY_CAST('inf' AS FLOAT) AS x FROM (SELECT region, COUNT(*) AS n FROM shop GROUP BY region) t WHERE region = 'south';
SELECT region, GREATEST(n, 'inf') AS x FROM (SELECT region, COUNT(*) AS n FROM shop GROUP BY region) t WHERE region = 'south';
SELECT region, EXP(n) * 1e308 * 1e308 AS x FROM (SELECT region, COUNT(*) AS n FROM shop GROUP BY region) t WHERE region = 'south';
SELECT STDDEV(n * 1e308) AS x FROM (SELECT region, COUNT(*) AS n FROM shop GROUP BY region) t;
