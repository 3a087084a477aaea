-- row count of a table
SELECT count(*) FROM public.booking;

-- distinct values of a column with their counts (grouping panel)
SELECT channel, COUNT(*) FROM public.booking GROUP BY channel ORDER BY COUNT(*) DESC;

-- grouping panel with two columns
SELECT tier, country, COUNT(*) FROM public.guest GROUP BY tier, country;

-- aggregate panel of a numeric column
SELECT sum(nights), avg(nights), count(nights) FROM public.booking;

-- filter panel around a custom query
SELECT * FROM (SELECT c.city, sum(b.price) AS total FROM booking b JOIN hotel h USING (hotel_id) JOIN city c USING (city_id) GROUP BY c.city) dbvrcnt WHERE total > 1000 ORDER BY city;

-- rows of a public table
SELECT h.* FROM public.hotel h ORDER BY h.hotel_id LIMIT 200;

-- count of a filtered grid
SELECT COUNT(*) FROM public.booking x WHERE x.channel ILIKE '%p%' AND x.party BETWEEN 2 AND 4;
