-- metric query over a dbt model
SELECT "booking".channel AS "booking_channel", COUNT("booking".guest_id) AS "booking_count", SUM("booking".price) AS "booking_revenue"
FROM "public"."booking" AS "booking" GROUP BY 1 ORDER BY "booking_revenue" DESC LIMIT 500;

-- time interval dimension
SELECT DATE_TRUNC('WEEK', "booking".booked_at) AS "booking_booked_at_week", AVG("booking".price) AS "booking_average"
FROM "public"."booking" AS "booking" GROUP BY 1 ORDER BY "booking_booked_at_week" DESC LIMIT 500;

-- filter: in the last 4 completed weeks, with fixed ends
SELECT "guest".tier AS "guest_tier", COUNT(*) AS "n" FROM "public"."booking" AS "booking" LEFT OUTER JOIN "public"."guest" AS "guest" ON ("booking".guest_id) = ("guest".guest_id)
WHERE (((("booking".checkin_on) >= ('{day-70}')) AND (("booking".checkin_on) < ('{day-42}')))) GROUP BY 1 ORDER BY "n" DESC LIMIT 500;

-- table calculation around the metrics
WITH metrics AS (SELECT "booking".channel AS "booking_channel", SUM("booking".price) AS "revenue", COUNT(*) AS "n" FROM "public"."booking" AS "booking" GROUP BY 1)
SELECT *, "revenue" / "n" AS "per_booking", "revenue" / SUM("revenue") OVER () AS "share" FROM metrics ORDER BY "revenue" DESC LIMIT 500;

-- day of week name dimension
SELECT TO_CHAR("booking".checkin_on, 'FMDay') AS "booking_checkin_on_day_of_week_name", COUNT(*) AS "n" FROM "public"."booking" AS "booking" GROUP BY 1 ORDER BY "n" DESC LIMIT 500;

-- boolean and string filters
SELECT COUNT(*) AS "n" FROM "public"."booking" AS "booking" WHERE (("booking".cancelled) = false AND (("booking".channel) IN ('web','desk') OR ("booking".channel) IS NULL));

-- distinct people (a unit of privacy)
SELECT COUNT(DISTINCT "booking".guest_id) AS "people" FROM "public"."booking" AS "booking";

-- metricflow: a simple metric by metric_time and an entity's dimension
SELECT subq_2.metric_time__month AS metric_time__month, subq_2.guest__tier AS guest__tier, SUM(subq_2.revenue) AS revenue FROM (
  SELECT DATE_TRUNC('month', booking_src.checkin_on) AS metric_time__month, guest_src.tier AS guest__tier, booking_src.price AS revenue
  FROM public.booking booking_src LEFT OUTER JOIN public.guest guest_src ON booking_src.guest_id = guest_src.guest_id) subq_2
GROUP BY subq_2.metric_time__month, subq_2.guest__tier;

-- metricflow: a ratio of two metrics
SELECT CAST(cancelled AS DOUBLE PRECISION) / CAST(NULLIF(bookings, 0) AS DOUBLE PRECISION) AS cancel_rate FROM (
  SELECT SUM(CASE WHEN cancelled THEN 1 ELSE 0 END) AS cancelled, SUM(1) AS bookings FROM public.booking booking_src) subq_3;
