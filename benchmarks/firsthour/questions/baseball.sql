-- Lahman's baseball database, from its readme: people, batting, fielding, salaries, awards, hall of fame.
SELECT COUNT(*) FROM People;
SELECT birthCountry, COUNT(*) FROM People GROUP BY birthCountry;
SELECT bats, throws, COUNT(*) FROM People GROUP BY bats, throws;
SELECT yearID, SUM(HR) FROM Batting GROUP BY yearID;
SELECT lgID, AVG(AB) FROM Batting GROUP BY lgID;
SELECT teamID, SUM(R) FROM Batting WHERE yearID = 2015 GROUP BY teamID;
SELECT yearID, AVG(salary) FROM Salaries WHERE yearID >= 2000 GROUP BY yearID;
SELECT teamID, SUM(salary) FROM Salaries WHERE yearID = 2016 GROUP BY teamID;
SELECT POS, SUM(G) FROM Fielding GROUP BY POS;
SELECT awardID, COUNT(*) FROM AwardsPlayers GROUP BY awardID;
SELECT bats, SUM(HR) FROM Batting JOIN People USING (playerID) GROUP BY bats;
SELECT inducted, COUNT(*) FROM HallOfFame GROUP BY inducted;
