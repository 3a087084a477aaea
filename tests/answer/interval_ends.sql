## fixture_file
SELECT region, COUNT(*) AS n FROM shop WHERE price < 12 GROUP BY region;
SELECT COUNT(*) AS n, SUM(price) AS s, AVG(price) AS a FROM shop WHERE price < 14;
SELECT n / 3 + 1 AS n FROM (SELECT COUNT(*) AS n FROM shop WHERE price < 12);
SELECT SQRT(n) AS n FROM (SELECT COUNT(*) AS n FROM shop WHERE price < 12);
SELECT a.n / b.n AS q FROM (SELECT COUNT(*) AS n FROM shop WHERE price < 12) AS a, (SELECT COUNT(*) AS n
  FROM shop) AS b;
SELECT COUNT(*) AS n, AVG(amount) AS a FROM shop WHERE age < 40;

## people
SELECT COUNT(*) AS n, SUM(amount) AS s, AVG(amount) AS a FROM sales WHERE day BETWEEN 2 AND 7;
SELECT region, COUNT(*) AS n FROM sales JOIN customer USING (id) GROUP BY region;

## visits
SELECT COUNT(*) AS n FROM visits WHERE seen >= '2024-01-03 12:30';
SELECT kind, AVG(score) AS a FROM visits GROUP BY kind;
SELECT COUNT(*) AS n, AVG(score) AS a FROM visits WHERE score > 63;
