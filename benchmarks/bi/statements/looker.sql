-- explore with dimension group, alias by view
SELECT (TO_CHAR(DATE_TRUNC('month', booking.booked_at ), 'YYYY-MM')) AS "booking.booked_month", COUNT(*) AS "booking.count"
FROM public.booking AS booking GROUP BY 1 ORDER BY 1 DESC FETCH NEXT 500 ROWS ONLY;

-- measure with filters and coalesced sum
SELECT guest.tier AS "guest.tier", COALESCE(SUM(CASE WHEN NOT COALESCE(booking.cancelled, FALSE) THEN booking.price ELSE NULL END), 0) AS "booking.kept_revenue"
FROM public.booking AS booking LEFT JOIN public.guest AS guest ON booking.guest_id = guest.guest_id GROUP BY 1 ORDER BY 2 DESC FETCH NEXT 500 ROWS ONLY;

-- last 90 days, Looker's arithmetic on CURRENT_TIMESTAMP
SELECT DATE(booking.checkin_on ) AS "booking.checkin_date", COUNT(*) AS "booking.count" FROM public.booking AS booking
WHERE ((( booking.checkin_on ) >= ((SELECT (DATE_TRUNC('day', CURRENT_TIMESTAMP AT TIME ZONE 'UTC') + (-89 || ' day')::INTERVAL)))
  AND ( booking.checkin_on ) < ((SELECT ((DATE_TRUNC('day', CURRENT_TIMESTAMP AT TIME ZONE 'UTC') + (-89 || ' day')::INTERVAL) + (90 || ' day')::INTERVAL)))))
GROUP BY 1 ORDER BY 1 DESC FETCH NEXT 500 ROWS ONLY;

-- tiers of a dimension
SELECT CASE WHEN guest.age < 20 THEN '0' WHEN guest.age >= 20 AND guest.age < 40 THEN '1' WHEN guest.age >= 40 AND guest.age < 60 THEN '2'
  WHEN guest.age >= 60 THEN '3' ELSE '4' END AS "guest.age_tier__sort_", CASE WHEN guest.age < 20 THEN 'Below 20' WHEN guest.age >= 20 AND guest.age < 40 THEN '20 to 39'
  WHEN guest.age >= 40 AND guest.age < 60 THEN '40 to 59' WHEN guest.age >= 60 THEN '60 or Above' ELSE 'Undefined' END AS "guest.age_tier",
  COUNT(*) AS "guest.count" FROM public.guest AS guest GROUP BY 1, 2 ORDER BY 1 FETCH NEXT 500 ROWS ONLY;

-- date_day_of_week with its sort index
SELECT MOD(EXTRACT(DOW FROM booking.checkin_on )::integer - 1 + 7, 7) AS "booking.checkin_day_of_week_index", COUNT(*) AS "booking.count",
  AVG(booking.price ) AS "booking.average_price"
FROM public.booking AS booking GROUP BY 1 ORDER BY 1 FETCH NEXT 500 ROWS ONLY;

-- day name
SELECT TO_CHAR(booking.checkin_on , 'Dy') AS "booking.checkin_day", COUNT(*) AS "booking.count" FROM public.booking AS booking GROUP BY 1 ORDER BY 2 DESC FETCH NEXT 500 ROWS ONLY;

-- pivot: row and column rank over a grouped result
SELECT * FROM (SELECT *, DENSE_RANK() OVER (ORDER BY z___min_rank) AS z___pivot_row_rank FROM (
  SELECT *, MIN(z___rank) OVER (PARTITION BY "guest.tier") AS z___min_rank FROM (
    SELECT *, RANK() OVER (ORDER BY "guest.tier" ASC, "booking.channel" ASC) AS z___rank FROM (
      SELECT guest.tier AS "guest.tier", booking.channel AS "booking.channel", COUNT(*) AS "booking.count"
      FROM public.booking AS booking INNER JOIN public.guest AS guest ON booking.guest_id = guest.guest_id
      WHERE booking.channel IS NOT NULL GROUP BY 1, 2) ww) bb WHERE "guest.tier" IS NOT NULL) aa) xx
WHERE z___pivot_row_rank <= 500 ORDER BY z___rank;

-- filter suggestions
SELECT DISTINCT city.city AS "city.city" FROM public.city AS city ORDER BY 1 FETCH NEXT 1001 ROWS ONLY;

-- week, by TO_CHAR of a truncated date
SELECT (TO_CHAR(DATE_TRUNC('week', booking.checkin_on ), 'YYYY-MM-DD')) AS "booking.checkin_week", COALESCE(SUM(booking.nights ), 0) AS "booking.nights"
FROM public.booking AS booking GROUP BY 1 ORDER BY 1 DESC FETCH NEXT 500 ROWS ONLY;
