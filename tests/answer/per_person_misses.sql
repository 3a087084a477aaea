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
SELECT COUNT(*) FROM (SELECT customer_id FROM sales JOIN product USING (product_id) WHERE category = 'food' GROUP BY 1) t;
-- LEFT JOIN product
SELECT COUNT(*) FROM (SELECT customer_id, COUNT(*) AS n FROM sales JOIN product USING (product_id) GROUP BY 1) t;
-- {of: returns, is: min(day)
SELECT COUNT(*) FROM customer WHERE customer_id IN (SELECT customer_id FROM returns GROUP BY 1 HAVING MIN(day) > DATE '2025-01-05');
-- ask for the others
SELECT COUNT(*) FROM customer WHERE customer_id NOT IN (SELECT customer_id FROM sales GROUP BY 1 HAVING COUNT(*) > 2);
-- joined to something else than by a declared key
SELECT COUNT(*) FROM (SELECT s.customer_id FROM sales s JOIN returns r ON s.customer_id = r.customer_id GROUP BY 1) t;
-- by a declared key
SELECT COUNT(*) FROM (SELECT s.customer_id, COUNT(*) AS n FROM sales s, returns r GROUP BY 1) t;
-- pieces is not a column of customer
SELECT COUNT(*) FROM (SELECT customer_id, pieces FROM sales GROUP BY 1, 2) t;
-- LIMIT, OFFSET and QUALIFY
SELECT COUNT(*) FROM (SELECT customer_id, COUNT(*) AS n FROM sales GROUP BY 1 LIMIT 5) t;
-- write the column favourite
SELECT f, COUNT(*) FROM (SELECT customer_id, MODE(category) AS f FROM sales LEFT JOIN product USING (product_id) GROUP BY 1) t GROUP BY 1;
-- is: sum(pieces) FILTER (WHERE pieces > 2)
SELECT COUNT(*) FROM (SELECT customer_id, SUM(pieces) FILTER (WHERE pieces > 2) AS s FROM sales GROUP BY 1) t WHERE s > 1;
-- is: count(DISTINCT pieces)
SELECT COUNT(*) FROM (SELECT customer_id FROM sales GROUP BY 1 HAVING COUNT(DISTINCT pieces) > 2) t;
-- count, sum, min, max
SELECT COUNT(*) FROM (SELECT customer_id, STDDEV(pieces) AS s FROM sales GROUP BY 1) t WHERE s > 1;
-- a query inside the condition
SELECT COUNT(*) FROM (SELECT customer_id FROM sales WHERE amount IN (SELECT MAX(amount) FROM sales) GROUP BY 1) t;
-- pieces is not a column of customer
SELECT COUNT(*) FROM (SELECT DISTINCT customer_id, pieces FROM sales) t;
