SELECT COUNT(*)
FROM sales JOIN customer USING (customer_id)
WHERE age BETWEEN 20 AND 29
-- 1. block 0: rows of sales, joined along customer_id
-- 2. condition: (customer_id.customer.age BETWEEN 20 AND 29 and customer.customer_id IS NOT NULL)
-- 3. view demand: 720 cells over customer.age, customer.region, category
-- 4. axis customer.age: [2, 12) of 24 leaves = [2, 3) at level 3 + [3, 6) at level 2 + [6, 8) at level 2 + [8, 11) at level 2 + [11, 12) at level 3; 3 of 5 nodes were not measured: they are sums of others
-- 5. axis customer.region: [0, 5) of 6 leaves = [0, 2) at level 1 + [2, 4) at level 1 + [4, 5) at level 2; 2 of 3 nodes were not measured: they are sums of others
-- 6. axis category: [0, 5) of 5 leaves = [0, 5) at level 0; 1 of 1 nodes were not measured: they are sums of others
-- 7. noise of count: none; epsilon 1, sensitivity 1, scale 1 at the whole budget
-- 8. count: half of the 95% interval / 1.96 is 15.8165; variance = 250 noise of count
-- 9. DuckDB: SELECT SUM(c.estimate) FROM node_combination_0 AS c, (SELECT unnest(?::INTEGER[]) AS n) AS a1, (SELECT unnest(?::INTEGER[]) AS n) AS a2 WHERE c.n1 = a1.n AND c.n2 = a2.n AND c.n3 = 0
-- 10. DuckDB: SELECT v0 AS "count_star()", dp_at AS "dp_hidden_1" FROM dp_block_0
