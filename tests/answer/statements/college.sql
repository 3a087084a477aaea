# A table of people made of rows has a row for each of their keys, also without columns: a join takes none away.
$STUDENTS = JOIN students USING (id_student)

## as duckdb
SELECT COUNT(*) FROM enrolled $STUDENTS;
SELECT COUNT(*) FROM enrolled LEFT $STUDENTS;
SELECT COUNT(*) FROM enrolled WHERE id_student IN (SELECT id_student FROM students);
SELECT COUNT(*) FROM enrolled e, students s WHERE e.id_student = s.id_student AND module = 'a';
SELECT result, COUNT(*) FROM enrolled $STUDENTS WHERE module <> 'b' GROUP BY result;
SELECT module, COUNT(DISTINCT students.id_student) FROM enrolled $STUDENTS GROUP BY module;
SELECT COUNT(DISTINCT id_student) FROM enrolled;
SELECT COUNT(*) FROM students WHERE id_student IN (SELECT id_student FROM enrolled WHERE result = 'pass');
SELECT COUNT(*) FROM enrolled LEFT $STUDENTS WHERE students.id_student IS NULL;
SELECT COUNT(*) FROM enrolled WHERE id_student IS NOT NULL;
# rows that name no enrolment are nobody's, so each that counts has one, and a student
SELECT COUNT(*) FROM fees JOIN enrolled USING (enrolment) $STUDENTS;
SELECT paid, COUNT(*) FROM fees JOIN enrolled USING (enrolment) GROUP BY paid;
# `on_missing: drop` says so too
SELECT kind, COUNT(*) FROM visits $STUDENTS GROUP BY kind;
SELECT COUNT(*) FROM visits LEFT $STUDENTS WHERE students.id_student IS NULL;
SELECT COUNT(DISTINCT s.id_student) FROM visits v JOIN students s ON v.id_student = s.id_student AND kind = 'exam';
# keys that name nobody stay under a left join
SELECT kind, COUNT(*), SUM(score) FROM marks LEFT $STUDENTS GROUP BY kind;

# Which marks name a student is in no axis.
$DROP = count all rows without the join, or ask the curator for `on_missing: drop` at tables.marks.foreign_keys.id_student
## refused NoViewError
-- no view counts rows of students; COUNT(DISTINCT id_student) of a fact counts the people who have rows there
SELECT COUNT(*) FROM students;
-- enrolled.id_student identifies people, and no answer lists them; COUNT(DISTINCT id_student) counts each of them once
SELECT id_student, COUNT(*) FROM enrolled GROUP BY id_student;
-- marks.id_student identifies people
SELECT COUNT(*) FROM marks WHERE id_student = 5;
-- scores lacks the join along id_student .. $DROP
SELECT COUNT(*) FROM marks $STUDENTS;
-- $DROP
SELECT kind, AVG(score) FROM marks $STUDENTS GROUP BY kind;
-- $DROP
SELECT COUNT(DISTINCT id_student) FROM marks $STUDENTS;
-- $DROP
SELECT COUNT(*) FROM marks LEFT $STUDENTS WHERE students.id_student IS NULL;
-- $DROP
SELECT COUNT(*) FROM marks WHERE id_student IN (SELECT id_student FROM students);
# A view with a column of the joined table would.
-- `grade: {of: marks, axes: [tutors.grade], measures: [count]}`
SELECT COUNT(*) FROM marks JOIN tutors USING (tutor);
-- `kind_by_grade: {of: marks, axes: [marks.kind, tutors.grade], measures: [count, people]}`
SELECT kind, COUNT(DISTINCT id_student) FROM marks JOIN tutors USING (tutor) GROUP BY kind;
