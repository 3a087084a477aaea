# Plain SQL by person, on a star whose people own uneven numbers of sales and returns (`people.yaml`).

## as duckdb, noting names nobody
SELECT COUNT(*) FROM (SELECT customer_id, COUNT(*) AS n FROM sales GROUP BY customer_id HAVING COUNT(*) >= 3) q;
SELECT n, COUNT(*) FROM (SELECT customer_id, COUNT(*) AS n FROM sales GROUP BY customer_id) t GROUP BY 1 ORDER
  BY 1;
SELECT AVG(n) FROM (SELECT customer_id, COUNT(*) AS n FROM sales GROUP BY customer_id) t;
SELECT SUM(n) FROM (SELECT customer_id, COUNT(*) AS n FROM sales GROUP BY customer_id) t;
SELECT COUNT(*) FILTER (WHERE n >= 2) / COUNT(*) FROM (SELECT customer_id, COUNT(*) AS n FROM sales GROUP BY
  customer_id) t;
WITH t AS (SELECT customer_id, COUNT(*) AS n FROM sales GROUP BY customer_id) SELECT COUNT(*) FROM t WHERE n
  BETWEEN 2 AND 5;
WITH t AS (SELECT customer_id, COUNT(*) AS n FROM sales GROUP BY customer_id) SELECT CASE WHEN n = 1 THEN 'once'
  ELSE 'again' END AS c, COUNT(*) FROM t GROUP BY 1 ORDER BY 1;
SELECT COUNT(*) FROM (SELECT customer_id, COUNT(1) AS n FROM sales AS s GROUP BY 1) q WHERE q.n > 4;
SELECT COUNT(*) FROM (SELECT s.customer_id FROM sales AS s GROUP BY s.customer_id HAVING COUNT(*) = 1) q;
SELECT COUNT(*) FROM customer WHERE customer_id IN (SELECT customer_id FROM sales GROUP BY 1 HAVING COUNT(*) >=
  3);
SELECT region, COUNT(*) FROM customer WHERE customer_id IN (SELECT customer_id FROM sales GROUP BY customer_id
  HAVING COUNT(*) > 2) GROUP BY 1 ORDER BY 1;
SELECT COUNT(*) FROM customer AS c WHERE c.customer_id IN (SELECT s.customer_id FROM sales s JOIN product p ON
  s.product_id = p.product_id WHERE p.category = 'toys' GROUP BY 1);
SELECT COUNT(*) FROM (SELECT customer_id FROM sales JOIN product USING (product_id) WHERE category = 'toys'
  GROUP BY 1) q;
SELECT region, COUNT(*) FROM customer WHERE customer_id IN (SELECT customer_id FROM sales JOIN product USING
  (product_id) WHERE 'toys' = category GROUP BY 1) GROUP BY region ORDER BY 1;
SELECT n, COUNT(*) FROM (SELECT customer_id, COUNT(*) AS n FROM sales JOIN product USING (product_id) WHERE
  pieces > 1 AND category = 'toys' GROUP BY 1) t GROUP BY 1 ORDER BY 1;
SELECT n, COUNT(*) FROM (SELECT customer_id, COUNT(*) FILTER (WHERE category = 'toys' AND 1 < pieces) AS n FROM
  sales LEFT JOIN product USING (product_id) GROUP BY 1) t GROUP BY 1 ORDER BY 1;
SELECT n, COUNT(*) FROM (SELECT customer_id, COUNT(CASE WHEN pieces > 1 AND category = 'toys' THEN 1 END) AS n
  FROM sales LEFT JOIN product USING (product_id) GROUP BY 1) t GROUP BY 1 ORDER BY 1;
SELECT DATE_TRUNC('week', d) AS w, COUNT(*) FROM (SELECT customer_id, MIN(sold_on) AS d FROM sales GROUP BY 1) t
  GROUP BY 1 ORDER BY 1;
SELECT COUNT(*) FROM (SELECT customer_id, MIN(sold_on) AS a, MAX(sold_on) AS b FROM sales GROUP BY 1) t WHERE a
  < DATE '2025-01-10' AND b >= DATE '2025-01-20';
SELECT COUNT(*) FROM (SELECT customer_id FROM sales GROUP BY 1 HAVING MAX(sold_on) < DATE '2025-01-15') t;
SELECT COUNT(*) FROM (SELECT customer_id FROM sales GROUP BY 1 HAVING SUM(amount) <= 10) t;
SELECT COUNT(*) FROM (SELECT customer_id FROM sales GROUP BY 1 HAVING SUM(amount) > 20) t;
SELECT COUNT(*) FROM (SELECT customer_id, SUM(pieces) AS s FROM sales GROUP BY 1) t WHERE s BETWEEN 0 AND 12;
SELECT AVG(s) FROM (SELECT customer_id, SUM(pieces) AS s FROM sales GROUP BY 1) t;
SELECT n, COUNT(*) FROM (SELECT customer_id, COUNT(amount) AS n FROM sales WHERE amount IS NOT NULL GROUP BY 1)
  t GROUP BY 1 ORDER BY 1;
SELECT k, COUNT(*) FROM (SELECT customer_id, COUNT(DISTINCT category) AS k FROM sales LEFT JOIN product USING
  (product_id) GROUP BY 1) t GROUP BY 1 ORDER BY 1;
SELECT COUNT(*) FROM (SELECT customer_id FROM sales WHERE sold_on >= DATE '2025-01-20' GROUP BY 1 HAVING
  COUNT(*) >= 2) t;
