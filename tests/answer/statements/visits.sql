# Conditions and fields finer than what the catalog knows of a column; rows that it puts beyond the bounds may be meant too.

## refused NotSupportedError
-- known to the hour, and has no minute
SELECT COUNT(*) FROM visits WHERE EXTRACT(minute FROM seen) = 0;
-- known to the hour, and has no minute
SELECT DATE_TRUNC('minute', seen), COUNT(*) FROM visits GROUP BY 1;
-- known to the hour, and has no minute
SELECT CASE WHEN seen + INTERVAL '1 day' > '2024-01-05' THEN MINUTE(seen) END, COUNT(*) FROM visits GROUP BY 1;

## refused PartialBinError
SELECT COUNT(*) FROM visits WHERE seen = TIMESTAMP '2024-01-03 12:10:00';

# Truncations are exact.
## uncut
SELECT DATE_TRUNC('day', seen) AS d, COUNT(*) AS n FROM visits GROUP BY 1;
SELECT COUNT(*) AS n FROM visits WHERE seen >= TIMESTAMP '2024-01-03 12:00:00';
SELECT COUNT(*) AS n FROM visits WHERE EXTRACT(hour FROM seen) = 3;
SELECT COUNT(*) AS n FROM visits WHERE day = DATE '2024-01-03';
SELECT COUNT(*) AS n FROM visits WHERE size > 5;
SELECT TO_TIMESTAMP(EPOCH(seen)) AS t, COUNT(*) AS n FROM visits GROUP BY 1;
SELECT TO_TIMESTAMP(EPOCH(day)) AS t, COUNT(*) AS n FROM visits GROUP BY 1;
SELECT COUNT(*) AS n FROM visits WHERE TO_TIMESTAMP(EPOCH(day)) < TIMESTAMP '2024-01-03';

## rows
-- [["day", "day"], ["price", "0.1"], ["seen", "hour"], ["size", "1"]]
SELECT column_name, dp_precision FROM information_schema.columns WHERE table_name = 'visits'
  AND column_name IN ('seen', 'day', 'size', 'price') ORDER BY 1;
