SELECT COUNT(*) FROM sales
-- 1. block 0: rows of sales
-- 2. view prices: 36 cells over product.price, customer.region
-- 3. axis product.price: [0, 6) of 6 leaves = [0, 6) at level 0; 1 of 1 nodes were not measured: they are sums of others
-- 4. axis customer.region: [0, 6) of 6 leaves = [0, 6) at level 0; 1 of 1 nodes were not measured: they are sums of others
-- 5. noise of count: none; epsilon 1, sensitivity 1, scale 1 at the whole budget
-- 6. count: half of the 95% interval / 1.96 is 6.01346; variance = 36 noise of count
-- 7. DuckDB: SELECT SUM(c.estimate) FROM node_combination_6 AS c WHERE c.n1 = 0 AND c.n2 = 0
-- 8. DuckDB: SELECT v0 AS "count_star()", dp_at AS "dp_hidden_1" FROM dp_block_0
