# Answers of which more than half would be interpolated within bins of ten days and five shops are refused.

## answered
SELECT COUNT(*) FROM sales WHERE day < 20;
SELECT COUNT(*) FROM sales WHERE day BETWEEN 5 AND 24;
SELECT COUNT(*) FROM sales WHERE day BETWEEN 5 AND 34;
SELECT COUNT(*) FROM sales WHERE NOT day BETWEEN 3 AND 47;
SELECT COUNT(*) FROM sales WHERE day < 14 AND shop < 5;
SELECT COUNT(*) FROM sales WHERE day BETWEEN 21 AND 23 OR shop < 5;
SELECT day // 15, COUNT(*) FROM sales WHERE day < 90 GROUP BY 1;
SELECT shop < 5, COUNT(*) FROM sales WHERE day < 25 GROUP BY 1;
SELECT MEDIAN(day) FROM sales WHERE shop < 5;
SELECT AVG(paid) FROM sales WHERE day BETWEEN 5 AND 24;
SELECT DISTINCT day FROM sales;
SELECT MAX(day) FROM sales WHERE day < 33;

# Any group and any value counts: the culprit and the group.
## refused PartialBinError
-- sales.day % 24 .. of the group (0)
SELECT day % 24 AS h, COUNT(*) FROM sales GROUP BY h;
-- sales.day // 14 .. of the group (1)
SELECT day // 14, COUNT(*) FROM sales WHERE day < 90 GROUP BY 1;
-- sales.shop cuts .. of the group (0)
SELECT shop, MEDIAN(day) FROM sales WHERE shop < 5 GROUP BY shop;
-- sales.day BETWEEN .. of the answer
SELECT MEDIAN(day) FROM sales WHERE day BETWEEN 21 AND 23;
-- sales.day = 3 .. of the answer
SELECT COUNT(*), COUNT(*) FILTER (WHERE day = 3) FROM sales;
-- sales.day < 3 .. of the answer
SELECT DP_STDERR(AVG(paid)) FROM sales WHERE day < 3;
-- sales.day < 3 .. of the answer
SELECT n FROM (SELECT COUNT(*) AS n FROM sales WHERE day < 3) t;
-- sales.day cuts .. of the group (0)
SELECT DISTINCT day FROM sales ORDER BY COUNT(*);

## refused PartialBinError with a caret
-- 100% of the answer would be interpolated, more than half .. which begin at 20, 30;
SELECT COUNT(*) FROM sales WHERE day = 20;
-- 100% of the answer would be interpolated, more than half .. which begin at 20, 30;
SELECT COUNT(*) FROM sales WHERE day BETWEEN 21 AND 23;
# 1 - 1/2 x 1/1.6
-- 69% of the answer would be interpolated, more than half .. which begin at 0, 10, 20, 30;
SELECT COUNT(*) FROM sales WHERE day BETWEEN 5 AND 24 AND shop < 8;
-- 64% of the answer would be interpolated, more than half .. which begin at 20, 30, 40, 50;
SELECT COUNT(*) FROM sales WHERE day BETWEEN 25 AND 44 AND shop > 2;
-- 100% of the answer would be interpolated, more than half .. which begin at 0, 10, 90 (the last holds 99, where it ends);
SELECT COUNT(*) FROM sales WHERE day < 3 OR day > 95;
-- 100% of the answer would be interpolated, more than half .. which begin at 90 (the last holds 99, where it ends);
SELECT COUNT(*) FROM sales WHERE day >= 90 AND day < 99;
-- 100% of the answer would be interpolated, more than half .. which begin at 0, 10, 20, 30, 40, 50, ..;
SELECT COUNT(*) FROM sales WHERE day % 7 = 0;

## notes
-- 2 bins of sales.day cut: interpolating them may shift count by up to 30; intervals include it
SELECT COUNT(*) AS n FROM sales WHERE day BETWEEN 5 AND 24;
