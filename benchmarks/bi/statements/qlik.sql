-- aggregate load
SELECT "channel", sum("price") AS "Revenue", count("guest_id") AS "Bookings" FROM "public"."booking" GROUP BY "channel";

-- load with a date floor and a year-month
SELECT date_trunc('month', "checkin_on") AS "Month", EXTRACT(year FROM "checkin_on") AS "Year", count(*) AS "N" FROM "public"."booking" GROUP BY 1, 2;

-- Direct Query: dimension and measure with a top limit
SELECT "T1"."tier" AS "D1", SUM("T0"."nights") AS "M1" FROM "public"."booking" AS "T0" LEFT JOIN "public"."guest" AS "T1" ON "T0"."guest_id" = "T1"."guest_id"
GROUP BY "T1"."tier" ORDER BY 2 DESC, 1 LIMIT 500;

-- Direct Query: totals with a set of values
SELECT SUM("T0"."price") AS "M1", COUNT(*) AS "M2" FROM "public"."booking" AS "T0" WHERE "T0"."channel" = ANY ('{web,app}');

-- Direct Query: an if inside an aggregate
SELECT SUM(CASE WHEN ("T0"."party" > 1) THEN "T0"."nights" END) AS "M1" FROM "public"."booking" AS "T0";

-- calendar of a year by the clock
SELECT EXTRACT(month FROM "checkin_on") AS "MonthNo", count(*) AS "N" FROM "public"."booking"
WHERE "checkin_on" >= date_trunc('year', CURRENT_DATE - interval '1 year') AND "checkin_on" < CURRENT_DATE GROUP BY 1;

-- month names
SELECT to_char("checkin_on", 'Mon') AS "MonthName", avg("price") AS "Price" FROM "public"."booking" GROUP BY 1;
