## numbers
-- COUNT(*)
COUNT(*);
-- COUNT(*)
SUM(amount);
-- COUNT(*)
AVG(amount);
-- COUNT(*)
SUM(age);
-- COUNT(*)
SUM(amount) / COUNT(*) + 3;
-- COUNT(*) FILTER (WHERE {f})
COUNT(*) FILTER (WHERE {f});
-- COUNT(*) FILTER (WHERE {f})
SUM(CASE WHEN {f} THEN amount ELSE 0 END);
-- COUNT(*) FILTER (WHERE {f})
100 * COUNT(*) FILTER (WHERE {f}) / COUNT(*);
-- COUNT(*) FILTER (WHERE ({f}) IS NOT TRUE)
COUNT(*) - COUNT(*) FILTER (WHERE {f});
-- COUNT(*) FILTER (WHERE ({f}) IS NOT TRUE)
2 * SUM(amount) - 2 * SUM(amount) FILTER (WHERE {f});
-- COUNT(*) FILTER (WHERE age = 33)
SUM(CASE WHEN age = 33 THEN 1000000 ELSE 1 END);
-- COUNT(*) FILTER (WHERE age > 58)
SUM(GREATEST(age - 58, 0));
-- COUNT(*) FILTER (WHERE {f})
DP_STDERR(COUNT(*) FILTER (WHERE {f}));
-- COUNT(*)
DP_INTERVAL_LOW(SUM(amount));
-- COUNT(*) FILTER (WHERE ({f}) IS NOT TRUE)
DP_INTERVAL_HIGH(COUNT(*) - COUNT(*) FILTER (WHERE {f}));
