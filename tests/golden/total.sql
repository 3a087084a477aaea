SELECT COUNT(*) FROM sales
-- 1. block 0: rows of sales
-- 2. view prices: 36 cells over product.price, customer.region
-- 3. axis product.price: [0, 6) of 6 leaves
-- 4. axis customer.region: [0, 6) of 6 leaves
-- 5. statistic count: 1 x 1 nodes, sensitivity 1, epsilon 1
-- 6. predicted standard error: 6.01346 to 6.01346
-- 7. DuckDB: SELECT SUM(c.estimate) FROM node_combination_6 AS c WHERE c.n1 = 0 AND c.n2 = 0
-- 8. DuckDB: SELECT v0 AS "count_star()", dp_at AS "dp_hidden_1" FROM dp_block_0
