## golden
SELECT COUNT(*) FROM sales;
SELECT COUNT(*) AS n, SUM(amount) AS s, AVG(amount) AS a FROM sales;
SELECT COUNT(*) FROM customer;
SELECT COUNT(*) FROM sales s, customer c WHERE s.customer_id = c.customer_id AND c.age BETWEEN 20 AND 29;
SELECT SUM(amount) FROM sales JOIN customer USING (customer_id) JOIN product USING (product_id) WHERE age BETWEEN 30
  AND 44 AND price >= 20 AND price < 55;
SELECT region, COUNT(*) AS n FROM sales JOIN customer USING (customer_id) GROUP BY region ORDER BY n DESC;
SELECT DATE_TRUNC('month', sold_on) AS m, COUNT(*), SUM(amount) FROM sales GROUP BY 1 ORDER BY 1;
SELECT EXTRACT(MONTH FROM sold_on) AS m, region, AVG(amount) FROM sales JOIN customer USING (customer_id)
  WHERE NOT region IN ('north', 'south') GROUP BY 1, 2 ORDER BY m, region;
SELECT category, COUNT(*) FROM sales JOIN product USING (product_id) GROUP BY category ORDER BY category LIMIT 5;
SELECT brand, category, SUM(amount) AS s FROM sales JOIN product USING (product_id) WHERE brand <> 'zzz'
  GROUP BY brand, category;
SELECT age_group, SUM(amount) AS s FROM sales JOIN customer USING (customer_id) GROUP BY age_group;
SELECT sex, COUNT(*) FROM customer WHERE age < 40 OR age >= 70 GROUP BY sex;
SELECT COUNT(*) FROM sales LEFT JOIN product ON sales.product_id = product.product_id;
SELECT COUNT(*) FROM customer WHERE age BETWEEN 50 AND 40;
SELECT sold_on, COUNT(*) FROM sales WHERE sold_on BETWEEN DATE '2025-03-01' AND DATE '2025-03-31' GROUP BY sold_on;
