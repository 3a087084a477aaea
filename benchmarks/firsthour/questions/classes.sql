-- Tennessee's class size experiment (STAR): a row a student and grade.
SELECT cltype, COUNT(*) AS records FROM star GROUP BY cltype;
SELECT COUNT(DISTINCT id) AS students FROM star;
SELECT gr, cltype, AVG(math) AS mean_math FROM star GROUP BY gr, cltype;
SELECT gr, AVG(read) AS mean_reading FROM star GROUP BY gr;
SELECT ses, AVG(math) AS mean_math, COUNT(*) AS records FROM star GROUP BY ses;
SELECT schtype, COUNT(*) AS records FROM star WHERE eth = 'B' GROUP BY schtype;
SELECT sx, MEDIAN(read) AS median_reading FROM star GROUP BY sx;
SELECT COUNT(*) AS records FROM star WHERE read IS NULL;
SELECT hdeg, AVG(exp) AS mean_experience FROM star GROUP BY hdeg;
SELECT AVG(CASE WHEN math > 550 THEN 1.0 ELSE 0.0 END) AS share_above FROM star WHERE cltype = 'small';
SELECT COUNT(*) AS better_readers FROM star WHERE read > math;
SELECT birthy, COUNT(*) AS records FROM star GROUP BY birthy ORDER BY birthy;
