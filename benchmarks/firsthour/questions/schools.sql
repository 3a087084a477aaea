-- nlme's MathAchieve and MathAchSchool, from their documentation: 7,185 students, and the 160 schools that they go to.
SELECT COUNT(*) FROM MathAchieve;
SELECT Sex, COUNT(*) FROM MathAchieve GROUP BY Sex;
SELECT Minority, AVG(MathAch) FROM MathAchieve GROUP BY Minority;
SELECT Sex, Minority, AVG(SES) FROM MathAchieve GROUP BY Sex, Minority;
SELECT COUNT(*) FROM MathAchieve WHERE SES > 0;
SELECT Minority, COUNT(*) FROM MathAchieve WHERE MathAch >= 20 GROUP BY Minority;
SELECT School, COUNT(*) FROM MathAchieve GROUP BY School;
SELECT Sector, COUNT(*) FROM MathAchieve JOIN MathAchSchool USING (School) GROUP BY Sector;
SELECT Sector, Minority, AVG(MathAch) FROM MathAchieve JOIN MathAchSchool USING (School) GROUP BY Sector, Minority;
SELECT HIMINTY, AVG(MathAchieve.SES) FROM MathAchieve JOIN MathAchSchool USING (School) GROUP BY HIMINTY;
SELECT AVG(MathAch) FROM MathAchieve JOIN MathAchSchool USING (School) WHERE Size >= 1000;
SELECT Sector, COUNT(*) FROM MathAchieve JOIN MathAchSchool USING (School) WHERE PRACAD > 0.5 GROUP BY Sector;
