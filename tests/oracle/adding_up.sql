$CUSTOMER = JOIN customer USING (customer_id)
$PRODUCT = JOIN product USING (product_id)

## parts and the whole
-- SELECT COUNT(*) FROM sales
SELECT region, COUNT(*) FROM sales $CUSTOMER GROUP BY region;
-- SELECT COUNT(*) FROM sales
SELECT sold_on, COUNT(*) FROM sales GROUP BY sold_on;
-- SELECT COUNT(*) FROM sales
SELECT EXTRACT(MONTH FROM sold_on), COUNT(*) FROM sales GROUP BY 1;
-- SELECT COUNT(*) FROM sales $PRODUCT
SELECT category, COUNT(*) FROM sales $PRODUCT GROUP BY 1;
-- SELECT COUNT(*) FROM sales WHERE sold_on < DATE '2025-07-01'
SELECT region, COUNT(*) FROM sales $CUSTOMER WHERE sold_on < DATE '2025-07-01' GROUP BY 1;
-- SELECT COUNT(*) FROM customer WHERE age >= 40
SELECT sex, COUNT(*) FROM customer WHERE age >= 40 GROUP BY sex;
-- SELECT SUM(amount) FROM sales
SELECT region, SUM(amount) FROM sales $CUSTOMER GROUP BY region;
