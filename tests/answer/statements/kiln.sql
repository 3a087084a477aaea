# Moments count rows whose values are known.
## as duckdb
-- SELECT VARIANCE(speed) FILTER (WHERE speed BETWEEN 1 AND 12) FROM batch
SELECT VARIANCE(speed) FROM batch;
-- SELECT STDDEV(heat) FILTER (WHERE heat BETWEEN 1 AND 9) FROM batch
SELECT STDDEV(heat) FROM batch;
-- SELECT VAR_POP(heat * 2 - 1) FILTER (WHERE heat BETWEEN 1 AND 9) FROM batch
SELECT VAR_POP(heat * 2 - 1) FROM batch;
SELECT STDDEV(yield) FROM batch;
SELECT VARIANCE(loss) FROM batch;
-- SELECT COVAR_SAMP(speed, yield) FILTER (WHERE speed BETWEEN 1 AND 12) FROM batch
SELECT COVAR_SAMP(speed, yield) FROM batch;
-- SELECT COVAR_POP(yield, heat) FILTER (WHERE heat BETWEEN 1 AND 9) FROM batch
SELECT COVAR_POP(yield, heat) FROM batch;
-- SELECT COVAR_SAMP(loss, speed) FILTER (WHERE speed BETWEEN 1 AND 12) FROM batch
SELECT COVAR_SAMP(loss, speed) FROM batch;
-- SELECT CORR(loss, heat) FILTER (WHERE heat BETWEEN 1 AND 9) FROM batch
SELECT CORR(loss, heat) FROM batch;
-- SELECT CORR(speed, yield) FILTER (WHERE speed BETWEEN 1 AND 12) FROM batch
SELECT CORR(speed, yield) FROM batch;
-- SELECT CORR(speed, speed) FILTER (WHERE speed BETWEEN 1 AND 12) FROM batch
SELECT CORR(speed, speed) FROM batch;

# Nobody has no spread; GREATEST alone would make 0 of NULL.
## rows
-- [[null, null, null, null]]
SELECT STDDEV(yield), VAR_POP(yield), VARIANCE(speed), CORR(yield, speed) FROM batch WHERE line = 'a' AND speed = 1;
