-- count of rows
SELECT COUNT(*) AS "count" FROM "public"."booking";

-- summarise by month, the default of a date breakout
SELECT CAST(DATE_TRUNC('month', "public"."booking"."booked_at") AS DATE) AS "booked_at", COUNT(*) AS "count"
FROM "public"."booking"
GROUP BY CAST(DATE_TRUNC('month', "public"."booking"."booked_at") AS DATE)
ORDER BY CAST(DATE_TRUNC('month', "public"."booking"."booked_at") AS DATE) ASC;

-- week that begins on Sunday: shifted by a day there and back
SELECT (CAST(DATE_TRUNC('week', ("public"."booking"."booked_at" + INTERVAL '1 day')) AS DATE) + INTERVAL '-1 day') AS "booked_at",
  SUM("public"."booking"."price") AS "sum"
FROM "public"."booking"
GROUP BY (CAST(DATE_TRUNC('week', ("public"."booking"."booked_at" + INTERVAL '1 day')) AS DATE) + INTERVAL '-1 day')
ORDER BY (CAST(DATE_TRUNC('week', ("public"."booking"."booked_at" + INTERVAL '1 day')) AS DATE) + INTERVAL '-1 day') ASC;

-- relative date filter: previous 30 days
SELECT COUNT(*) AS "count" FROM "public"."booking"
WHERE ("public"."booking"."checkin_on" >= CAST((NOW() + (INTERVAL '-30 day')) AS date))
  AND ("public"."booking"."checkin_on" < CAST(NOW() AS date));

-- relative date filter: previous 3 months, by channel
SELECT "public"."booking"."channel" AS "channel", COUNT(*) AS "count" FROM "public"."booking"
WHERE ("public"."booking"."booked_at" >= DATE_TRUNC('month', (NOW() + (INTERVAL '-3 month'))))
  AND ("public"."booking"."booked_at" < DATE_TRUNC('month', NOW()))
GROUP BY "public"."booking"."channel" ORDER BY "public"."booking"."channel" ASC;

-- day of week breakout through a join
SELECT (CAST(EXTRACT(dow FROM "public"."booking"."checkin_on") AS integer) + 1) AS "checkin_on", AVG("public"."booking"."price") AS "avg"
FROM "public"."booking"
GROUP BY (CAST(EXTRACT(dow FROM "public"."booking"."checkin_on") AS integer) + 1)
ORDER BY (CAST(EXTRACT(dow FROM "public"."booking"."checkin_on") AS integer) + 1) ASC;

-- numeric binning: width 10, through an implicit join
SELECT ((FLOOR((("guest__via__guest_id"."age" - 10.0) / 10.0)) * 10.0) + 10.0) AS "age", COUNT(*) AS "count"
FROM "public"."booking"
LEFT JOIN "public"."guest" AS "guest__via__guest_id" ON "public"."booking"."guest_id" = "guest__via__guest_id"."guest_id"
GROUP BY ((FLOOR((("guest__via__guest_id"."age" - 10.0) / 10.0)) * 10.0) + 10.0)
ORDER BY ((FLOOR((("guest__via__guest_id"."age" - 10.0) / 10.0)) * 10.0) + 10.0) ASC;

-- nested question: average of daily counts
SELECT AVG("source"."count") AS "avg" FROM (
  SELECT "public"."booking"."checkin_on" AS "checkin_on", COUNT(*) AS "count"
  FROM "public"."booking" GROUP BY "public"."booking"."checkin_on" ORDER BY "public"."booking"."checkin_on" ASC
) AS "source" WHERE "source"."count" > 0;

-- custom expression: share of a condition, and a conditional sum
SELECT "public"."booking"."channel" AS "channel",
  CAST(SUM(CASE WHEN "public"."booking"."cancelled" = TRUE THEN 1 ELSE 0.0 END) AS float) / CAST(COUNT(*) AS float) AS "cancel_share",
  SUM(CASE WHEN "public"."booking"."party" >= 3 THEN "public"."booking"."price" ELSE 0.0 END) AS "large"
FROM "public"."booking" GROUP BY "public"."booking"."channel" ORDER BY "cancel_share" DESC, "public"."booking"."channel" ASC;

-- standard deviation and median of a column that is an axis
SELECT STDDEV_POP("public"."guest"."age") AS "stddev", PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY "public"."guest"."age") AS "median"
FROM "public"."guest";
