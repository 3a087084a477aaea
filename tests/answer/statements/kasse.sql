# Derived columns as measures and axes, of days and numbers that a CSV file writes in its own way; never NULL.

## rows
-- [[false, 1235.0, 2, 617.5], [true, 2470.0, 4, 617.5]]
SELECT neu, SUM(summe), COUNT(summe), AVG(summe) FROM kauf WHERE tag IS NOT NULL GROUP BY neu ORDER BY neu;
-- [[3707.0]]
SELECT SUM(replace(replace(betrag, '.', ''), ',', '.')) FROM kauf;
-- [[3707.0]]
SELECT SUM(summe) FROM kauf;
-- [[1, 3], [3, 3], [12, 3]]
SELECT month(tag) AS m, COUNT(*) AS n FROM kauf WHERE tag IS NOT NULL GROUP BY m HAVING n > 1;
-- [[1]]
SELECT COUNT(*) FROM kauf WHERE tag IS NULL;
# A count of what the catalog calls never NULL is that of all rows, and the row without pieces has the middle: 5.
-- [[10, 10, 41]]
SELECT COUNT(*), COUNT(stueck), SUM(stueck) FROM kauf;
# One row of three has no years; a view of another axis counts them, and so does the axis itself.
-- [[2]]
SELECT COUNT(jahre) FROM kauf WHERE month(tag) = 3;
-- [[7]]
SELECT COUNT(jahre) FROM kauf;

# A measure that is compared has no axis.
## refused NotSupportedError
SELECT COUNT(*) FROM kauf WHERE summe > 10;

# Asked twice: the second time a shape is known.
## notes
-- the catalog declares kauf.stueck never NULL; COUNT(kauf.stueck) counts NULLs too, and its sums and averages use the middle of its bounds for them
SELECT COUNT(*), COUNT(stueck), SUM(stueck) FROM kauf;
-- the catalog declares kauf.stueck never NULL; COUNT(kauf.stueck) counts NULLs too, and its sums and averages use the middle of its bounds for them
SELECT COUNT(*) AS n, COUNT(stueck), SUM(stueck) FROM kauf;
-- the catalog declares kauf.neu never NULL; COUNT(kauf.neu) counts NULLs too
SELECT COUNT(neu) FROM kauf;
-- not never NULL
SELECT COUNT(*) FROM kauf;
-- not never NULL
SELECT COUNT(summe) FROM kauf;
-- not never NULL
SELECT COUNT(tag) FROM kauf;
-- not never NULL
SELECT SUM(stueck) FROM kauf;
