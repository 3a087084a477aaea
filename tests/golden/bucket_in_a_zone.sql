SELECT WIDTH_BUCKET(age, 20, 40, 4) AS b, COUNT(*) AS n FROM shop WHERE region = ANY ('{north,south}') GROUP BY 1
UNION ALL
SELECT DAYOFWEEK(sold_on::timestamptz AT TIME ZONE 'Asia/Tokyo'), COUNT(*) FROM shop WHERE TO_CHAR(sold_on, 'FMDay') > 'M' GROUP BY 1
-- 1. block 0: rows of sales, joined along customer_id, product_id, product_id.category_id
-- 2. condition: customer_id.customer.region IN ('north', 'south')
-- 3. grouped by CASE WHEN (customer_id.customer.age) < 20 THEN 0 WHEN (customer_id.customer.age) >= 40 THEN 4 + 1 WHEN (customer_id.customer.age) IS NULL THEN NULL ELSE CAST(FLOOR(((customer_id.customer.age) - 20) * 4 / (40 - 20)) AS INT) + 1 END
-- 4. groups without a value of customer.age also contain values outside the catalog's domain
-- 5. rows of unlisted values of customer.age, which may be meant or not, may shift count by up to 12; intervals include it
-- 6. view demand: 720 cells over customer.age, customer.region, category
-- 7. axis customer.age: 0: [0, 2), 0: [23, 24), 1: [2, 7), 1: [23, 24), 2: [7, 12), 2: [23, 24) and 5 more of 24 leaves; 0 = [0, 1) at level 3 + [1, 2) at level 3 + 3.73e-09 x [23, 24) at level 3; 4 of 22 nodes were not measured: they are sums of others
-- 8. axis customer.region: [0, 2) of 6 leaves = [0, 2) at level 1; 1 of 1 nodes were not measured: they are sums of others
-- 9. axis category: [0, 5) of 5 leaves = [0, 5) at level 0; 1 of 1 nodes were not measured: they are sums of others
-- 10. noise of count: none; epsilon 1, sensitivity 1, scale 1 at the whole budget
-- 11. count: half of the 95% interval / 1.96 is 7.55148 to 10.8177; variance = 20 to 50 noise of count; cut bins move it by up to 12
-- 12. block 1: rows of sales, joined along customer_id, product_id, product_id.category_id
-- 13. condition: STRFTIME(sales.sold_on, '%A') > 'M'
-- 14. grouped by DAYOFWEEK(CAST(CAST(sales.sold_on AS TIMESTAMP) AS TIMESTAMP) AT TIME ZONE 'UTC' AT TIME ZONE 'Asia/Tokyo')
-- 15. view trend: 450 cells over sales.sold_on, category
-- 16. axis sales.sold_on: 3: [0, 1), 3: [7, 8), 3: [14, 15), 3: [21, 22), 3: [28, 29), 3: [35, 36) and 71 more of 90 leaves; 3 = [0, 1) at level 5 + [7, 8) at level 4 + [14, 15) at level 4 + [21, 22) at level 5 + [28, 29) at level 4 + [35, 36) at level 4 + [42, 43) at level 4 + [49, 50) at level 4 + ..
-- 17. axis category: [0, 5) of 5 leaves = [0, 5) at level 0; 1 of 1 nodes were not measured: they are sums of others
-- 18. noise of count: none; epsilon 1, sensitivity 1, scale 1 at the whole budget
-- 19. count: half of the 95% interval / 1.96 is 7.7564 to 8.07228; variance = 60 to 65 noise of count
-- 20. DuckDB: SELECT a1.g, SUM(c.estimate * a1.w), SUM(c.estimate * (a1.w - CASE WHEN a1.w < 1 THEN 0 ELSE 1 END)), SUM(c.estimate * (1 - a1.w)) FROM node_combination_0 AS c, (SELECT unnest(?::INTEGER[]) AS g, unnest(?::INTEGER[]) AS n, unnest(?::DOUBLE[]) AS w) AS a1 WHERE c.n1 = a1.n AND c.n2 = ? AND c.n3 = 0 GROUP BY a1.g
-- 21. DuckDB: SELECT a1.g, SUM(c.estimate) FROM node_combination_4 AS c, (SELECT unnest(?::INTEGER[]) AS g, unnest(?::INTEGER[]) AS n) AS a1 WHERE c.n1 = a1.n AND c.n2 = 0 GROUP BY a1.g
-- 22. DuckDB: SELECT k0 AS "b", v0 AS "n", dp_at AS "dp_hidden_1", NULL AS "dp_hidden_2" FROM dp_block_0 UNION ALL SELECT k0 AS "dayofweek(CAST(CAST(sold_on AS TIMESTAMP) AS TIMESTAMP) AT TIME ZONE 'UTC' AT TIME ZONE 'Asia/Tokyo')", v0 AS "count_star()", NULL AS "dp_hidden_1", dp_at AS "dp_hidden_2" FROM dp_block_1
