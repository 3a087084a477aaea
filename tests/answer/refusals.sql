## RawRowsError
-- SELECT: *
SELECT * FROM sales;

## ProgrammingError
-- ORDER BY: 2
SELECT COUNT(*) FROM sales ORDER BY 2;
-- ORDER BY: 0
SELECT age, COUNT(*) FROM customer GROUP BY 1 ORDER BY 0;
-- ORDER BY: 3
SELECT age, COUNT(*) FROM customer GROUP BY 1 ORDER BY 3 LIMIT 2;
-- ORDER BY: 9
SELECT * FROM (SELECT age, COUNT(*) AS n FROM customer GROUP BY 1) ORDER BY 9 LIMIT 2;
-- ORDER BY: 2
SELECT * FROM (SELECT COUNT(*) FROM shop) a UNION ALL SELECT * FROM (SELECT COUNT(*) FROM sales) b ORDER BY 2;
-- SELECT: age
SELECT age, COUNT(*) FROM customer;
-- SELECT:
SELECT DP_STDERR() FROM sales;
-- SELECT:
SELECT DP_INTERVAL_LOW(COUNT(*), 2) FROM sales;

## UnknownName
-- FROM: nowhere
SELECT COUNT(*) FROM nowhere;
-- FROM: other.sales
SELECT COUNT(*) FROM other.sales;
-- column: agee
SELECT COUNT(*) FROM customer WHERE agee > 3;
-- FROM: x.age
SELECT COUNT(*) FROM sales s JOIN customer c USING (customer_id) WHERE x.age > 3;

## NotSupportedError
-- JOIN: a.age = b.age
SELECT a.region FROM customer a JOIN customer b ON a.age = b.age GROUP BY 1;
-- FROM:
SELECT COUNT(*) FROM sales s, customer c;
-- JOIN: s.qty = c.age
SELECT COUNT(*) FROM sales s JOIN customer c ON s.qty = c.age;
-- JOIN:
SELECT COUNT(*) FROM sales s FULL JOIN customer c USING (customer_id);
-- SELECT: amount
SELECT MAX(amount) FROM sales;
-- SELECT: customer_id
SELECT COUNT(DISTINCT customer_id) FROM sales;
-- SELECT: SUM
SELECT SUM(DISTINCT amount) FROM sales;
-- :
SELECT COUNT(*) FROM sales WHERE sold_on < current_time;
-- : random
SELECT COUNT(*) FROM sales WHERE random() < 0.5;
-- FROM: read_parquet
SELECT COUNT(*) FROM read_parquet('x');
-- subquery: shop.qty
SELECT COUNT(*) FROM shop WHERE age > (SELECT AVG(qty) FROM sales WHERE sales.qty = shop.qty);
-- WHERE:
SELECT COUNT(*) FROM sales s WHERE EXISTS (SELECT 1 FROM customer c);
-- GROUP BY:
SELECT age, COUNT(*) FROM shop GROUP BY CUBE (age, age, age, age, age, age, age);

## NoViewError
-- WHERE: amount
SELECT COUNT(*) FROM sales WHERE amount > 5;

## SqlSyntaxError
-- statement:
SELECT COUNT(*) FROM;
