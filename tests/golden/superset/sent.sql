-- What Superset 6.1 sent for SQL Lab, a bar chart, a time series and an Explore chart over the wide table.
SELECT
  region,
  COUNT(*) AS n,
  DP_STDERR(COUNT(*)) AS e
FROM shop
GROUP BY
  region
LIMIT 100001
;
SELECT category AS category, COUNT(*) AS n, DP_INTERVAL_LOW(COUNT(*)) AS low, DP_INTERVAL_HIGH(COUNT(*)) AS high
FROM main.shop GROUP BY category
 LIMIT 1000
;
SELECT DATE_TRUNC('MONTH', sold_on) AS sold_on, COUNT(*) AS n, DP_INTERVAL_LOW(COUNT(*)) AS low, DP_INTERVAL_HIGH(COUNT(*)) AS high
FROM main.shop
WHERE sold_on >= DATE '2025-01-01' AND sold_on < DATE '2025-07-01' GROUP BY DATE_TRUNC('MONTH', sold_on)
 LIMIT 1000
;
SELECT category AS category, COUNT(*) AS n, DP_INTERVAL_LOW(COUNT(*)) AS low, DP_INTERVAL_HIGH(COUNT(*)) AS high
FROM main.shop GROUP BY category ORDER BY n DESC
 LIMIT 100
;
