SELECT COUNT(*)
FROM sales JOIN customer USING (customer_id)
WHERE age BETWEEN 20 AND 29
-- 1. block 0: rows of sales, joined along customer_id
-- 2. condition: (customer_id.customer.age BETWEEN 20 AND 29 and customer.customer_id IS NOT NULL)
-- 3. view demand: 720 cells over customer.age, customer.region, category
-- 4. axis customer.age: [2, 12) of 24 leaves
-- 5. axis customer.region: [0, 5) of 6 leaves
-- 6. axis category: [0, 5) of 5 leaves
-- 7. statistic count: 5 x 3 x 1 nodes, sensitivity 1, epsilon 1
-- 8. predicted standard error: 15.8165 to 15.8165
-- 9. DuckDB: SELECT SUM(c.estimate) FROM node_combination_0 AS c, (SELECT unnest(?::INTEGER[]) AS n) AS a1, (SELECT unnest(?::INTEGER[]) AS n) AS a2 WHERE c.n1 = a1.n AND c.n2 = a2.n AND c.n3 = 0
-- 10. DuckDB: SELECT v0 AS "count_star()", dp_at AS "dp_hidden_1" FROM dp_block_0
