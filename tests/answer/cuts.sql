## any group and any value
SELECT COUNT(*) FROM sales WHERE day < 20;
SELECT COUNT(*) FROM sales WHERE day BETWEEN 5 AND 24;
SELECT COUNT(*) FROM sales WHERE day BETWEEN 5 AND 34;
SELECT COUNT(*) FROM sales WHERE NOT day BETWEEN 3 AND 47;
SELECT COUNT(*) FROM sales WHERE day < 14 AND shop < 5;
SELECT COUNT(*) FROM sales WHERE day BETWEEN 21 AND 23 OR shop < 5;
-- of the group (0): sales.day % 24
SELECT day % 24 AS h, COUNT(*) FROM sales GROUP BY h;
SELECT day // 15, COUNT(*) FROM sales WHERE day < 90 GROUP BY 1;
-- of the group (1): sales.day // 14
SELECT day // 14, COUNT(*) FROM sales WHERE day < 90 GROUP BY 1;
SELECT shop < 5, COUNT(*) FROM sales WHERE day < 25 GROUP BY 1;
-- of the group (0): sales.shop cuts
SELECT shop, MEDIAN(day) FROM sales WHERE shop < 5 GROUP BY shop;
-- of the answer: sales.day BETWEEN
SELECT MEDIAN(day) FROM sales WHERE day BETWEEN 21 AND 23;
SELECT MEDIAN(day) FROM sales WHERE shop < 5;
-- of the answer: sales.day = 3
SELECT COUNT(*), COUNT(*) FILTER (WHERE day = 3) FROM sales;
SELECT AVG(paid) FROM sales WHERE day BETWEEN 5 AND 24;
-- of the answer: sales.day < 3
SELECT DP_STDERR(AVG(paid)) FROM sales WHERE day < 3;
-- of the answer: sales.day < 3
SELECT n FROM (SELECT COUNT(*) AS n FROM sales WHERE day < 3) t;
-- of the group (0): sales.day cuts
SELECT DISTINCT day FROM sales ORDER BY COUNT(*);
SELECT DISTINCT day FROM sales;
SELECT MAX(day) FROM sales WHERE day < 33;

## mostly interpolated
-- 100% at 20, 30
day = 20;
-- 100% at 20, 30
day BETWEEN 21 AND 23;
# 1 - 1/2 x 1/1.6
-- 69% at 0, 10, 20, 30
day BETWEEN 5 AND 24 AND shop < 8;
-- 64% at 20, 30, 40, 50
day BETWEEN 25 AND 44 AND shop > 2;
-- 100% at 0, 10, 90 (the last holds 99, where it ends)
day < 3 OR day > 95;
-- 100% at 90 (the last holds 99, where it ends)
day >= 90 AND day < 99;
-- 100% at 0, 10, 20, 30, 40, 50, ..
day % 7 = 0;
