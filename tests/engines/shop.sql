-- The shop: <people> customers and <facts> sales (`tests.engines.star`).
CREATE MACRO pick(words, k) AS words[1 + (k % len(words))::INT];
CREATE TABLE customer AS
    WITH r AS (SELECT unnest(range(<people>)) AS i), h AS (SELECT i, hash(i * 64 + 1) AS h1, hash(i * 64 + 2)
        AS h2,
        hash(i * 64 + 3) AS h3 FROM r)
    SELECT CASE i WHEN 0 THEN -9223372036854775808 WHEN 1 THEN 9223372036854775807 ELSE (i - 40) * 3 END AS
        customer_id,
        CASE h1 % 40 WHEN 0 THEN NULL WHEN 1 THEN 'NaN'::DOUBLE WHEN 2 THEN 'inf'::DOUBLE WHEN 3 THEN
            '-inf'::DOUBLE
    WHEN 4 THEN 1e300 WHEN 5 THEN -0.0 WHEN 6 THEN 17.5 WHEN 7 THEN 89.49 WHEN 8 THEN -1e300 ELSE h2 % 90 END
        AS age,
        pick(['north', 'south', 'east', 'west', 'Nörd', NULL], h3) AS region FROM h;
CREATE TABLE product AS
    SELECT i AS product_id, CASE i % 17 WHEN 3 THEN NULL ELSE ((hash(i + 9000) % 52000)::DOUBLE /
        100)::DECIMAL(9, 2) END AS price
    FROM (SELECT unnest(range(300)) AS i)
    UNION ALL SELECT 7, (i + .5)::DECIMAL(9, 2) FROM (SELECT unnest(range(50)) AS i);
CREATE TABLE shop AS SELECT i::INT AS shop_id, pick(['Lyon', 'Nîmes', 'Paris'], i) AS city FROM (SELECT
    unnest(range(12)) AS i);
CREATE TABLE sales AS
    WITH r AS (SELECT unnest(range(<facts>)) AS i), h AS (SELECT i, hash(i * 64 + 11) AS h1, hash(i * 64 + 12)
        AS h2,
        hash(i * 64 + 13) AS h3, hash(i * 64 + 14) AS h4, hash(i * 64 + 15) AS h5, hash(i * 64 + 16) AS h6,
            hash(i * 64 + 17) AS h7,
        hash(i * 64 + 18) AS h8 FROM r),
    k AS (SELECT *, ((h1 % 1000003) / 1000003.0) AS u FROM h)
    SELECT CASE WHEN h2 % 31 = 0 THEN NULL WHEN h2 % 29 = 0 THEN 10000000 + h1 % 50
            WHEN h2 % 97 = 0 THEN -9223372036854775808 WHEN h2 % 101 = 0 THEN 9223372036854775807
            ELSE (2 + floor(u * u * (<people> - 2))::BIGINT - 40) * 3 END::BIGINT AS customer_id,
        CASE WHEN h3 % 41 = 0 THEN NULL ELSE h3 % 320 END::BIGINT AS product_id,
        CASE WHEN h8 % 43 = 0 THEN NULL ELSE h8 % 13 END::INT AS shop_id,
        CASE h4 % 50 WHEN 0 THEN NULL WHEN 1 THEN 'NaN'::DOUBLE WHEN 2 THEN 'inf'::DOUBLE WHEN 3 THEN
            '-inf'::DOUBLE
    WHEN 4 THEN 1e300 WHEN 5 THEN -1e300 WHEN 6 THEN -0.0 WHEN 7 THEN 4.35 WHEN 8 THEN 0.125 WHEN 9 THEN 2.675
    WHEN 10 THEN 499.995 ELSE (h5 % 60000)::DOUBLE / 100 - 20 END AS amount,
        CASE h5 % 60 WHEN 0 THEN NULL ELSE ((h6 % 2400001)::BIGINT - 1200000)::DECIMAL(18, 0) / 1000
            END::DECIMAL(12, 3) AS cost,
        TIMESTAMPTZ '2024-11-30 22:30:00+00' + to_minutes((h6 % 1200000)::BIGINT) AS sold_at,
        CASE WHEN h6 % 53 = 0 THEN NULL ELSE DATE '2024-12-20' + (h7 % 400)::INT END AS sold_on,
        pick(['web', 'Web', 'web ', ' web', 'café', 'cafe', 'CAFÉ', 'it''s', 'a\b', '${x}', 'phone', '',
            'shop'], h7 // 7) AS channel,
        CASE WHEN h8 % 19 = 0 THEN NULL ELSE h8 % 3 = 0 END AS loyal FROM k
