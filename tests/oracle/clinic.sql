$CHAIN = doctor d ON v.doctor_id = d.doctor_id JOIN ward w ON d.ward_id = w.ward_id
$HOPS = $CHAIN JOIN hospital h ON w.hospital_id = h.hospital_id
$INNER = doctor d JOIN ward w ON d.ward_id = w.ward_id
$LEFT = doctor d ON v.doctor_id = d.doctor_id LEFT JOIN ward w ON d.ward_id = w.ward_id LEFT JOIN hospital h ON w.hospital_id = h.hospital_id
$SETS = FROM visit v JOIN patient p ON v.patient_id = p.patient_id GROUP BY

## an inner join of any hop leaves out rows without the partner
SELECT COUNT(*), SUM(v.minutes) FROM visit v JOIN $CHAIN;
SELECT COUNT(*), SUM(v.minutes) FROM visit v JOIN $HOPS;
SELECT COUNT(*) FROM visit v, doctor d, ward w WHERE v.doctor_id = d.doctor_id AND d.ward_id = w.ward_id;
# a view that has the ages too says who has a patient
-- 1
SELECT rooms, COUNT(*) FROM visit JOIN patient USING (patient_id) LEFT JOIN home USING (home_id) GROUP BY 1;
SELECT COUNT(*) FROM visit v LEFT JOIN $LEFT WHERE w.ward_id IS NULL;
SELECT COUNT(*) FROM visit v LEFT JOIN $LEFT WHERE h.hospital_id IS NOT NULL OR v.reason = 'cold';
SELECT COUNT(*) FROM visit WHERE doctor_id IN (SELECT doctor_id FROM doctor JOIN ward USING (ward_id));
SELECT COUNT(*) FROM visit WHERE doctor_id IN (SELECT doctor_id FROM doctor WHERE ward_id IN (SELECT ward_id
  FROM ward));
SELECT COUNT(*) FROM visit v WHERE EXISTS (SELECT 1 FROM $INNER WHERE d.doctor_id = v.doctor_id);
SELECT COUNT(*) FROM visit v WHERE NOT EXISTS (SELECT 1 FROM $INNER WHERE d.doctor_id = v.doctor_id);
SELECT COUNT(*) FROM visit JOIN patient USING (patient_id) JOIN home USING (home_id);
SELECT COUNT(*) FROM stay JOIN ward USING (ward_id) JOIN hospital USING (hospital_id);

## nulls of a measure, truths, and joins in each branch of an OR
SELECT COUNT(*), COUNT(cost), SUM(cost) FROM visit WHERE cost IS NOT NULL;
SELECT COUNT(*), COUNT(cost) FROM visit WHERE NOT cost IS NOT NULL;
SELECT COUNT(*) FILTER (WHERE cost IS NULL), SUM(CASE WHEN cost IS NULL THEN 2 ELSE 1 END) FROM visit;
SELECT SUM(COALESCE(cost, 3)), AVG(COALESCE(cost, 3)), SUM(COALESCE(cost, 0)) FROM visit;
SELECT SUM(CAST(paid AS INT)), AVG(paid::INT), SUM(paid) FROM bill;
SELECT COUNT(*) FROM visit v, doctor d WHERE (v.doctor_id = d.doctor_id AND specialty = 'eye') OR (specialty =
  'skin'
  AND d.doctor_id = v.doctor_id);

## conditions of an aggregate stay in its subtotals
-- 2
SELECT region, GROUPING(region), COUNT(*) FILTER (WHERE region = 'north') $SETS ROLLUP (region);
-- 2
SELECT region, GROUPING(region), SUM(minutes) FILTER (WHERE region <> 'east') * 2 $SETS CUBE (region);
-- 2
SELECT p.region, GROUPING(region), AVG(minutes) FILTER (WHERE region = 'west') $SETS GROUPING SETS ((p.region), ());
-- 2
SELECT age > 30 AS a, GROUPING(age > 30), COUNT(*) $SETS ROLLUP (age > 30);
-- 2
SELECT region AS r, GROUPING(region) AS g, COUNT(*) $SETS ROLLUP (region) HAVING GROUPING(region) = 1;
-- 2
SELECT region AS r, GROUPING(region) AS g, COUNT(*) $SETS ROLLUP (region) ORDER BY GROUPING(region) DESC, COUNT(*);
-- 2
SELECT region AS r, GROUPING(region) AS g, COUNT(*) $SETS region;

## texts outside of the domain are a group apart from NULL
-- 1
SELECT reason, COUNT(*) FROM visit GROUP BY 1;
SELECT COUNT(*), SUM(minutes) FROM visit WHERE reason <> 'cold';
SELECT COUNT(*) FROM visit WHERE reason NOT IN ('cold', 'check');
SELECT COUNT(*) FROM visit WHERE reason IS NULL;
SELECT COUNT(*) FROM visit WHERE reason = '(other)';
-- 1
SELECT paid, COUNT(*) FROM bill GROUP BY 1;

