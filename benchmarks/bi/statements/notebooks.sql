-- Mode: weekly active bookings with a definition of the week
SELECT DATE_TRUNC('week', b.booked_at) AS week, COUNT(CASE WHEN b.channel = 'app' THEN 1 END) AS app, COUNT(CASE WHEN b.channel = 'web' THEN 1 END) AS web
FROM public.booking b GROUP BY 1 ORDER BY 1;

-- Mode: correlated columns of a table of people
SELECT corr(age, age * age) AS r, variance(age) AS v, stddev(age) AS s FROM guest;

-- Hex: chained CTEs
WITH monthly AS (SELECT date_trunc('month', checkin_on) AS month, channel, sum(price) AS revenue FROM booking GROUP BY 1, 2),
ranked AS (SELECT month, channel, revenue, row_number() OVER (PARTITION BY month ORDER BY revenue DESC) AS place FROM monthly)
SELECT month, channel, revenue FROM ranked WHERE place = 1 ORDER BY month;

-- Hex: growth against the month before
WITH m AS (SELECT date_trunc('month', checkin_on) AS month, count(*) AS n FROM booking GROUP BY 1)
SELECT month, n, round((n::numeric / nullif(lag(n) OVER (ORDER BY month), 0) - 1), 4) AS growth FROM m ORDER BY month;

-- Deepnote: describe an axis
SELECT count(age) AS n, avg(age) AS mean, min(age) AS least, percentile_cont(0.25) WITHIN GROUP (ORDER BY age) AS q1,
  percentile_cont(0.75) WITHIN GROUP (ORDER BY age) AS q3, max(age) AS most FROM guest;

-- Mode: the commonest value
SELECT mode() WITHIN GROUP (ORDER BY channel) AS commonest FROM booking;

-- Hex: names of public rows in one text
SELECT c.continent, string_agg(c.city, ', ' ORDER BY c.city) AS cities FROM city c GROUP BY c.continent ORDER BY c.continent;

-- Jupyter: share above a threshold by tier
SELECT g.tier, avg(CASE WHEN b.party > 2 THEN 1.0 ELSE 0 END) AS share FROM booking b JOIN guest g USING (guest_id) GROUP BY g.tier ORDER BY 1;

-- Mode: median of a measure
SELECT channel, percentile_cont(0.5) WITHIN GROUP (ORDER BY price) AS median_price FROM booking GROUP BY channel ORDER BY channel;

-- Hex: days without a booking
SELECT s.day::date AS day, count(b.guest_id) AS n FROM generate_series(date '{day-15}', date '{day-5}', interval '1 day') AS s(day)
LEFT JOIN booking b ON b.checkin_on = s.day GROUP BY 1 ORDER BY 1;
