SELECT region, SUM(amount) AS total
FROM shop
WHERE age >= 30 AND category IN ('tea', 'jam')
GROUP BY region ORDER BY total DESC
-- 1. block 0: rows of sales, joined along customer_id, product_id, product_id.category_id
-- 2. condition: (customer_id.customer.age >= 30 and product_id.category_id.category.category IN ('tea', 'jam'))
-- 3. grouped by customer_id.customer.region
-- 4. sales.amount: values beyond its bounds count as the nearest bound; their number was not measured
-- 5. rows of unlisted values of customer.age, which may be meant or not, may shift sales.amount by up to 164.5; intervals include it
-- 6. view demand: 720 cells over customer.age, customer.region, category
-- 7. axis customer.age: [12, 22), [23, 24) of 24 leaves = [12, 13) at level 3 + [13, 14) at level 3 + [14, 16) at level 2 + [16, 19) at level 2 + [19, 22) at level 2 + 3.73e-09 x [23, 24) at level 3; 3 of 6 nodes were not measured: they are sums of others
-- 8. axis customer.region: north: [0, 1), south: [1, 2), east: [2, 3), west: [3, 4), NULL: [4, 6) of 6 leaves; north = [0, 1) at level 2; 1 of 5 nodes were not measured: they are sums of others
-- 9. axis category: [0, 1), [4, 5) of 5 leaves = [0, 1) at level 2 + [4, 5) at level 1
-- 10. noise of sales.amount, count: none; epsilon 1, sensitivity 12.5, 1, scale 12.5, 1 at the whole budget
-- 11. sales.amount: half of the 95% interval / 1.96 is 58.8455 to 116.245; variance = 0.002 to 0.004 noise of sales.amount + 3125 to 6250 noise of count; cut bins move it by up to 0 to 164.495
-- 12. DuckDB: SELECT a2.g, SUM(c.estimate * a1.w * a2.w * a3.w), SUM(c.estimate * (a1.w * a2.w * a3.w - CASE WHEN a1.w * a2.w * a3.w < 1 THEN 0 ELSE 1 END)), SUM(c.estimate * (1 - a1.w * a2.w * a3.w)) FROM node_combination_1 AS c, (SELECT unnest(?::INTEGER[]) AS n, unnest(?::DOUBLE[]) AS w) AS a1, (SELECT unnest(?::INTEGER[]) AS g, unnest(?::INTEGER[]) AS n, unnest(?::DOUBLE[]) AS w) AS a2, (SELECT unnest(?::INTEGER[]) AS n, unnest(?::DOUBLE[]) AS w) AS a3 WHERE c.n1 = a1.n AND c.n2 = a2.n AND c.n3 = a3.n GROUP BY a2.g
-- 13. DuckDB: SELECT a2.g, SUM(c.estimate * a1.w * a2.w * a3.w), SUM(c.estimate * (a1.w * a2.w * a3.w - CASE WHEN a1.w * a2.w * a3.w < 1 THEN 0 ELSE 1 END)), SUM(c.estimate * (1 - a1.w * a2.w * a3.w)) FROM node_combination_0 AS c, (SELECT unnest(?::INTEGER[]) AS n, unnest(?::DOUBLE[]) AS w) AS a1, (SELECT unnest(?::INTEGER[]) AS g, unnest(?::INTEGER[]) AS n, unnest(?::DOUBLE[]) AS w) AS a2, (SELECT unnest(?::INTEGER[]) AS n, unnest(?::DOUBLE[]) AS w) AS a3 WHERE c.n1 = a1.n AND c.n2 = a2.n AND c.n3 = a3.n GROUP BY a2.g
-- 14. DuckDB: SELECT k0 AS "region", v0 AS "total", dp_at AS "dp_hidden_1" FROM dp_block_0 ORDER BY "total" DESC