## a key that names a row needs no note
SELECT COUNT(*), SUM(minutes) FROM visit WHERE doctor_id = 3;
SELECT COUNT(*), SUM(minutes) FROM visit WHERE doctor_id IN (3, 4);
SELECT COUNT(*), SUM(minutes) FROM visit WHERE NOT (doctor_id = 3 OR TRUE);
SELECT COUNT(*), SUM(minutes) FROM visit WHERE doctor_id = 3 OR reason = 'cold';
SELECT COUNT(*), SUM(minutes) FROM visit WHERE (doctor_id = 3) IS NOT TRUE;
SELECT COUNT(*), SUM(minutes) FROM visit WHERE doctor_id IN (3, 4, 5) AND doctor_id > 3;
SELECT COUNT(*), SUM(minutes) FROM visit WHERE doctor_id IN (SELECT doctor_id FROM doctor WHERE grade > 2);
SELECT COUNT(*), SUM(minutes) FROM visit WHERE reason <> 'cold';
-- 1
SELECT doctor_id, COUNT(*) FROM visit WHERE doctor_id IN (3, 4) GROUP BY 1;
SELECT COUNT(*) FROM visit JOIN doctor USING (doctor_id) WHERE doctor_id > 3;
SELECT COUNT(*) FROM visit v JOIN doctor d ON v.doctor_id = d.doctor_id WHERE v.doctor_id <> 3;
SELECT COUNT(*) FROM visit v LEFT JOIN doctor d ON v.doctor_id = d.doctor_id WHERE d.doctor_id <> 3;
-- 1
SELECT d.doctor_id, COUNT(*) FROM visit v JOIN doctor d ON v.doctor_id = d.doctor_id GROUP BY 1;
SELECT COUNT(*) FROM bill WHERE doctor_id <> 3;
-- 1
SELECT doctor_id, COUNT(*) FROM bill GROUP BY 1;
SELECT COUNT(DISTINCT doctor_id), MAX(doctor_id) FROM bill;
-- 1
SELECT DISTINCT doctor_id FROM bill;
-- 1
SELECT DISTINCT doctor_id FROM doctor;
SELECT COUNT(DISTINCT doctor_id) FROM doctor;
SELECT COUNT(*) FROM doctor WHERE ward_id <> 3;
SELECT COUNT(DISTINCT paid) FROM bill;

## listed
SELECT * FROM doctor;
SELECT specialty, grade FROM doctor WHERE grade > 2;
SELECT COUNT(*), AVG(grade) FROM doctor;
SELECT d.*, w.ward FROM doctor d JOIN ward w USING (ward_id);
SELECT COUNT(*) FROM (SELECT * FROM doctor) AS t;
SELECT specialty, COUNT(*) FROM doctor GROUP BY 1 HAVING COUNT(*) > 3;

## refused
SELECT * FROM visit;
SELECT * FROM patient;
SELECT age FROM patient WHERE age > 3;
SELECT * FROM home LIMIT 5;
SELECT COUNT(*) FROM patient;
SELECT region, COUNT(*) FROM patient GROUP BY 1;
SELECT MAX(minutes) FROM visit;
SELECT age, COUNT(*) FROM visit JOIN patient USING (patient_id) JOIN doctor USING (doctor_id) GROUP BY 1;
SELECT MEDIAN(cost) FROM visit;
SELECT COUNT(DISTINCT cost) FROM visit;
SELECT patient_id, COUNT(*) FROM visit GROUP BY 1;
SELECT cost, COUNT(*) FROM visit GROUP BY 1;
SELECT seen_on, rooms, COUNT(*) FROM visit JOIN patient USING (patient_id) JOIN home USING (home_id) GROUP BY 1, 2;

## wrong by a note alone
SELECT COUNT(*) FROM visit WHERE doctor_id <> 3;
SELECT COUNT(*) FROM visit WHERE doctor_id NOT IN (3, 4);
SELECT COUNT(*) FROM visit WHERE doctor_id > 3;
SELECT COUNT(*) FROM visit WHERE NOT doctor_id = 3;
SELECT COUNT(*) FROM visit WHERE doctor_id = 900;
SELECT COUNT(*) FROM visit WHERE doctor_id IN (3, 900);
SELECT COUNT(*) FROM visit WHERE doctor_id BETWEEN 3 AND 1000;
SELECT COUNT(*) FROM visit WHERE doctor_id % 2 = 0;
SELECT COUNT(*) FROM visit WHERE doctor_id <> 3 OR reason = 'cold';
SELECT COUNT(*) FROM visit WHERE doctor_id IS NOT DISTINCT FROM 900;
SELECT COUNT(*) FROM visit WHERE COALESCE(doctor_id, 3) > 4;
SELECT COUNT(*) FROM visit WHERE CAST(doctor_id AS VARCHAR) LIKE '9%';
SELECT COUNT(*) FROM visit WHERE doctor_id <> 3 AND doctor_id <> 5;
SELECT COUNT(*) FROM visit LEFT JOIN doctor USING (doctor_id) WHERE doctor_id > 3;
SELECT COUNT(*) FILTER (WHERE doctor_id <> 3) FROM visit;
SELECT SUM(CASE WHEN doctor_id > 3 THEN minutes END) FROM visit;
SELECT SUM(doctor_id) FROM visit;
SELECT doctor_id, COUNT(*) FROM visit GROUP BY 1;
SELECT doctor_id = 3, COUNT(*) FROM visit GROUP BY 1;
SELECT doctor_id > 3, SUM(minutes) FROM visit GROUP BY 1;
SELECT reason, COUNT(*) FROM visit WHERE doctor_id > 3 GROUP BY 1;
SELECT COUNT(DISTINCT doctor_id) FROM visit;
SELECT MAX(doctor_id) FROM visit;
SELECT COUNT(*), MAX(doctor_id) FROM visit;
SELECT DISTINCT doctor_id FROM visit;

## nulls of a key
SELECT COUNT(*) FROM visit WHERE doctor_id IS NULL;
SELECT COUNT(*) FROM visit WHERE doctor_id IS NOT NULL;
SELECT COUNT(doctor_id) FROM visit;
SELECT COUNT(*) FROM visit WHERE doctor_id NOT IN (SELECT doctor_id FROM doctor WHERE grade > 2);

## of the domain
SELECT COUNT(DISTINCT region) FROM patient;
SELECT COUNT(DISTINCT region), COUNT(*) FROM visit JOIN patient USING (patient_id);
SELECT MAX(region) FROM patient;
