$CALLERS = FROM calls JOIN person USING (id)
$GROUPS = SELECT place, COUNT(*) AS n FROM calls GROUP BY place
$WHOSE = SELECT COUNT(*) FROM person WHERE EXISTS (SELECT 1 FROM calls WHERE id = person.id AND

# Conditions that may hold for some values outside of the domain and not for others: intervals reach all.
## covered, noting unlisted values
SELECT COUNT(*) FROM calls WHERE place = 'west';
SELECT COUNT(*), SUM(minutes), AVG(minutes) FROM calls WHERE place <> 'west';
SELECT COUNT(*) FROM calls WHERE place NOT IN ('west', 'south');
SELECT COUNT(*) FROM calls WHERE NOT (place = 'north' OR place = 'west');
SELECT COUNT(*), SUM(minutes) FROM calls WHERE place LIKE '%st';
SELECT COUNT(*) FROM calls WHERE LENGTH(place) > 4;
SELECT COUNT(*) FROM calls WHERE place > 'p';
SELECT AVG(CASE WHEN place = 'west' THEN 1.0 ELSE 0 END) FROM calls;
SELECT SUM(minutes) FILTER (WHERE place <> 'west') / COUNT(*) FROM calls;
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

## covered
SELECT MEDIAN(age) $CALLERS WHERE place <> 'west';
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

# Conditions on groups say which texts have none: they were empty tables, or lacked groups, in silence.
## flags
-- no group of calls.place is 'nroth' (nearest: 'north'); rows of unlisted values are in the group '(other)'
$GROUPS HAVING place = 'nroth';
-- not calls.place
$GROUPS HAVING place = 'north';
-- no group of calls.place is 'west'; rows of unlisted values are in the group '(other)'
$GROUPS HAVING place IN ('north', 'west');
-- no group of calls.place is 'west'; rows of unlisted values are in the group '(other)'
$GROUPS HAVING place NOT IN ('north', 'west');
-- no group of calls.place is 'west'; rows of unlisted values are in the group '(other)'
$GROUPS HAVING place <> 'west';
-- a condition on calls.place takes all unlisted values for one, '(other)'
$GROUPS HAVING place LIKE '%st';
-- a condition on calls.place takes all unlisted values for one, '(other)'
$GROUPS HAVING place > 'p';
-- not calls.place
$GROUPS HAVING place IS NOT NULL;
-- no group of calls.place is 'nroth' (nearest: 'north'); rows of unlisted values are in the group '(other)'
SELECT * FROM ($GROUPS) AS t WHERE (place) = 'nroth';
-- not calls.place
SELECT * FROM ($GROUPS) AS t WHERE (place) = 'north';
-- no group of calls.place is 'west'; rows of unlisted values are in the group '(other)'
SELECT * FROM ($GROUPS) AS t WHERE (place) IN ('north', 'west');
-- no group of calls.place is 'west'; rows of unlisted values are in the group '(other)'
SELECT * FROM ($GROUPS) AS t WHERE (place) NOT IN ('north', 'west');
-- no group of calls.place is 'west'; rows of unlisted values are in the group '(other)'
SELECT * FROM ($GROUPS) AS t WHERE (place) <> 'west';
-- a condition on calls.place takes all unlisted values for one, '(other)'
SELECT * FROM ($GROUPS) AS t WHERE (place) LIKE '%st';
-- a condition on calls.place takes all unlisted values for one, '(other)'
SELECT * FROM ($GROUPS) AS t WHERE (place) > 'p';
-- not calls.place
SELECT * FROM ($GROUPS) AS t WHERE (place) IS NOT NULL;
# A repeated shape keeps its flag: from the third text on `<>` was answered without it.
-- no value 'west'
SELECT COUNT(*) AS again FROM calls WHERE place <> 'west';
-- no value 'east'
SELECT COUNT(*) AS again FROM calls WHERE place <> 'east';
-- no value 'wales'
SELECT COUNT(*) AS again FROM calls WHERE place <> 'wales';
-- no value 'york'
SELECT COUNT(*) AS again FROM calls WHERE place <> 'york';

# Texts outside are asked for by their group, whose number is exact.
## as duckdb
-- SELECT COUNT(*) FROM calls WHERE place NOT IN ('north', 'south')
SELECT COUNT(*) FROM calls WHERE place = '(other)';

## notes
-- not lists no value
SELECT COUNT(*) FROM calls WHERE place = '(other)';

# An average of rows that are perhaps not meant is NULL: it was that of all unlisted texts, whichever was meant.
## rows
-- [[null]]
SELECT AVG(minutes) FROM calls WHERE place = 'west';
-- [["north", true], ["(other)", false]]
SELECT place, a IS NOT NULL FROM (SELECT place, AVG(minutes) AS a FROM calls WHERE place = 'north' OR LENGTH(place) = 6
  GROUP BY 1) AS t WHERE place IN ('north', '(other)');

# People who may be meant are in the interval.
## wide
$WHOSE place = 'west');
$WHOSE place > 'p');
$WHOSE place LIKE '%th');
$WHOSE day > DATE '2025-02-11');
$WHOSE day <= DATE '2025-02-11');

# Sums of an axis have no ends where values beyond it are seen; AVG(price) was that within the bounds, under a note.
## open
SELECT AVG(price) FROM calls;
SELECT SUM(price) FROM calls WHERE price > 8;
SELECT AVG(LENGTH(place)) FROM calls;

## closed
SELECT AVG(price) FROM calls WHERE price BETWEEN 2 AND 10;
SELECT SUM(price) FILTER (WHERE price BETWEEN 2 AND 10) FROM calls;
SELECT AVG(age) FROM calls JOIN person USING (id);
SELECT AVG(LENGTH(place)) FROM calls WHERE place IN ('north', 'south');

# Rows outside of the domain are in a group: `WHERE 17 > age GROUP BY age` had no group and no note, and the sum over its
# groups an interval of width 0.
## grouped
SELECT place AS k, COUNT(*) AS n FROM calls WHERE place = 'west' GROUP BY 1;
SELECT place AS k, COUNT(*) AS n FROM calls WHERE place LIKE '%st' OR place = 'north' GROUP BY 1;
SELECT place AS k, COUNT(*) AS n FROM calls WHERE place > 'p' GROUP BY 1;
SELECT place AS k, COUNT(*) AS n FROM calls WHERE place IN ('north', 'wset') GROUP BY 1;
SELECT place AS k, COUNT(*) AS n FROM calls WHERE NOT (place < 'p') GROUP BY 1;
SELECT day AS k, COUNT(*) AS n FROM calls WHERE day > '2025-06-01' GROUP BY 1;
SELECT day AS k, COUNT(*) AS n FROM calls WHERE day < '2025-01-04' GROUP BY 1;
SELECT day AS k, COUNT(*) AS n FROM calls WHERE day IN ('2024-12-05', '2025-01-05') GROUP BY 1;
SELECT MONTH(day) AS k, COUNT(*) AS n FROM calls WHERE MONTH(day) = 12 GROUP BY 1;
SELECT price AS k, COUNT(*) AS n FROM calls WHERE price > 20 GROUP BY 1;
SELECT price AS k, COUNT(*) AS n FROM calls WHERE price BETWEEN 21 AND 23 OR price < 0 GROUP BY 1;
SELECT CASE WHEN place = 'west' THEN 'w' ELSE 'o' END AS k, COUNT(*) AS n FROM calls WHERE TRUE GROUP BY 1;
SELECT CASE WHEN place = 'west' THEN 'w' ELSE 'o' END AS k, COUNT(*) AS n FROM calls WHERE place <> 'south' GROUP BY 1;
