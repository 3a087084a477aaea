SELECT DATE_TRUNC('month', sold_on) AS month, department, AVG(amount) AS mean
FROM sales JOIN product USING (product_id) JOIN category USING (category_id)
GROUP BY ALL
-- 1. block 0: rows of sales, joined along product_id, product_id.category_id
-- 2. condition: category.category_id IS NOT NULL
-- 3. grouped by DATE_TRUNC('MONTH', sales.sold_on), product_id.category_id.category.department
-- 4. sales.amount: values beyond its bounds count as the nearest bound; their number was not measured
-- 5. view trend: 450 cells over sales.sold_on, category
-- 6. axis sales.sold_on: 2025-01-01 00:00:00: [0, 31), 2025-02-01 00:00:00: [31, 59), 2025-03-01 00:00:00: [59, 90) of 90 leaves; 2025-01-01 00:00:00 = [0, 30) at level 1 + [30, 31) at level 5; 7 of 14 nodes were not measured: they are sums of others
-- 7. axis category: drinks: [0, 2), food: [2, 5) of 5 leaves; drinks = [0, 2) at level 1; 2 of 3 nodes were not measured: they are sums of others
-- 8. noise of sales.amount, count: none; epsilon 1, sensitivity 12.5, 1, scale 12.5, 1 at the whole budget
-- 9. (sales.amount) / (count): half of the 95% interval / 1.96 is 0.00508222 to 0.0467054; variance = 2.06924e-07 to 5.48966e-07 noise of sales.amount + 2.55775e-05 to 0.0021769 noise of count
-- 10. DuckDB: SELECT a1.g, a2.g, SUM(c.e0), SUM(c.e1) FROM (SELECT n1, n2, estimate AS e0, NULL AS e1 FROM node_combination_5 UNION ALL SELECT n1, n2, NULL AS e0, estimate AS e1 FROM node_combination_4) AS c, (SELECT unnest(?::INTEGER[]) AS g, unnest(?::INTEGER[]) AS n) AS a1, (SELECT unnest(?::INTEGER[]) AS g, unnest(?::INTEGER[]) AS n) AS a2 WHERE c.n1 = a1.n AND c.n2 = a2.n GROUP BY a1.g, a2.g
-- 11. DuckDB: SELECT k0 AS "month", k1 AS "department", v0 AS "mean", dp_at AS "dp_hidden_1" FROM dp_block_0
