SELECT * FROM sales LIMIT 200
-- RawRowsError: the statement asks for rows of sales, and a release contains no rows; try SELECT COUNT(*) FROM sales
-- SELECT * FROM sales LIMIT 200
--        ^
