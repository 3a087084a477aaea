-- time-series line chart with a time range
SELECT DATE_TRUNC('week', booked_at) AS booked_at, COUNT(*) AS count
FROM public.booking
WHERE booked_at >= TO_TIMESTAMP('{day-200} 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')
  AND booked_at < TO_TIMESTAMP('{day-60} 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')
GROUP BY DATE_TRUNC('week', booked_at) ORDER BY count DESC LIMIT 1000;

-- series limit: an inner join with the top three
SELECT DATE_TRUNC('month', checkin_on) AS checkin_on, booking.channel AS channel, sum(price) AS "SUM(price)"
FROM public.booking JOIN (SELECT channel AS channel__, sum(price) AS mme_inner__ FROM public.booking
  GROUP BY channel ORDER BY mme_inner__ DESC LIMIT 3) AS series_limit ON booking.channel = channel__
GROUP BY DATE_TRUNC('month', checkin_on), booking.channel ORDER BY "SUM(price)" DESC LIMIT 50000;

-- filter select box
SELECT channel AS channel FROM public.booking GROUP BY channel ORDER BY channel ASC LIMIT 1000;

-- virtual dataset with a jinja-less date and metrics by name
SELECT tier AS tier, AVG(price) AS "Average price", COUNT(*) AS "Bookings"
FROM (SELECT b.price, b.nights, g.tier FROM booking b JOIN guest g ON b.guest_id = g.guest_id) AS virtual_table
GROUP BY tier ORDER BY "Average price" DESC LIMIT 100;

-- pivot table with a calculated column
SELECT CASE WHEN age < 30 THEN 'young' WHEN age < 60 THEN 'middle' ELSE 'old' END AS "Age group", tier AS tier, COUNT(*) AS count
FROM public.lodging
GROUP BY CASE WHEN age < 30 THEN 'young' WHEN age < 60 THEN 'middle' ELSE 'old' END, tier ORDER BY count DESC LIMIT 50000;

-- big number with trend: last 90 days by the clock
SELECT DATE_TRUNC('day', checkin_on) AS checkin_on, SUM(price) AS "SUM(price)" FROM public.booking
WHERE checkin_on >= CURRENT_DATE - INTERVAL '90 days' AND checkin_on < CURRENT_DATE
GROUP BY DATE_TRUNC('day', checkin_on) LIMIT 50000;

-- bounds of a time column
SELECT MIN(checkin_on) AS min, MAX(checkin_on) AS max FROM public.booking;

-- histogram: counts of equal bins
SELECT FLOOR(age / 5) * 5 AS bin, COUNT(*) AS count FROM public.guest GROUP BY FLOOR(age / 5) * 5 ORDER BY bin;

-- SQL Lab: week over week with a window
SELECT week, n, n - LAG(n) OVER (ORDER BY week) AS change FROM (
  SELECT DATE_TRUNC('week', checkin_on) AS week, COUNT(*) AS n FROM booking
  WHERE checkin_on >= DATE '{day-120}' AND checkin_on < DATE '{day-1}' GROUP BY 1) AS weekly ORDER BY week;
