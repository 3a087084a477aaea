-- dashboard of the last year, by month
SELECT date_trunc('month', checkin_on)::date AS month, count(*) AS bookings, sum(price) AS revenue, sum(price) / count(*) AS per_booking
FROM booking WHERE checkin_on > current_date - interval '1 year' AND checkin_on < current_date GROUP BY 1 ORDER BY 1;

-- drop-down query
SELECT DISTINCT channel AS name, channel AS value FROM booking WHERE channel IS NOT NULL ORDER BY 1;

-- parameters: a date range and a list
SELECT c.city, count(*) FROM booking b JOIN hotel h ON h.hotel_id = b.hotel_id JOIN city c ON c.city_id = h.city_id
WHERE b.checkin_on BETWEEN '{day-100}' AND '{day-50}' AND b.channel IN ('web', 'app') GROUP BY c.city ORDER BY 2 DESC;

-- cumulative sum
SELECT day, sum(n) OVER (ORDER BY day) AS total FROM (SELECT checkin_on AS day, count(*) AS n FROM booking
WHERE checkin_on >= '{day-50}' AND checkin_on < '{day-20}' GROUP BY 1) AS daily ORDER BY day;

-- unnamed columns
SELECT count(*), sum(price), avg(nights), max(age) FROM lodging;

-- funnel by UNION ALL
SELECT 'all' AS step, count(*) AS n FROM booking UNION ALL SELECT 'kept', count(*) FROM booking WHERE NOT cancelled
UNION ALL SELECT 'kept, web', count(*) FROM booking WHERE NOT cancelled AND channel = 'web';

-- percent of total
SELECT tier, count(*) AS n, round(100.0 * count(*) / sum(count(*)) OVER (), 1) AS percent
FROM guest GROUP BY tier ORDER BY n DESC;

-- histogram by width_bucket
SELECT width_bucket(age, 20, 80, 6) AS bucket, count(*) AS n FROM guest GROUP BY 1 ORDER BY 1;
