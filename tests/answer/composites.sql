$WARDS = (SELECT ward, COUNT(*) AS n, SUM(cost) AS s, AVG(cost) AS m FROM clinic GROUP BY ward) AS g
$DAYS = (SELECT day, COUNT(*) AS n, SUM(cost) AS s FROM clinic GROUP BY day) AS g
$CTE = WITH d AS (SELECT day, COUNT(*) AS n, SUM(cost) AS s FROM clinic GROUP BY day)

## sums of groups
SELECT SUM(cost) FROM clinic;
SELECT SUM(s) FROM $WARDS;
SELECT SUM(s) FROM $DAYS;
$CTE SELECT MAX(day) * 0 + SUM(s) FROM d;
$CTE SELECT (SELECT SUM(s) FROM d);
SELECT SUM(s) FROM (SELECT ward, day, SUM(cost) AS s FROM clinic GROUP BY 1, 2) AS g;

## sums of parts
SELECT AVG(s) * COUNT(*) FROM $DAYS;
SELECT SUM(cost) FROM clinic WHERE day BETWEEN 1 AND 12;
SELECT SUM(s) FROM $DAYS WHERE day IS NOT NULL;
SELECT a + b FROM (SELECT SUM(cost) AS a FROM clinic WHERE day BETWEEN 1 AND 4) AS x, (SELECT SUM(cost) AS b
  FROM clinic WHERE day BETWEEN 5 AND 12) AS y;
SELECT SUM(s) FROM (SELECT SUM(cost) AS s FROM clinic WHERE day BETWEEN 1 AND 4 UNION ALL SELECT SUM(cost)
  FROM clinic WHERE day BETWEEN 5 AND 12) AS u;
SELECT t FROM (SELECT day, SUM(s) OVER (ORDER BY day) AS t FROM $DAYS) AS r WHERE day = 12;

## differences
SELECT COUNT(*) FILTER (WHERE day = 5) - COUNT(*) FILTER (WHERE day = 4) FROM clinic;
SELECT d FROM (SELECT day, n - LAG(n) OVER (ORDER BY day) AS d FROM $DAYS) AS r WHERE day = 5;
SELECT -d FROM (SELECT day, n - LEAD(n) OVER (ORDER BY day) AS d FROM $DAYS) AS r WHERE day = 4;
$CTE SELECT a.n - b.n FROM d AS a JOIN d AS b ON a.day = b.day + 1 WHERE a.day = 5;
$CTE SELECT (SELECT n FROM d WHERE day = 5) - (SELECT n FROM d WHERE day = 4);
SELECT SUM(CASE WHEN day = 5 THEN n WHEN day = 4 THEN -n ELSE 0 END) FROM $DAYS;
SELECT SUM(n) FILTER (WHERE day = 5) - SUM(n) FILTER (WHERE day = 4) FROM $DAYS;

## nothing
$CTE SELECT a.n - b.n FROM d AS a JOIN d AS b USING (day) WHERE day = 1;
SELECT SUM(n) - (SELECT COUNT(*) FROM clinic) FROM $DAYS;
SELECT SUM(n) - (SELECT SUM(n) FROM $WARDS) FROM $DAYS;

## sums of an axis
SELECT SUM(day) FROM clinic;
SELECT SUM(day * n) FROM $DAYS;
SELECT SUM(day - 2) + 2 * COUNT(*) FILTER (WHERE day > 0) FROM clinic;
SELECT SUM(t) FROM (SELECT ward, SUM(day) AS t FROM clinic GROUP BY 1) AS g;
SELECT SUM(CASE WHEN day > 4 THEN day END) + SUM(day) FILTER (WHERE day <= 4) FROM clinic;

## an axis times a measure
SELECT SUM(cost * day) FROM clinic;
SELECT SUM(day * s) FROM $DAYS;
SELECT SUM(day * 2 * cost) / 2 FROM clinic;

## the mean of an axis
SELECT AVG(day) FROM clinic;
SELECT SUM(day * n) / SUM(n) FROM $DAYS WHERE day IS NOT NULL;

## a mean
SELECT AVG(cost) FROM clinic;
SELECT SUM(cost) / COUNT(*) FROM clinic;
SELECT SUM(s) / SUM(n) FROM $DAYS;
SELECT SUM(m * n) / SUM(n) FROM $WARDS;
SELECT 1 / (SUM(n) / SUM(s)) FROM $WARDS;
SELECT (SELECT SUM(cost) FROM clinic) / (SELECT COUNT(*) FROM clinic);
SELECT AVG(cost) - 20 + 20 FROM clinic;

