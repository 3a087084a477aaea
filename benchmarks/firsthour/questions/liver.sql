-- survival's pbc and pbcseq, from their documentation: a trial's patients at baseline, and their visits. Held back.
SELECT COUNT(*) FROM pbc;
SELECT trt, COUNT(*) FROM pbc GROUP BY trt;
SELECT status, sex, COUNT(*) FROM pbc GROUP BY status, sex;
SELECT stage, AVG(bili) FROM pbc GROUP BY stage;
SELECT COUNT(*) FROM pbc WHERE age BETWEEN 40 AND 49;
SELECT AVG(albumin) FROM pbc WHERE hepato = 1;
SELECT edema, COUNT(*) FROM pbc GROUP BY edema;
SELECT COUNT(*) FROM pbcseq;
SELECT stage, COUNT(*) FROM pbcseq GROUP BY stage;
SELECT AVG(pbcseq.bili) FROM pbcseq JOIN pbc USING (id) WHERE pbc.trt = 1;
SELECT pbc.sex, COUNT(*) FROM pbcseq JOIN pbc USING (id) GROUP BY pbc.sex;
SELECT COUNT(*) FROM pbcseq WHERE day <= 365;
