# Rows outside of the domain are in a group: `WHERE 17 > age GROUP BY age` had no group and no note, and the sum over its
# groups an interval of width 0.
## grouped
SELECT age AS k, COUNT(*) AS n FROM sales JOIN customer USING (customer_id) WHERE 17 > age GROUP BY 1;
SELECT age AS k, COUNT(*) AS n FROM sales JOIN customer USING (customer_id) WHERE age NOT IN (18, 19) GROUP BY 1;
SELECT age // 10 AS k, COUNT(*) AS n FROM sales JOIN customer USING (customer_id) WHERE age BETWEEN 40 AND 99 GROUP BY 1;
SELECT region AS k, COUNT(*) AS n FROM sales JOIN customer USING (customer_id) WHERE age > 38 GROUP BY 1;
