-- ratdat, from its documentation: individual rodents captured at the Portal Project, their species and plots.
SELECT COUNT(*) FROM surveys;
SELECT species_id, COUNT(*) FROM surveys GROUP BY species_id;
SELECT genus, COUNT(*) FROM surveys JOIN species USING (species_id) GROUP BY genus;
SELECT taxa, COUNT(*) FROM surveys JOIN species USING (species_id) GROUP BY taxa;
SELECT plot_type, COUNT(*) FROM surveys JOIN plots USING (plot_id) GROUP BY plot_type;
SELECT year, COUNT(*) FROM surveys GROUP BY year;
SELECT year, month, COUNT(*) FROM surveys WHERE year >= 1990 GROUP BY year, month;
SELECT sex, AVG(weight) FROM surveys GROUP BY sex;
SELECT species_id, AVG(hindfoot_length) FROM surveys GROUP BY species_id;
SELECT AVG(weight) FROM surveys JOIN plots USING (plot_id) WHERE plot_type = 'Control';
SELECT sex, plot_type, COUNT(*) FROM surveys JOIN plots USING (plot_id) GROUP BY sex, plot_type;
SELECT month, COUNT(*) FROM surveys JOIN species USING (species_id) WHERE genus = 'Dipodomys' GROUP BY month;
