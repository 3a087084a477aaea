$JOINED = FROM sales JOIN customer USING (id)
$ONE = COUNT\(DISTINCT id\) counts each of them once
$OTHER = `id IN \(SELECT id FROM .. WHERE ..\)` or EXISTS

## asked
SELECT COUNT(DISTINCT id) FROM sales;
SELECT COUNT(DISTINCT id) FROM returns;
SELECT COUNT(DISTINCT id) FROM returns WHERE month >= 4;
SELECT month, COUNT(DISTINCT id) FROM sales GROUP BY month;
SELECT CASE WHEN month < 4 THEN 'early' ELSE 'late' END AS h, COUNT(DISTINCT id) FROM sales GROUP BY h;
SELECT region, month, COUNT(DISTINCT customer.id) $JOINED GROUP BY region, month;
SELECT age, COUNT(DISTINCT id) $JOINED GROUP BY age;
SELECT COUNT(DISTINCT id) $JOINED WHERE age IN (1, 4, 7);
SELECT store, COUNT(DISTINCT id) FROM sales WHERE month = 2 GROUP BY store;
SELECT COUNT(DISTINCT id) $JOINED WHERE month = 2 AND store = 1 AND region IN ('n', 'e');
SELECT COUNT(DISTINCT id) $JOINED WHERE region = 'n' OR month = 1;
SELECT COUNT(DISTINCT id) $JOINED WHERE region = 'n' OR (region = 's' AND month > 2);
SELECT COUNT(DISTINCT id) FILTER (WHERE month < 3) * 2 - COUNT(DISTINCT id) FROM sales;
SELECT COUNT(DISTINCT CASE WHEN month < 3 THEN id END) FROM sales;
SELECT COUNT(DISTINCT IF(region = 'n', customer.id, NULL)) $JOINED WHERE month BETWEEN 1 AND 3;
SELECT COUNT(*) FROM customer WHERE id IN (SELECT id FROM sales WHERE month < 2);
SELECT COUNT(*) AS n FROM customer c WHERE c.id IN (SELECT s.id FROM sales s WHERE s.month > 3);
SELECT COUNT(*) FROM customer WHERE EXISTS (SELECT 1 FROM sales WHERE sales.id = customer.id AND month = 5);
SELECT region, COUNT(*) FROM customer c WHERE EXISTS (SELECT * FROM sales s WHERE c.id = s.id AND month < 3)
  GROUP BY region;
SELECT COUNT(*) FROM customer WHERE age > 4 AND id IN (SELECT id FROM sales);
WITH buyers AS (SELECT COUNT(*) AS n FROM customer WHERE id IN (SELECT id FROM sales WHERE month = 1)) SELECT n + 1
  FROM buyers;

## counted twice
SELECT COUNT(DISTINCT id) FROM sales WHERE month IN (1, 4);
SELECT COUNT(DISTINCT id) FROM sales WHERE month <> 2;
SELECT COUNT(DISTINCT id) FROM sales WHERE store = 1;
SELECT COUNT(DISTINCT id) $JOINED WHERE age = 3 OR month = 1;
SELECT COUNT(*) FROM customer WHERE id IN (SELECT id FROM sales WHERE store < 3);

## refused
-- $OTHER
SELECT COUNT(*) FROM customer WHERE id NOT IN (SELECT id FROM sales WHERE month = 1);
-- all of customer less those with one
SELECT COUNT(*) FROM customer c WHERE NOT EXISTS (SELECT 1 FROM sales s WHERE s.id = c.id);
-- $OTHER
SELECT COUNT(*) FROM customer WHERE id IN (SELECT id FROM sales WHERE month = 1) OR age = 3;
-- `visits: \{of: sales, is: count\(\*\), \.\.\}` under its summaries$
SELECT COUNT(*) FROM customer WHERE id IN (SELECT id FROM sales GROUP BY id HAVING COUNT(*) > 2);
-- $OTHER
SELECT COUNT(*) FROM customer WHERE id IN (SELECT id FROM sales LIMIT 3);
-- $OTHER
SELECT AVG(age) FROM customer WHERE id IN (SELECT id FROM sales);
-- $OTHER
SELECT COUNT(*) FROM customer WHERE EXISTS (SELECT 1 FROM sales WHERE month = 1);
-- $OTHER
SELECT COUNT(*) FROM customer WHERE id IN (SELECT id FROM sales WHERE month = 1) AND id IN (SELECT id FROM sales
  WHERE month = 2);
-- $ONE
SELECT COUNT(*) FROM (SELECT DISTINCT id FROM sales);
-- is: count\(\*\), \.\.\}` under its summaries; $ONE
SELECT COUNT(*) FROM (SELECT id FROM sales GROUP BY id);
-- $ONE
WITH buyers AS (SELECT DISTINCT id FROM sales WHERE month = 1) SELECT COUNT(*) FROM buyers;
-- it is not an axis
SELECT COUNT(DISTINCT amount) FROM sales;
-- it is not an axis
SELECT COUNT(DISTINCT CASE WHEN month < 3 THEN id ELSE 7 END) FROM sales;
