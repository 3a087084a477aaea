-- $__timeGroupAlias and $__timeFilter
SELECT floor(extract(epoch from booked_at)/86400)*86400 AS "time", count(*) AS "bookings"
FROM booking WHERE booked_at BETWEEN '{day-40}T00:00:00Z' AND '{day-10}T00:00:00Z' GROUP BY 1 ORDER BY 1;

-- hourly groups of one week, one series a channel
SELECT floor(extract(epoch from booked_at)/21600)*21600 AS "time", channel AS metric, sum(price) AS "value"
FROM booking WHERE booked_at BETWEEN '{day-21}T00:00:00Z' AND '{day-14}T00:00:00Z' GROUP BY 1, 2 ORDER BY 1, 2;

-- builder: table format with a limit
SELECT "channel", COUNT("guest_id") AS "bookings" FROM booking GROUP BY channel ORDER BY "bookings" DESC LIMIT 50;

-- stat panel over the last 7 days of the clock
SELECT count(*) AS "value" FROM booking WHERE checkin_on >= now()::date - interval '7 days' AND checkin_on < now()::date;

-- gaps filled by a generated series
SELECT d.day AS "time", COALESCE(b.n, 0) AS "bookings"
FROM generate_series('{day-30}'::timestamp, '{day-1}'::timestamp, '1 day'::interval) AS d(day)
LEFT JOIN (SELECT date_trunc('day', checkin_on) AS day, count(*) AS n FROM booking GROUP BY 1) AS b ON b.day = d.day
ORDER BY 1;

-- heat map of hours and weekdays
SELECT extract(isodow from booked_at) AS weekday, extract(hour from booked_at) AS hour, count(*) AS n
FROM booking GROUP BY 1, 2 ORDER BY 1, 2;

-- variable query
SELECT DISTINCT city FROM city ORDER BY city;

-- gauge of a ratio
SELECT 100.0 * sum(CASE WHEN cancelled THEN 1 ELSE 0 END) / count(*) AS "cancelled %" FROM booking;

-- ten-minute buckets by date_bin, of hours
SELECT date_bin('6 hours', booked_at, TIMESTAMP '2001-01-01') AS time, count(*) AS value
FROM booking WHERE booked_at >= TIMESTAMP '{day-20} 00:00:00' AND booked_at < TIMESTAMP '{day-16} 00:00:00' GROUP BY time ORDER BY time;
