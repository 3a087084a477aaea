$CALLERS = FROM calls JOIN person USING (id)

## open
SELECT COUNT(*) FROM calls WHERE place = 'west';
SELECT COUNT(*), SUM(minutes), AVG(minutes) FROM calls WHERE place <> 'west';
SELECT COUNT(*) FROM calls WHERE place NOT IN ('west', 'south');
SELECT COUNT(*) FROM calls WHERE NOT (place = 'north' OR place = 'west');
SELECT COUNT(*), SUM(minutes) FROM calls WHERE place LIKE '%st';
SELECT COUNT(*) FROM calls WHERE LENGTH(place) > 4;
SELECT COUNT(*) FROM calls WHERE place > 'p';
SELECT AVG(CASE WHEN place = 'west' THEN 1.0 ELSE 0 END) FROM calls;
SELECT SUM(minutes) FILTER (WHERE place <> 'west') / COUNT(*) FROM calls;
SELECT MEDIAN(age) $CALLERS WHERE place <> 'west';
SELECT age, COUNT(*) $CALLERS WHERE place <> 'west' GROUP BY age ORDER BY age;
SELECT COUNT(*) FROM calls WHERE price > 10;
SELECT COUNT(*) FROM calls WHERE price <= 9;
SELECT COUNT(*) FROM calls WHERE price NOT BETWEEN 2 AND 8;
SELECT AVG(CASE WHEN price >= 8 THEN 1.0 ELSE 0 END) FROM calls;
SELECT COUNT(*) FROM calls WHERE day < '2025-02-01';
SELECT COUNT(*) FROM calls WHERE day BETWEEN '2025-02-01' AND '2025-04-02';
SELECT COUNT(*) FILTER (WHERE MONTH(day) = 12) FROM calls;
SELECT COUNT(*) FROM calls WHERE CAST(written AS DATE) < '2025-01-15';
SELECT COUNT(*) FROM calls WHERE LENGTH(place) > 4 OR place LIKE 's%' GROUP BY place HAVING place = 'north';
SELECT n FROM (SELECT MONTH(CAST(written AS DATE)) AS m, COUNT(*) AS n FROM calls GROUP BY 1) AS q WHERE m = 2;
SELECT n FROM (SELECT YEAR(day) AS y, COUNT(*) AS n FROM calls GROUP BY 1) AS q WHERE y = 2025;
SELECT n FROM (SELECT MONTH(day) AS m, COUNT(*) AS n FROM calls GROUP BY 1) AS q WHERE m = 2;
SELECT COUNT(*) FROM calls WHERE day NOT IN ('2025-02-01', '2025-02-02');
SELECT MEDIAN(price) FROM calls WHERE price > 2;
SELECT MEDIAN(price) FROM calls WHERE price > 16;

## decided
SELECT COUNT(*) FROM calls WHERE place = 'north';
SELECT COUNT(*) FROM calls WHERE place <> 'north';
SELECT COUNT(*) FROM calls WHERE place NOT IN ('north', 'south');
SELECT COUNT(*) FROM calls WHERE place IS NOT NULL;
SELECT COUNT(*) FROM calls WHERE price BETWEEN 2 AND 10 AND price <> 10;
SELECT COUNT(*) FROM calls WHERE day BETWEEN '2025-02-01' AND '2025-02-28';
SELECT COUNT(*) FROM calls WHERE day IN ('2025-02-01', '2025-02-02');
