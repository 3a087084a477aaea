# `quantiles: true` on a measure: quantiles equal to plain SQL where a leaf is one value, else within an interval.
$SHOPS = FROM sale GROUP BY shop ORDER BY shop
$LATE = CASE WHEN delay < -100 THEN 0 WHEN delay < 0 THEN 1 WHEN delay < 10 THEN 2 WHEN delay < 30 THEN 3 WHEN
$GROUPS = (SELECT $LATE delay < 100 THEN 4 ELSE 5 END AS late, COUNT(*) AS n FROM sale GROUP BY 1)

# Leaves of one value give the exact quantile.
## row for row
-- SELECT QUANTILE_DISC(pieces, 0.5) $SHOPS
SELECT MEDIAN(pieces) $SHOPS;
-- SELECT QUANTILE_DISC(pieces, 0.5) FROM sale WHERE shop <> 'b'
SELECT MEDIAN(pieces) FROM sale WHERE shop <> 'b';
SELECT QUANTILE_DISC(pieces, 0.9) $SHOPS;
SELECT QUANTILE_DISC(pieces, 0.9) FROM sale WHERE shop <> 'b';
SELECT PERCENTILE_DISC(0.2) WITHIN GROUP (ORDER BY pieces) $SHOPS;
SELECT PERCENTILE_DISC(0.2) WITHIN GROUP (ORDER BY pieces) FROM sale WHERE shop <> 'b';
-- SELECT QUANTILE_DISC(pieces, 0.01) $SHOPS
SELECT MIN(pieces) $SHOPS;
-- SELECT QUANTILE_DISC(pieces, 0.99) FROM sale WHERE shop <> 'b'
SELECT MAX(pieces) FROM sale WHERE shop <> 'b';

## wide
-- SELECT shop, QUANTILE_DISC(price, 0.5) $SHOPS
SELECT shop, MEDIAN(price) $SHOPS;
-- SELECT shop, QUANTILE_DISC(price, 0.05) $SHOPS
SELECT shop, QUANTILE_CONT(price, 0.05) $SHOPS;
-- SELECT shop, QUANTILE_DISC(price, 0.99) $SHOPS
SELECT shop, MAX(price) $SHOPS;
-- SELECT shop, QUANTILE_DISC(price, 0.25) $SHOPS
SELECT shop, PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY price) $SHOPS;
-- SELECT shop, QUANTILE_DISC(price, 0.01) $SHOPS
SELECT shop, MIN(price) $SHOPS;
-- SELECT shop, QUANTILE_DISC(delay, 0.5) $SHOPS
SELECT shop, MEDIAN(delay) $SHOPS;
-- SELECT shop, QUANTILE_DISC(delay, 0.99) $SHOPS
SELECT shop, MAX(delay) $SHOPS;

## notes
-- MIN of sale.price is its 1% quantile
-- MAX of sale.delay is its 99% quantile
SELECT MIN(price), MAX(delay) FROM sale;

# Sums and counts stay exact.
## as duckdb
SELECT COUNT(*), SUM(price), COUNT(pieces), SUM(delay) FROM sale;
SELECT AVG(pieces) FROM sale WHERE shop = 'a';
SELECT STDDEV_POP(price) FROM sale;
SELECT COUNT(*) FROM sale WHERE pieces > 7;
SELECT SUM(delay) FROM sale WHERE delay >= 10;

# Groups that bins do not hold: 4 goes on in the next bin, a bin that is cut, none that is asked whole.
## refused PartialBinError
SELECT $LATE delay < 200 THEN 4 ELSE 5 END, COUNT(*) FROM sale GROUP BY 1;
SELECT $LATE delay < 100 THEN 4 ELSE 5 END, COUNT(*) FROM sale WHERE delay < 90 GROUP BY 1;
SELECT delay, COUNT(*) FROM sale GROUP BY 1;
SELECT delay % 7, COUNT(*) FROM sale GROUP BY 1;
# Nothing is worked out from groups that count others: the first would be 0 +- 0, where 4 was counted under 3.
-- builds on these groups
SELECT SUM(CASE WHEN late = 4 THEN n ELSE 0 END) FROM $GROUPS t;
-- builds on these groups
SELECT COUNT(*) FROM $GROUPS t;
-- builds on these groups
SELECT a.n - b.n FROM $GROUPS a JOIN $GROUPS b ON a.late = b.late + 1;

# Groups that share a bin are shown as that bin; bins begin at -300, -100, 0, 10 and 100.
## as duckdb, noting 3 also counts 4
-- SELECT least(late, 3 + 2 * (late // 5)), SUM(n), SUM(s) FROM (SELECT $LATE delay < 100 THEN 4 ELSE 5 END AS late, COUNT(*) AS n, SUM(delay) AS s FROM sale GROUP BY 1) GROUP BY 1 ORDER BY 1
SELECT $LATE delay < 100 THEN 4 ELSE 5 END AS late, COUNT(*), SUM(delay) FROM sale GROUP BY 1 ORDER BY 1;
-- SELECT least(late, 3 + 2 * (late // 5)), SUM(n), SUM(s) FROM (SELECT $LATE delay < 100 THEN 4 ELSE 5 END AS late, COUNT(*) AS n, SUM(delay) AS s FROM sale WHERE delay >= 0 GROUP BY 1) GROUP BY 1 ORDER BY 1
SELECT $LATE delay < 100 THEN 4 ELSE 5 END AS late, COUNT(*), SUM(delay) FROM sale WHERE delay >= 0 GROUP BY 1 ORDER BY 1;
-- SELECT least(late, 3 + 2 * (late // 5)), SUM(n), SUM(s) FROM (SELECT $LATE delay < 100 THEN 4 ELSE 5 END AS late, COUNT(*) AS n, SUM(delay) AS s FROM sale WHERE shop <> 'b' GROUP BY 1) GROUP BY 1 ORDER BY 1
SELECT $LATE delay < 100 THEN 4 ELSE 5 END AS late, COUNT(*), SUM(delay) FROM sale WHERE shop <> 'b' GROUP BY 1 ORDER BY 1;

# The rest of such groups is answered.
## as duckdb
SELECT * FROM $GROUPS t WHERE late < 3 ORDER BY late;
