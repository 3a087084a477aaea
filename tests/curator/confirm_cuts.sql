## the first and the last month
-- DATE '2024-04-01' + CAST(range * 37 % 306 AS INT) AS sold_on, CAST(range * 11 % 90 AS INT) AS pieces
SELECT COUNT(*) FROM t WHERE sold_on >= '2024-04-01' AND sold_on < '2024-05-01';
SELECT COUNT(*) FROM t WHERE sold_on >= '2024-06-17' AND sold_on < '2025-02-01';

## months of a season
-- DATE '2024-04-05' + CAST(range * 37 % 300 AS INT) AS sold_on, CAST(range * 11 % 90 AS INT) AS pieces
SELECT date_trunc('month', sold_on) AS m, COUNT(*) FROM t GROUP BY 1 ORDER BY 1;
SELECT COUNT(*) FROM t WHERE sold_on >= '2024-04-01' AND sold_on < '2024-05-01';
SELECT SUM(pieces) FROM t WHERE sold_on >= '2024-07-01';

## a year from February
-- DATE '2024-02-01' + CAST(range * 37 % 300 AS INT) AS seen, CAST(range * 11 % 9 AS INT) AS pieces
SELECT COUNT(*) FROM t WHERE seen >= '2024-02-01' AND seen < '2024-03-01';
SELECT COUNT(*) FROM t WHERE seen >= '2024-06-17';

## some days
-- DATE '2023-03-07' + CAST(range * 37 % 700 AS INT) AS seen, CAST(range * 11 % 9 AS INT) AS pieces
SELECT COUNT(*) FROM t WHERE seen >= '2023-06-12' AND seen < '2024-02-11';
SELECT COUNT(*) FROM t WHERE seen < '2023-06-12';
SELECT COUNT(*) FROM t WHERE seen >= '2024-02-11';

## a year from March
-- DATE '2023-03-01' + CAST(range * 37 % 300 AS INT) AS seen, CAST(range * 11 % 9 AS INT) AS pieces
SELECT COUNT(*) FROM t WHERE seen >= '2023-03-01' AND seen < '2023-04-01';
SELECT COUNT(*) FROM t WHERE seen >= '2023-08-23';

## numbers
-- CAST(17 + range * 37 % 191 AS INT) AS height, CAST(range * 11 % 41 AS INT) AS visits
SELECT COUNT(*) FROM t WHERE height < 33;
SELECT COUNT(*), SUM(visits) FROM t WHERE height BETWEEN 33 AND 117;
SELECT COUNT(*) FROM t WHERE height > 180;
