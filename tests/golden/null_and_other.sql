SELECT COUNT(*) FROM customer WHERE age IS NOT NULL AND region IS NULL
-- 1. block 0: rows of customer
-- 2. condition: (NOT (customer.age IS NULL) and customer.region IS NULL)
-- 3. view people: 115 cells over customer.age, customer.region
-- 4. axis customer.age: [0, 23) of 23 leaves
-- 5. axis customer.region: [4, 5) of 5 leaves
-- 6. statistic count: 1 x 1 nodes, sensitivity 1, epsilon 1
-- 7. predicted standard error: 4.81268 to 4.81268
-- 8. DuckDB: SELECT SUM(c.estimate) FROM node_combination_8 AS c WHERE c.n1 = 0 AND c.n2 = ?
-- 9. DuckDB: SELECT v0 AS "count_star()", dp_at AS "dp_hidden_1" FROM dp_block_0
