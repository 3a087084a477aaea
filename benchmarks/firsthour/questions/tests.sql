-- COVID-19 tests of a children's hospital in 2020: a row a test, with made-up names of patients.
SELECT result, COUNT(*) AS tests FROM covid_testing GROUP BY result;
SELECT COUNT(DISTINCT subject_id) AS patients FROM covid_testing;
SELECT gender, COUNT(*) AS tests FROM covid_testing WHERE result = 'positive' GROUP BY gender;
SELECT pan_day, COUNT(*) AS tests FROM covid_testing GROUP BY pan_day ORDER BY pan_day;
SELECT demo_group, AVG(age) AS mean_age FROM covid_testing GROUP BY demo_group;
SELECT patient_class, COUNT(*) AS tests FROM covid_testing GROUP BY patient_class;
SELECT AVG(rec_ver_tat) AS mean_hours FROM covid_testing;
SELECT payor_group, MEDIAN(col_rec_tat) AS median_hours FROM covid_testing GROUP BY payor_group;
SELECT drive_thru_ind, AVG(CASE WHEN result = 'positive' THEN 1.0 ELSE 0.0 END) AS share FROM covid_testing
GROUP BY drive_thru_ind;
SELECT COUNT(*) AS tests FROM covid_testing WHERE age < 18 AND pan_day > 50;
SELECT COUNT(*) AS slow_tests FROM covid_testing WHERE col_rec_tat > rec_ver_tat;
SELECT clinic_name, COUNT(*) AS tests FROM covid_testing GROUP BY clinic_name ORDER BY tests DESC LIMIT 5;