SELECT c.region, COUNT(*) FROM (SELECT customer_id, COUNT(*) AS n FROM sales GROUP BY 1) t JOIN customer c USING
  (customer_id) WHERE n >= 2 GROUP BY 1 ORDER BY 1;
SELECT region, COUNT(*) FROM (SELECT s.customer_id, c.region, COUNT(*) AS n FROM sales s JOIN customer c ON
  s.customer_id = c.customer_id WHERE c.region <> 'east' GROUP BY s.customer_id, c.region) t WHERE n < 9 GROUP
  BY 1 ORDER BY 1;
SELECT COALESCE(t.n, 0) AS n, COUNT(*) FROM customer c LEFT JOIN (SELECT customer_id, COUNT(*) AS n FROM sales
  GROUP BY 1) t ON c.customer_id = t.customer_id GROUP BY 1 ORDER BY 1;
SELECT c.region, COUNT(*), COUNT(t.n) FROM customer c LEFT JOIN (SELECT customer_id, COUNT(*) AS n FROM sales
  GROUP BY 1) t ON t.customer_id = c.customer_id GROUP BY 1 ORDER BY 1;
SELECT COUNT(*) FROM (SELECT customer_id, COUNT(*) AS n FROM returns GROUP BY customer_id) r WHERE n > 1;
SELECT n * 2 AS m, COUNT(*) FROM (SELECT customer_id, COUNT(*) AS n FROM sales GROUP BY 1 ORDER BY 2) t GROUP BY
  1 ORDER BY 1;

# Statements that no summary answers say which line to add.
## refused NotSupportedError
-- is: count(*) FILTER (WHERE pieces > 3)
SELECT COUNT(*) FROM (SELECT customer_id FROM sales WHERE pieces > 3 GROUP BY 1) t;
-- FILTER (WHERE pieces >= 1)
SELECT COUNT(*) FROM (SELECT customer_id, COUNT(*) AS n FROM sales WHERE pieces >= 1 GROUP BY 1) t;
-- is: min(pieces)
SELECT COUNT(*) FROM (SELECT customer_id FROM sales GROUP BY 1 HAVING MIN(pieces) > 1) t;
-- is: max(amount)
SELECT COUNT(*) FROM (SELECT customer_id FROM sales GROUP BY 1 HAVING MAX(amount) > 1) t;
-- count, sum, min, max
SELECT AVG(x) FROM (SELECT customer_id, AVG(amount) AS x FROM sales GROUP BY 1) t;
-- count, sum, min, max
SELECT AVG(x) FROM (SELECT customer_id, MEDIAN(amount) AS x FROM sales GROUP BY 1) t;
-- count(*) FILTER (WHERE sold_on > CAST('2025-01-20' AS DATE))
SELECT COUNT(*) FROM (SELECT customer_id FROM sales WHERE sold_on > DATE '2025-01-20' GROUP BY 1) t;
-- FILTER (WHERE product.category = 'food')
SELECT COUNT(*) FROM (SELECT customer_id FROM sales JOIN product USING (product_id) WHERE category = 'food'
  GROUP BY 1) t;
-- LEFT JOIN product
SELECT COUNT(*) FROM (SELECT customer_id, COUNT(*) AS n FROM sales JOIN product USING (product_id) GROUP BY 1)
  t;
-- {of: returns, is: min(day)
SELECT COUNT(*) FROM customer WHERE customer_id IN (SELECT customer_id FROM returns GROUP BY 1 HAVING MIN(day) >
  DATE '2025-01-05');
-- ask for the others
SELECT COUNT(*) FROM customer WHERE customer_id NOT IN (SELECT customer_id FROM sales GROUP BY 1 HAVING COUNT(*)
  > 2);
-- joined to something else than by a declared key
SELECT COUNT(*) FROM (SELECT s.customer_id FROM sales s JOIN returns r ON s.customer_id = r.customer_id GROUP BY
  1) t;
-- by a declared key
SELECT COUNT(*) FROM (SELECT s.customer_id, COUNT(*) AS n FROM sales s, returns r GROUP BY 1) t;
-- pieces is not a column of customer
SELECT COUNT(*) FROM (SELECT customer_id, pieces FROM sales GROUP BY 1, 2) t;
-- LIMIT, OFFSET and QUALIFY
SELECT COUNT(*) FROM (SELECT customer_id, COUNT(*) AS n FROM sales GROUP BY 1 LIMIT 5) t;
-- write the column favourite
SELECT f, COUNT(*) FROM (SELECT customer_id, MODE(category) AS f FROM sales LEFT JOIN product USING (product_id)
  GROUP BY 1) t GROUP BY 1;
-- is: sum(pieces) FILTER (WHERE pieces > 2)
SELECT COUNT(*) FROM (SELECT customer_id, SUM(pieces) FILTER (WHERE pieces > 2) AS s FROM sales GROUP BY 1) t
  WHERE s > 1;
-- is: count(DISTINCT pieces)
SELECT COUNT(*) FROM (SELECT customer_id FROM sales GROUP BY 1 HAVING COUNT(DISTINCT pieces) > 2) t;
-- count, sum, min, max
SELECT COUNT(*) FROM (SELECT customer_id, STDDEV(pieces) AS s FROM sales GROUP BY 1) t WHERE s > 1;
-- a query inside the condition
SELECT COUNT(*) FROM (SELECT customer_id FROM sales WHERE amount IN (SELECT MAX(amount) FROM sales) GROUP BY 1)
  t;
-- pieces is not a column of customer
SELECT COUNT(*) FROM (SELECT DISTINCT customer_id, pieces FROM sales) t;
