SELECT * FROM sales LIMIT 200
-- RawRowsError: the statement asks for rows of sales, and a release holds none; try SELECT COUNT(*) FROM sales
-- SELECT * FROM sales LIMIT 200
--        ^