## a share
SELECT COUNT(*) FILTER (WHERE ward = 'a') / COUNT(*) FROM clinic;
SELECT r FROM (SELECT ward, n / SUM(n) OVER () AS r FROM $WARDS) AS q WHERE ward = 'a';
SELECT COUNT(*) / (SELECT COUNT(*) FROM clinic) FROM clinic WHERE ward = 'a';
SELECT SUM(n) FILTER (WHERE ward = 'a') / SUM(n) FROM $WARDS;
SELECT SUM(CASE WHEN ward = 'a' THEN r END) FROM (SELECT ward, n / SUM(n) OVER () AS r FROM $WARDS) AS q;
SELECT CASE WHEN SUM(n) <> 0 THEN SUM(n) FILTER (WHERE ward = 'a') / SUM(n) ELSE 0 END FROM $WARDS;
SELECT 1 - SUM(n) FILTER (WHERE ward <> 'a' OR ward IS NULL) / SUM(n) FROM $WARDS;

## a root
SELECT SQRT(COUNT(*)) FROM clinic;
SELECT SQRT(SUM(n)) FROM $DAYS;
SELECT COUNT(*) / SQRT(COUNT(*)) FROM clinic;
SELECT SQRT((SELECT COUNT(*) FROM clinic));

## a difference of means
SELECT AVG(cost) FILTER (WHERE ward = 'a') - AVG(cost) FILTER (WHERE ward = 'b') FROM clinic;
SELECT (SELECT AVG(cost) FROM clinic WHERE ward = 'a') - (SELECT AVG(cost) FROM clinic WHERE ward = 'b');
SELECT SUM(CASE ward WHEN 'a' THEN m WHEN 'b' THEN -m END) FROM $WARDS;
SELECT -d FROM (SELECT ward, m - LAG(m) OVER (ORDER BY ward) AS d FROM $WARDS) AS q WHERE ward = 'b';

## undefined
-- MAX picks among noisy values
SELECT MAX(n) + 1 FROM $DAYS;
-- MAX picks among noisy values
SELECT m FROM (SELECT MAX(n) AS m FROM $DAYS) AS t;
-- MAX picks among noisy values
SELECT MAX(n) FROM $DAYS UNION ALL SELECT MIN(n) FROM $DAYS;
-- MIN picks among noisy values
SELECT (SELECT MIN(n) FROM $DAYS) AS m;
-- rows were picked by a noisy value
SELECT MAX(n) FROM $DAYS WHERE n > 5;
-- FILTER picks rows by a noisy value
SELECT MAX(n) FILTER (WHERE n > 5) FROM $DAYS;
-- MAX picks among noisy values
SELECT MAX(n) OVER () FROM $DAYS;
-- MAX picks among noisy values
SELECT MAX(CASE WHEN n > 5 THEN n END) FROM $DAYS;
-- a window orders or partitions rows by a noisy value
SELECT RANK() OVER (ORDER BY n) FROM $DAYS;
-- CASE chooses by a noisy value
SELECT CASE WHEN n > 1250 THEN n ELSE 0 END FROM $DAYS;
-- rows were picked by a noisy value
SELECT SUM(n) FROM (SELECT n FROM $DAYS WHERE n > 1000) AS f;
-- rows were picked by a noisy value
SELECT SUM(n) FROM (SELECT n FROM $DAYS ORDER BY n DESC LIMIT 3) AS f;
-- FILTER picks rows by a noisy value
SELECT SUM(n) FILTER (WHERE s > 9) FROM $DAYS;
-- which noisy values there are
SELECT SUM(DISTINCT n) FROM $DAYS;
-- GROUP BY compares noisy values
SELECT n, COUNT(*) FROM $DAYS GROUP BY n;
-- UNION compares rows
SELECT n FROM $DAYS UNION SELECT n FROM $DAYS;
-- DISTINCT compares rows
SELECT DISTINCT n * 2 FROM $DAYS;
-- SIN of a noisy value
SELECT SIN(SUM(n)) FROM $DAYS;
-- SIN of a noisy value
SELECT SIN(COUNT(*)) FROM clinic;
-- a window orders or partitions rows by a noisy
SELECT RANK() OVER (ORDER BY COUNT(*)) FROM clinic GROUP BY ward;
-- CASE chooses by a noisy value
SELECT CASE WHEN COUNT(*) > 3 THEN 1 END FROM clinic;
SELECT day FROM $DAYS WHERE day = (SELECT day FROM $DAYS ORDER BY n DESC LIMIT 1);
-- in a subquery rows were picked
SELECT (SELECT n FROM $DAYS ORDER BY n DESC LIMIT 1) - 5;
