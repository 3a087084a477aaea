SELECT DISTINCT department FROM category ORDER BY 1
-- 1. block 0: rows of category
-- 2. condition: every row
-- 3. grouped by category.department
-- 4. from the catalog, no noise: category.department
-- 5. category.department: the values that some row of product has, not all of its table
-- 6. DuckDB: SELECT k0 AS "department", dp_at AS "dp_hidden_1" FROM dp_block_0 ORDER BY 1
