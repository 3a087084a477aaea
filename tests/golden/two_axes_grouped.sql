SELECT region, SUM(amount) AS total
FROM shop
WHERE age >= 30 AND category IN ('tea', 'jam')
GROUP BY region ORDER BY total DESC
-- 1. block 0: rows of sales, joined along customer_id, product_id, product_id.category_id
-- 2. condition: (customer_id.customer.age >= 30 and product_id.category_id.category.category IN ('tea', 'jam'))
-- 3. grouped by customer_id.customer.region
-- 4. sales.amount: values beyond its bounds count as the nearest bound; how many there are was not measured
-- 5. view demand: 720 cells over customer.age, customer.region, category
-- 6. axis customer.age: [12, 22) of 24 leaves
-- 7. axis customer.region: ('north',): [0, 1), ('south',): [1, 2), ('east',): [2, 3), ('west',): [3, 4), (None,): [4, 6) of 6 leaves
-- 8. axis category: [0, 1), [4, 5) of 5 leaves
-- 9. statistic sales.amount: 5 x 5 x 2 nodes, sensitivity 1250, epsilon 1
-- 10. statistic count: 5 x 5 x 2 nodes, sensitivity 1, epsilon 1
-- 11. predicted standard error: 56.1275 to 79.2166
-- 12. DuckDB: SELECT a2.g, SUM(c.e0), SUM(c.e1) FROM (SELECT n1, n2, n3, estimate AS e0, NULL AS e1 FROM node_combination_1 UNION ALL SELECT n1, n2, n3, NULL AS e0, estimate AS e1 FROM node_combination_0) AS c, (SELECT unnest(?::INTEGER[]) AS n) AS a1, (SELECT unnest(?::INTEGER[]) AS g, unnest(?::INTEGER[]) AS n) AS a2, (SELECT unnest(?::INTEGER[]) AS n) AS a3 WHERE c.n1 = a1.n AND c.n2 = a2.n AND c.n3 = a3.n GROUP BY a2.g
-- 13. DuckDB: SELECT k0 AS "region", v0 AS "total", dp_at AS "dp_hidden_1" FROM dp_block_0 ORDER BY "total" DESC
