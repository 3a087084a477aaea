SELECT 'all' AS k, COUNT(*) AS n FROM sales
UNION ALL SELECT 'young', COUNT(*) FROM shop WHERE age < 25
-- 1. block 0: rows of sales
-- 2. view prices: 36 cells over product.price, customer.region
-- 3. axis product.price: [0, 6) of 6 leaves = [0, 6) at level 0; 1 of 1 nodes were not measured: they are sums of others
-- 4. axis customer.region: [0, 6) of 6 leaves = [0, 6) at level 0; 1 of 1 nodes were not measured: they are sums of others
-- 5. noise of count: none; epsilon 1, sensitivity 1, scale 1 at the whole budget
-- 6. count: half of the 95% interval / 1.96 is 6.01346; variance = 36 noise of count
-- 7. block 1: rows of sales, joined along customer_id, product_id, product_id.category_id
-- 8. condition: customer_id.customer.age < 25
-- 9. rows of unlisted values of customer.age, which may be meant or not, may shift count by up to 38; intervals include it
-- 10. view demand: 720 cells over customer.age, customer.region, category
-- 11. axis customer.age: [0, 7), [23, 24) of 24 leaves = [0, 3) at level 2 + [3, 6) at level 2 + [6, 7) at level 3 + 3.73e-09 x [23, 24) at level 3; 2 of 4 nodes were not measured: they are sums of others
-- 12. axis customer.region: [0, 6) of 6 leaves = [0, 6) at level 0; 1 of 1 nodes were not measured: they are sums of others
-- 13. axis category: [0, 5) of 5 leaves = [0, 5) at level 0; 1 of 1 nodes were not measured: they are sums of others
-- 14. noise of count: none; epsilon 1, sensitivity 1, scale 1 at the whole budget
-- 15. count: half of the 95% interval / 1.96 is 25.1912; variance = 210 noise of count; cut bins move it by up to 38
-- 16. DuckDB: SELECT SUM(c.estimate) FROM node_combination_6 AS c WHERE c.n1 = 0 AND c.n2 = 0
-- 17. DuckDB: SELECT SUM(c.estimate * a1.w), SUM(c.estimate * (a1.w - CASE WHEN a1.w < 1 THEN 0 ELSE 1 END)), SUM(c.estimate * (1 - a1.w)) FROM node_combination_0 AS c, (SELECT unnest(?::INTEGER[]) AS n, unnest(?::DOUBLE[]) AS w) AS a1 WHERE c.n1 = a1.n AND c.n2 = 0 AND c.n3 = 0
-- 18. DuckDB: SELECT 'all' AS "k", v0 AS "n", dp_at AS "dp_hidden_1", NULL AS "dp_hidden_2" FROM dp_block_0 UNION ALL SELECT 'young' AS "'young'", v0 AS "count_star()", NULL AS "dp_hidden_1", dp_at AS "dp_hidden_2" FROM dp_block_1
