# Rows outside of the domain are in a group: `WHERE 17 > age GROUP BY age` had no group and no note, and the sum over its
# groups an interval of width 0.
## grouped
SELECT age AS k, COUNT(*) AS n FROM visit JOIN patient USING (patient_id) WHERE age > 70 GROUP BY 1;
SELECT age AS k, COUNT(*) AS n FROM visit JOIN patient USING (patient_id) WHERE NOT age <= 58 GROUP BY 1;
SELECT region AS k, COUNT(*) AS n FROM visit JOIN patient USING (patient_id) WHERE region LIKE 'a%' GROUP BY 1;
SELECT reason AS k, COUNT(*) AS n FROM visit WHERE reason IN ('cold', 'unheard') GROUP BY 1;
