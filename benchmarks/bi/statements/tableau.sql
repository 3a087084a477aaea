-- number of records
SELECT COUNT(1) AS "cnt:booking:ok" FROM "public"."booking" "booking" HAVING (COUNT(1) > 0);

-- year and quarter of a date
SELECT CAST(TRUNC(EXTRACT(QUARTER FROM "booking"."checkin_on")) AS INTEGER) AS "qr:checkin_on:ok",
  SUM("booking"."price") AS "sum:price:ok", CAST(TRUNC(EXTRACT(YEAR FROM "booking"."checkin_on")) AS INTEGER) AS "yr:checkin_on:ok"
FROM "public"."booking" "booking" GROUP BY 1, 3;

-- truncated month with a relationship
SELECT DATE_TRUNC( 'MONTH', CAST("booking"."checkin_on" AS TIMESTAMP) ) AS "tmn:checkin_on:ok", "guest"."tier" AS "tier",
  AVG(CAST("booking"."price" AS DOUBLE PRECISION)) AS "avg:price:ok"
FROM "public"."booking" "booking" INNER JOIN "public"."guest" "guest" ON ("booking"."guest_id" = "guest"."guest_id") GROUP BY 1, 2;

-- top N filter: a joined derived table, aggregate of its rows
SELECT "booking"."channel" AS "channel", SUM("booking"."price") AS "sum:price:ok"
FROM "public"."booking" "booking"
INNER JOIN (SELECT "booking"."channel" AS "channel", SUM("booking"."price") AS "$__alias__0" FROM "public"."booking" "booking"
  GROUP BY 1 ORDER BY 2 DESC LIMIT 2) "t0" ON ("booking"."channel" = "t0"."channel") GROUP BY 1;

-- a top-N value inside an aggregate, as level of detail expressions write it
SELECT "booking"."channel" AS "channel", MAX("t0"."__measure__0") AS "max:share:ok", SUM("booking"."price") AS "sum:price:ok"
FROM "public"."booking" "booking"
INNER JOIN (SELECT "booking"."channel" AS "channel", SUM("booking"."price") AS "__measure__0" FROM "public"."booking" "booking"
  GROUP BY 1 ORDER BY 2 DESC LIMIT 3) "t0" ON ("booking"."channel" IS NOT DISTINCT FROM "t0"."channel") GROUP BY 1;

-- domain of a quick filter
SELECT "guest"."country" AS "country" FROM "public"."guest" "guest" GROUP BY 1 ORDER BY 1 ASC NULLS FIRST;

-- range of a quick filter
SELECT MIN("guest"."age") AS "TEMP(lower)", MAX("guest"."age") AS "TEMP(upper)", COUNT(1) AS "TEMP(count)" FROM "public"."guest" "guest" HAVING (COUNT(1) > 0);

-- bins of a calculated field
SELECT (FLOOR(("guest"."age" / 10)) * 10) AS "age (bin)", COUNT(1) AS "cnt" FROM "public"."guest" "guest" GROUP BY 1;

-- relative date filter: last three months by the clock
SELECT DATE_TRUNC('DAY', CAST("booking"."checkin_on" AS TIMESTAMP)) AS "tdy:checkin_on:ok", COUNT(1) AS "cnt"
FROM "public"."booking" "booking"
WHERE (("booking"."checkin_on" >= CAST(DATE_TRUNC('MONTH', CURRENT_DATE - 90 * INTERVAL '1 DAY') AS DATE)) AND ("booking"."checkin_on" <= CURRENT_DATE))
GROUP BY 1;

-- set membership: in or out
SELECT (CASE WHEN ("hotel"."stars" IN (4, 5)) THEN 'In' ELSE 'Out' END) AS "io:stars", SUM("booking"."nights") AS "sum:nights:ok"
FROM "public"."booking" "booking" JOIN "public"."hotel" "hotel" ON ("booking"."hotel_id" = "hotel"."hotel_id") GROUP BY 1;

-- weekday names
SELECT TRIM(TO_CHAR("booking"."checkin_on", 'Day')) AS "weekday", COUNT(1) AS "cnt" FROM "public"."booking" "booking" GROUP BY 1;
