SELECT region, MAX(t.n) AS n, SUM(t.n) AS s
FROM shop JOIN (SELECT region AS r, COUNT(*) AS n FROM shop GROUP BY 1 ORDER BY 2 DESC LIMIT 2) AS t ON region = t.r
GROUP BY region
-- 1. block 0: rows of sales, joined along customer_id, product_id, product_id.category_id
-- 2. condition: every row
-- 3. grouped by customer_id.customer.region
-- 4. view prices: 36 cells over product.price, customer.region
-- 5. axis product.price: [0, 6) of 6 leaves = [0, 6) at level 0; 1 of 1 nodes were not measured: they are sums of others
-- 6. axis customer.region: north: [0, 1), south: [1, 2), east: [2, 3), west: [3, 4), NULL: [4, 6) of 6 leaves; north = [0, 1) at level 2; 1 of 5 nodes were not measured: they are sums of others
-- 7. noise of count: none; epsilon 1, sensitivity 1, scale 1 at the whole budget
-- 8. count: half of the 95% interval / 1.96 is 2.48247 to 3.48742; variance = 6 to 12 noise of count
-- 9. block 1: rows of sales, joined along customer_id, product_id, product_id.category_id
-- 10. condition: every row
-- 11. grouped by customer_id.customer.region
-- 12. view prices: 36 cells over product.price, customer.region
-- 13. axis product.price: [0, 6) of 6 leaves = [0, 6) at level 0; 1 of 1 nodes were not measured: they are sums of others
-- 14. axis customer.region: north: [0, 1), south: [1, 2), east: [2, 3), west: [3, 4), NULL: [4, 6) of 6 leaves; north = [0, 1) at level 2; 1 of 5 nodes were not measured: they are sums of others
-- 15. noise of count: none; epsilon 1, sensitivity 1, scale 1 at the whole budget
-- 16. count: half of the 95% interval / 1.96 is 2.48247 to 3.48742; variance = 6 to 12 noise of count
-- 17. DuckDB: SELECT a2.g, SUM(c.estimate) FROM node_combination_6 AS c, (SELECT unnest(?::INTEGER[]) AS g, unnest(?::INTEGER[]) AS n) AS a2 WHERE c.n1 = 0 AND c.n2 = a2.n GROUP BY a2.g
-- 18. DuckDB: SELECT a2.g, SUM(c.estimate) FROM node_combination_6 AS c, (SELECT unnest(?::INTEGER[]) AS g, unnest(?::INTEGER[]) AS n) AS a2 WHERE c.n1 = 0 AND c.n2 = a2.n GROUP BY a2.g
-- 19. DuckDB: SELECT dp_block_1.k0 AS "region", "dp_answer_1"."n" AS "n", LIST_FILTER(LIST_PACK(dp_block_1.v0 * ("dp_answer_1"."n")), LAMBDA dp_v : NOT ISFINITE(TRY_CAST(dp_v AS DOUBLE)) IS FALSE)[1] AS "s", dp_block_1.dp_at AS "dp_hidden_2" FROM dp_block_1 JOIN (SELECT k0 AS "r", v0 AS "n", "dp_block_0"."dp_added" AS "dp_added" FROM dp_block_0 WHERE ("dp_block_0"."dp_added" & 1) = 0 ORDER BY 2 DESC LIMIT 2) AS dp_answer_1 ON dp_block_1.k0 = "dp_answer_1"."r" WHERE (COALESCE("dp_block_1"."dp_added", 0) & 2) = 0
