# STDDEV, VARIANCE, COVAR and CORR of axes and measures: equal to plain SQL without noise, with errors.
$SPREAD = VARIANCE(yield), VAR_POP(yield), STDDEV(yield), STDDEV_POP(yield), STDDEV_SAMP(yield), VAR_SAMP(yield)
$PAIRS = COVAR_POP(yield, speed), COVAR_SAMP(speed, cost), CORR(speed, yield), CORR(speed, speed % 5)
$PART = STDDEV(yield) FILTER (WHERE speed > 5), STDDEV(yield) / AVG(yield)
$AXIS = STDDEV(speed), VARIANCE(speed * speed - 3)

## with errors
SELECT $SPREAD FROM batch;
SELECT $SPREAD FROM batch WHERE line <> 'b';
SELECT $SPREAD FROM batch GROUP BY line ORDER BY line;
SELECT STDDEV(loss), VAR_POP(loss) FROM batch;
SELECT STDDEV(loss), VAR_POP(loss) FROM batch GROUP BY line ORDER BY line;
SELECT $AXIS FROM batch;
SELECT $AXIS FROM batch WHERE line <> 'b';
SELECT $AXIS FROM batch GROUP BY line ORDER BY line;
SELECT $PAIRS FROM batch;
SELECT $PAIRS FROM batch WHERE line <> 'b';
SELECT $PAIRS FROM batch GROUP BY line ORDER BY line;
-- SELECT $PART, SUM((yield - 3.75) * (yield - 3.75)) FROM batch
SELECT $PART, SUM(squares_of_yield) FROM batch;
-- SELECT $PART, SUM((yield - 3.75) * (yield - 3.75)) FROM batch GROUP BY line ORDER BY line
SELECT $PART, SUM(squares_of_yield) FROM batch GROUP BY line ORDER BY line;
SELECT STDDEV(CAST(yield AS DOUBLE)) FROM batch WHERE line <> 'b';

# A flat group has no spread.
## decided
SELECT STDDEV_POP(speed) FROM batch WHERE speed = 3;

## refused NotSupportedError
-- no view has squares of batch.cost; ask the curator for `squares(batch.cost)`
SELECT STDDEV(cost) FROM batch;
-- no view has squares of batch.cost
SELECT CORR(cost, yield) FROM batch;
-- no release has it as a measure
SELECT COVAR_POP(cost, yield) FROM batch;
-- needs a measure or an axis
SELECT STDDEV(yield + cost) FROM batch;
-- or count rows by speed and line in a derived table
SELECT AVG(speed * LENGTH(line)) FROM batch;
