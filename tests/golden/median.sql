SELECT region, MEDIAN(age) FROM shop GROUP BY region
-- 1. block 0: rows of sales, joined along customer_id, product_id, product_id.category_id
-- 2. condition: every row
-- 3. grouped by customer_id.customer.region
-- 4. the groups come from the catalog; quantiles come from noisy counts along the axis
-- 5. the quantile of customer_id.customer.age comes from the view demand
-- 6. DuckDB: SELECT k0 AS "region", v0 AS "median(age)", dp_at AS "dp_hidden_1" FROM dp_block_0
