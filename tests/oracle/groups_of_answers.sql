## over groups
SELECT AVG(n), COUNT(*), COUNT(n), SUM(1), MIN(n), MAX(n), MEDIAN(s), COUNT_IF(n > 300), STDDEV_POP(n) FROM g;
SELECT COUNT(DISTINCT k), SUM(CASE WHEN n > 300 THEN 1 ELSE 0 END), AVG(s / n) FROM g;
SELECT k, n, RANK() OVER (ORDER BY n DESC, k) AS r, NTILE(3) OVER (ORDER BY s, k) AS t FROM g;
SELECT k, LAG(n) OVER (ORDER BY k), LEAD(n) OVER (ORDER BY k), AVG(n) OVER () FROM g;
SELECT k, AVG(n) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), COUNT(*) OVER () FROM g;
SELECT k, n FROM g ORDER BY n, k LIMIT 3;
SELECT k, n FROM g ORDER BY n DESC, k LIMIT 2 OFFSET 1;
SELECT k FROM g QUALIFY ROW_NUMBER() OVER (ORDER BY n DESC, k) <= 2;
SELECT * FROM (SELECT k, n, ROW_NUMBER() OVER (ORDER BY n, k) AS r FROM g) AS t WHERE r <= 2;
SELECT a.k, a.n + b.s FROM g AS a JOIN g AS b ON a.k = b.k;
SELECT a.k, b.n FROM g AS a LEFT JOIN (SELECT k, n FROM g WHERE n > 300) AS b ON a.k = b.k;
SELECT DISTINCT k FROM g;
SELECT k FROM g UNION SELECT k FROM g;
SELECT AVG(n), COUNT(*) FROM (SELECT k, n FROM g UNION ALL SELECT k, s FROM g) AS t;
SELECT COUNT(*) FROM g WHERE n > (SELECT AVG(n) FROM g);
SELECT n > 300, COUNT(*), AVG(s) FROM g GROUP BY 1 HAVING COUNT(*) > 0;

## by name
SELECT k, COUNT(*) FROM v WHERE k IN ('(other)', 'north') GROUP BY 1 ORDER BY 2 LIMIT 5;
SELECT k, COUNT(*) FROM v WHERE k = '(other)' GROUP BY k LIMIT 1 OFFSET 0;
SELECT t.k, n FROM (VALUES ('north'), ('(other)'), ('x')) AS t(k) LEFT JOIN g ON g.k = t.k LIMIT 3;
SELECT t.k, n FROM (VALUES ('north'), ('(other)')) AS t(k) JOIN g ON g.k = t.k LIMIT 3;

## sums
SELECT SUM(n), SUM(s) FROM ({}) AS g;
SELECT SUM(n) FROM (SELECT k, SUM(n) AS n FROM ({}) AS g GROUP BY k) AS h;
SELECT MAX(c) FROM (SELECT SUM(n) OVER (ORDER BY k) AS c FROM ({}) AS g) AS h;
SELECT SUM(n / t) FROM (SELECT n, SUM(n) OVER () AS t FROM ({}) AS g) AS h;

## nested
SELECT region, AVG(n), COUNT(*), MIN(n) FROM g GROUP BY region;
SELECT region, shade, n, RANK() OVER (PARTITION BY region ORDER BY n DESC, shade) FROM g;
SELECT region, SUM(n), AVG(n) FROM g GROUP BY region ORDER BY 2 DESC LIMIT 2;
SELECT AVG(m) FROM (SELECT region, MAX(n) AS m FROM g GROUP BY region) AS h;

## interval or a reason
-- long_year
SELECT AVG(a) FROM (SELECT region, DATE_TRUNC('month', seen) AS k, AVG(fee) AS a FROM visits GROUP BY 1, 2) AS g;
-- long_year
SELECT region, AVG(a) FROM (SELECT region, DATE_TRUNC('month', seen) AS k, AVG(fee) AS a FROM visits
  GROUP BY 1, 2) AS g GROUP BY region;
-- long_year
SELECT MAX(a), MIN(n) FROM (SELECT region, AVG(fee) a, COUNT(*) n FROM visits GROUP BY 1) AS g;
-- long_year
SELECT region AS region, RANK() OVER (ORDER BY n) AS r FROM (SELECT region, COUNT(*) AS n FROM visits GROUP BY 1) AS g;
-- shop
SELECT AVG(a) FROM (SELECT category, AVG(amount) AS a FROM retail GROUP BY 1) AS g;
-- shop
SELECT category AS region, RANK() OVER (ORDER BY n) AS r FROM (SELECT category, COUNT(*) AS n FROM retail
  GROUP BY 1) AS g;
-- fixture
SELECT AVG(a) FROM (SELECT age, AVG(amount) AS a FROM shop GROUP BY 1) AS g;
-- fixture
SELECT age AS region, RANK() OVER (ORDER BY n) AS r FROM (SELECT age, COUNT(*) AS n FROM shop GROUP BY 1) AS g;
