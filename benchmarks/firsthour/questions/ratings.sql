-- MovieLens, latest small: a row a rating; whoever rated has many.
SELECT COUNT(*) AS ratings FROM movielens;
SELECT COUNT(DISTINCT userId) AS people FROM movielens;
SELECT rating, COUNT(*) AS ratings FROM movielens GROUP BY rating ORDER BY rating;
SELECT AVG(rating) AS mean_rating FROM movielens;
SELECT FLOOR(year / 10) * 10 AS decade, COUNT(*) AS ratings FROM movielens GROUP BY decade ORDER BY decade;
SELECT FLOOR(year / 10) * 10 AS decade, AVG(rating) AS mean_rating FROM movielens GROUP BY decade ORDER BY decade;
SELECT COUNT(*) AS ratings FROM movielens WHERE genres = 'Comedy';
SELECT genres, COUNT(*) AS ratings FROM movielens WHERE genres IN ('Drama', 'Comedy', 'Horror') GROUP BY genres;
SELECT AVG(CASE WHEN rating >= 4 THEN 1.0 ELSE 0.0 END) AS share_liked FROM movielens WHERE year >= 2000;
SELECT MEDIAN(year) AS median_year FROM movielens;
SELECT COUNT(*) AS ratings FROM movielens WHERE year < 1960 AND rating = 5;
SELECT AVG(n) AS ratings_a_person FROM (SELECT userId, COUNT(*) AS n FROM movielens GROUP BY userId) AS people;
