$WARDS = (SELECT ward, COUNT(*) AS n, SUM(cost) AS s, AVG(cost) AS m FROM clinic GROUP BY ward) AS g
$DAYS = (SELECT day, COUNT(*) AS n, SUM(cost) AS s FROM clinic GROUP BY day) AS g
$AGES = (SELECT age // 10 AS decade, COUNT(*) AS n, SUM(cost) AS s FROM clinic GROUP BY 1) AS g

## linear
SELECT SUM(n), SUM(s), AVG(n) FROM $WARDS;
SELECT SUM(n) FILTER (WHERE decade < 5) - SUM(n) FILTER (WHERE decade >= 5) FROM $AGES;
SELECT SUM(n) OVER (ORDER BY day), SUM(s) OVER (ORDER BY day) FROM $DAYS;
SELECT n - LAG(n) OVER (ORDER BY day) FROM $DAYS;
SELECT a.n - b.n FROM (SELECT COUNT(*) AS n FROM clinic WHERE age < 50) AS a, (SELECT COUNT(*) AS n FROM clinic
  WHERE day <= 6) AS b;
SELECT SUM(n) FROM (SELECT COUNT(*) AS n FROM clinic WHERE age < 30 AND ward = 'a' UNION ALL SELECT COUNT(*)
  FROM clinic WHERE day > 8 AND ward = 'a') AS u;
SELECT (SELECT SUM(cost) FROM clinic WHERE ward = 'b' AND age < 60) - (SELECT SUM(cost) FROM clinic WHERE ward = 'b'
  AND day < 7);

## ratio
SELECT n / SUM(n) OVER (), s / SUM(s) OVER () FROM $WARDS;
SELECT SUM(s) / SUM(n), SUM(s) FILTER (WHERE day > 6) / SUM(s) FROM $DAYS;
SELECT (SELECT COUNT(*) FROM clinic WHERE age < 40) / (SELECT COUNT(*) FROM clinic WHERE day < 5);
SELECT (n - LAG(n) OVER (ORDER BY day)) / LAG(n) OVER (ORDER BY day) FROM $DAYS;

## smooth
SELECT AVG(cost) FILTER (WHERE age < 50) - AVG(cost) FILTER (WHERE age >= 50) FROM clinic;
SELECT m - (SELECT AVG(cost) FROM clinic) FROM $WARDS;
SELECT n * m, n * n FROM $WARDS;
SELECT AVG(m), SUM(m * n) / SUM(n) FROM $WARDS;
SELECT (n / SUM(n) OVER ()) * (s / SUM(s) OVER ()) FROM $WARDS;

## near zero
SELECT a.n / b.n FROM (SELECT day, COUNT(*) AS n, SUM(cost) AS s FROM clinic
  GROUP BY day) AS a, (SELECT COUNT(*) AS n FROM clinic WHERE ward IS NULL AND age >= 90) AS b;
SELECT AVG(cost) FILTER (WHERE ward IS NULL AND age >= 90) - AVG(cost) FROM clinic;
