-- measure by dimension
SELECT "booking".channel "booking__channel", count(*) "booking__count" FROM public.booking AS "booking" GROUP BY 1 ORDER BY 2 DESC LIMIT 10000;

-- time dimension in UTC with a date range
SELECT date_trunc('day', (("booking".booked_at)::timestamptz AT TIME ZONE 'UTC')) "booking__booked_at_day", sum("booking".price) "booking__revenue"
FROM public.booking AS "booking" WHERE ("booking".booked_at >= '{day-30}T00:00:00.000Z'::timestamptz AND "booking".booked_at <= '{day-10}T23:59:59.999Z'::timestamptz)
GROUP BY 1 ORDER BY 1 ASC LIMIT 10000;

-- time dimension in a zone
SELECT date_trunc('day', (("booking".booked_at)::timestamptz AT TIME ZONE 'America/New_York')) "booking__booked_at_day", count(*) "booking__count"
FROM public.booking AS "booking" GROUP BY 1 ORDER BY 1 ASC LIMIT 10000;

-- joined cubes, a filter with NULL
SELECT "guest".tier "guest__tier", avg("booking".price) "booking__price" FROM public.booking AS "booking"
LEFT JOIN public.guest AS "guest" ON "booking".guest_id = "guest".guest_id
WHERE ("booking".channel <> 'desk' OR "booking".channel IS NULL) GROUP BY 1 ORDER BY 2 DESC LIMIT 10000;

-- contains filter
SELECT count(*) "booking__count" FROM public.booking AS "booking" WHERE ("booking".channel ILIKE '%' || 'e' || '%') LIMIT 10000;

-- rolling window over a generated series
SELECT q.date_from AS "booking__day", sum(d.n) AS "booking__rolling" FROM (
  SELECT g AS date_from FROM generate_series('{day-20}'::timestamp, '{day-10}'::timestamp, '1 day'::interval) AS g) q
LEFT JOIN (SELECT date_trunc('day', "booking".checkin_on) AS day, count(*) AS n FROM public.booking AS "booking" GROUP BY 1) d
ON d.day > q.date_from - interval '7 day' AND d.day <= q.date_from GROUP BY 1 ORDER BY 1;

-- dateBin of a custom granularity
SELECT ('2024-01-01'::timestamp + INTERVAL '2 weeks' * FLOOR(EXTRACT(EPOCH FROM ("booking".booked_at - '2024-01-01'::timestamp)) / EXTRACT(EPOCH FROM INTERVAL '2 weeks'))) "booking__fortnight",
  count(*) "booking__count" FROM public.booking AS "booking" GROUP BY 1 ORDER BY 1 ASC LIMIT 10000;

-- segment
SELECT sum("booking".nights) "booking__nights" FROM public.booking AS "booking" LEFT JOIN public.hotel AS "hotel" ON "booking".hotel_id = "hotel".hotel_id
WHERE ("hotel".stars >= 4) AND ("booking".cancelled = FALSE) LIMIT 10000;
