-- survival's nafld1, nafld2 and nafld3, from their documentation: subjects of a population study of fatty liver, their
-- laboratory values, and the endpoints that occurred.
SELECT COUNT(*) FROM nafld1;
SELECT male, COUNT(*) FROM nafld1 GROUP BY male;
SELECT status, male, COUNT(*) FROM nafld1 GROUP BY status, male;
SELECT male, AVG(age) FROM nafld1 GROUP BY male;
SELECT COUNT(*) FROM nafld1 WHERE bmi >= 30;
SELECT status, AVG(weight), AVG(height) FROM nafld1 GROUP BY status;
SELECT COUNT(*) FROM nafld1 WHERE "case.id" IS NULL;
SELECT COUNT(*) FROM nafld1 WHERE futime >= 3650 AND status = 0;
SELECT test, COUNT(*) FROM nafld2 GROUP BY test;
SELECT AVG(value) FROM nafld2 WHERE test = 'hdl' AND days BETWEEN 0 AND 365;
SELECT event, COUNT(*) FROM nafld3 GROUP BY event;
SELECT nafld1.male, COUNT(*) FROM nafld3 JOIN nafld1 USING (id) WHERE event = 'diabetes' GROUP BY nafld1.male;
