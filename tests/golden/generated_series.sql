SELECT g.d, COALESCE(t.n, 0) AS n
FROM generate_series(DATE '2025-01-30', DATE '2025-02-02', INTERVAL '1 day') AS g(d)
LEFT JOIN (SELECT sold_on AS s, COUNT(*) AS n FROM shop WHERE sold_on < (SELECT DATE '2025-02-01' + 9) GROUP BY 1) AS t ON t.s = g.d
-- 1. block 0: rows of sales, joined along customer_id, product_id, product_id.category_id
-- 2. condition: sales.sold_on < (CAST('2025-02-01' AS DATE) + 9)
-- 3. grouped by sales.sold_on
-- 4. view trend: 450 cells over sales.sold_on, category
-- 5. axis sales.sold_on: 2025-01-01: [0, 1), 2025-01-02: [1, 2), 2025-01-03: [2, 3), 2025-01-04: [3, 4), 2025-01-05: [4, 5), 2025-01-06: [5, 6) and 34 more of 90 leaves; 2025-01-01 = [0, 1) at level 5
-- 6. axis category: [0, 5) of 5 leaves = [0, 5) at level 0; 1 of 1 nodes were not measured: they are sums of others
-- 7. noise of count: none; epsilon 1, sensitivity 1, scale 1 at the whole budget
-- 8. count: half of the 95% interval / 1.96 is 2.2722; variance = 5 noise of count
-- 9. DuckDB: SELECT a1.g, SUM(c.estimate) FROM node_combination_4 AS c, (SELECT unnest(?::INTEGER[]) AS g, unnest(?::INTEGER[]) AS n) AS a1 WHERE c.n1 = a1.n AND c.n2 = 0 GROUP BY a1.g
-- 10. DuckDB: SELECT g.d AS "d", COALESCE(t.n, 0) AS "n", "t"."dp_hidden_1" AS "dp_hidden_1" FROM (SELECT s.n AS "d" FROM GENERATE_SERIES(CAST(CAST('2025-01-30' AS DATE) AS TIMESTAMP), CAST(CAST('2025-02-02' AS DATE) AS TIMESTAMP), CAST(INTERVAL '1' DAY AS INTERVAL)) AS s(n)) AS "g" LEFT JOIN (SELECT k0 AS "s", v0 AS "n", dp_at AS "dp_hidden_1" FROM dp_block_0) AS t ON t.s = g.d
