SELECT t.r, t.n FROM (SELECT region AS r, COUNT(*) AS n FROM (SELECT c.region FROM sales s
LEFT JOIN customer c ON s.customer_id = c.customer_id) AS virtual_table GROUP BY region) AS t WHERE t.n > 10 LIMIT 1000
-- 1. block 0: rows of sales, joined along customer_id
-- 2. condition: every row
-- 3. grouped by customer_id.customer.region
-- 4. view prices: 36 cells over product.price, customer.region
-- 5. axis product.price: [0, 6) of 6 leaves = [0, 6) at level 0; 1 of 1 nodes were not measured: they are sums of others
-- 6. axis customer.region: north: [0, 1), south: [1, 2), east: [2, 3), west: [3, 4), NULL: [4, 6) of 6 leaves; north = [0, 1) at level 2; 1 of 5 nodes were not measured: they are sums of others
-- 7. noise of count: none; epsilon 1, sensitivity 1, scale 1 at the whole budget
-- 8. count: half of the 95% interval / 1.96 is 2.48247 to 3.48742; variance = 6 to 12 noise of count
-- 9. DuckDB: SELECT a2.g, SUM(c.estimate) FROM node_combination_6 AS c, (SELECT unnest(?::INTEGER[]) AS g, unnest(?::INTEGER[]) AS n) AS a2 WHERE c.n1 = 0 AND c.n2 = a2.n GROUP BY a2.g
-- 10. DuckDB: SELECT t.r AS "r", t.n AS "n", "t"."dp_hidden_1" AS "dp_hidden_1" FROM (SELECT k0 AS "r", v0 AS "n", dp_at AS "dp_hidden_1", "dp_block_0"."dp_added" AS "dp_added" FROM dp_block_0) AS t WHERE t.n > 10 AND ("t"."dp_added" & 1) = 0 LIMIT 1000
