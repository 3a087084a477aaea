-- adult
SELECT COUNT(*), DP_STDERR(COUNT(*)), DP_INTERVAL_LOW(COUNT(*)), DP_INTERVAL_HIGH(COUNT(*)) FROM adult_train WHERE age BETWEEN 25 AND 44;
SELECT sex, AVG(hours_per_week), DP_STDERR(AVG(hours_per_week)) FROM adult_train GROUP BY sex;
SELECT SUM(hours_per_week), DP_STDERR(SUM(hours_per_week)) FROM adult_train WHERE education_num >= 13 AND age < 30;
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM adult_train WHERE capital_gain BETWEEN 1500 AND 6000;
-- blackfriday
SELECT Age, SUM(Purchase), DP_STDERR(SUM(Purchase)) FROM blackfriday GROUP BY Age;
SELECT COUNT(*), DP_STDERR(COUNT(*)), DP_INTERVAL_HIGH(COUNT(*)) FROM blackfriday WHERE Occupation < 5 AND Product_Category_1 = 3;
-- chinook
SELECT Country, SUM(UnitPrice * Quantity), DP_STDERR(SUM(UnitPrice * Quantity)) FROM chinook GROUP BY Country;
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM chinook WHERE InvoiceDate >= DATE '2023-01-01' AND Country IN ('USA', 'Canada');
-- foodmart
SELECT product_family, SUM(store_sales), DP_STDERR(SUM(store_sales)) FROM foodmart GROUP BY product_family;
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM foodmart WHERE num_children_at_home >= 2 AND SRP BETWEEN 1 AND 2;
SELECT education, COUNT(*), DP_STDERR(COUNT(*)) FROM customer WHERE gender = 'F' GROUP BY education;
SELECT gender, AVG(unit_sales), DP_INTERVAL_LOW(AVG(unit_sales)) FROM foodmart GROUP BY gender;
-- foodmart_customers
SELECT education, COUNT(*), DP_STDERR(COUNT(*)), DP_INTERVAL_LOW(COUNT(*)) FROM customer WHERE gender = 'F' GROUP BY education;
-- foodmart_user
SELECT product_department, COUNT(*), DP_STDERR(COUNT(*)), DP_INTERVAL_LOW(COUNT(*)) FROM foodmart GROUP BY product_department;
SELECT SUM(store_sales), DP_STDERR(SUM(store_sales)), DP_INTERVAL_HIGH(SUM(store_sales)) FROM foodmart WHERE SRP < 2;
SELECT store_name, AVG(store_sales), DP_STDERR(AVG(store_sales)) FROM foodmart GROUP BY store_name;
-- northwind
SELECT CategoryName, COUNT(*), DP_STDERR(COUNT(*)), SUM(Quantity), DP_STDERR(SUM(Quantity)) FROM northwind GROUP BY CategoryName;
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM northwind WHERE Country = 'Germany' AND OrderDate < DATE '1997-06-01';
-- nyc_taxi
SELECT pickup_hour, COUNT(*), DP_STDERR(COUNT(*)) FROM nyc_taxi WHERE trip_distance <= 2.5 GROUP BY pickup_hour;
SELECT AVG(tip_amount), DP_STDERR(AVG(tip_amount)) FROM nyc_taxi WHERE lpep_pickup_datetime >= TIMESTAMP '2020-11-01';
-- online_retail
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM online_retail WHERE InvoiceDate < TIMESTAMP '2011-06-01';
SELECT country, SUM(Quantity), DP_STDERR(SUM(Quantity)) FROM online_retail GROUP BY country;
SELECT SUM(Quantity), DP_STDERR(SUM(Quantity)) FROM online_retail WHERE median_price < 3;
-- online_retail_user
SELECT hour, COUNT(*), DP_STDERR(COUNT(*)), DP_INTERVAL_LOW(COUNT(*)) FROM online_retail GROUP BY hour;
SELECT country, SUM(amount), DP_STDERR(SUM(amount)) FROM online_retail GROUP BY country;
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM online_retail WHERE median_price BETWEEN 1 AND 4 AND InvoiceDate < TIMESTAMP '2011-04-01';
-- retail
SELECT region, COUNT(*), DP_STDERR(COUNT(*)), DP_INTERVAL_LOW(COUNT(*)), DP_INTERVAL_HIGH(COUNT(*)) FROM retail GROUP BY region;
SELECT category, AVG(amount), DP_STDERR(AVG(amount)) FROM retail WHERE age >= 45 GROUP BY category;
SELECT SUM(amount), DP_STDERR(SUM(amount)) FROM retail WHERE age BETWEEN 22 AND 47 AND price < 42;
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM retail WHERE sold_on BETWEEN DATE '2025-03-05' AND DATE '2025-04-20';
SELECT sex, COUNT(*), DP_STDERR(COUNT(*)) FROM customer WHERE income > 35000 GROUP BY sex;
-- retail_user
SELECT region, COUNT(*), DP_STDERR(COUNT(*)), DP_INTERVAL_LOW(COUNT(*)), DP_INTERVAL_HIGH(COUNT(*)) FROM retail GROUP BY region;
SELECT SUM(amount), DP_STDERR(SUM(amount)), DP_STDERR(SUM(amount), 'spread') FROM retail WHERE age BETWEEN 22 AND 47 AND price < 42;
-- retail_stream
SELECT sold_on, COUNT(*), DP_STDERR(COUNT(*)) FROM retail GROUP BY sold_on;
SELECT region, COUNT(*), DP_STDERR(COUNT(*)) FROM retail WHERE sold_on >= DATE '2025-01-02' GROUP BY region;
SELECT SUM(amount), DP_STDERR(SUM(amount)), AVG(amount), DP_STDERR(AVG(amount)) FROM retail;
-- shop_survey
SELECT sex, COUNT(*), DP_STDERR(COUNT(*)), DP_INTERVAL_LOW(COUNT(*)) FROM customer GROUP BY sex;
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM customer WHERE age BETWEEN 30 AND 54 AND income > 25000;
-- ssb
SELECT d_year, SUM(lo_revenue), DP_STDERR(SUM(lo_revenue)) FROM ssb WHERE p_category = 'MFGR#12' AND s_region = 'AMERICA' GROUP BY d_year;
SELECT c_nation, COUNT(*), DP_STDERR(COUNT(*)) FROM ssb WHERE s_region = 'ASIA' GROUP BY c_nation;
SELECT SUM(lo_extendedprice * lo_discount), DP_STDERR(SUM(lo_extendedprice * lo_discount)) FROM ssb WHERE lo_discount BETWEEN 1 AND 3 AND lo_quantity < 25;
-- ssb_user
SELECT d_year, COUNT(*), DP_STDERR(COUNT(*)), SUM(lo_revenue), DP_STDERR(SUM(lo_revenue)) FROM ssb GROUP BY d_year;
SELECT p_category, COUNT(*), DP_INTERVAL_LOW(COUNT(*)), DP_INTERVAL_HIGH(COUNT(*)) FROM ssb WHERE d_year = 1995 GROUP BY p_category;
-- survey
SELECT district, COUNT(*), DP_STDERR(COUNT(*)), AVG(minutes), DP_STDERR(AVG(minutes)) FROM answer GROUP BY district;
SELECT COUNT(*), DP_STDERR(COUNT(*)), DP_INTERVAL_LOW(COUNT(*)) FROM answer WHERE age < 40 AND minutes >= 30;
-- mechanisms
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM shop WHERE age BETWEEN 30 AND 50;
SELECT SUM(amount), DP_STDERR(SUM(amount)) FROM shop WHERE sold_on < DATE '2025-05-06';
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM shop WHERE price BETWEEN 20 AND 45 AND age >= 30;
SELECT region, COUNT(*), DP_STDERR(COUNT(*)) FROM shop GROUP BY region;
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM customer WHERE income BETWEEN 20000 AND 60000;
-- mechanisms_zcdp
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM shop WHERE age BETWEEN 30 AND 50;
SELECT SUM(amount), DP_STDERR(SUM(amount)) FROM shop WHERE sold_on < DATE '2025-05-06';
SELECT category, COUNT(*), DP_STDERR(COUNT(*)) FROM shop WHERE age < 45 GROUP BY category;
SELECT region, COUNT(*), DP_STDERR(COUNT(*)) FROM shop GROUP BY region;
-- adapted
SELECT COUNT(*), DP_STDERR(COUNT(*)), DP_INTERVAL_LOW(COUNT(*)) FROM shop WHERE age BETWEEN 30 AND 50;
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM shop WHERE sold_on BETWEEN DATE '2025-02-03' AND DATE '2025-05-06';
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM customer WHERE income BETWEEN 20000 AND 60000;
-- weighted
SELECT region, SUM(amount), DP_STDERR(SUM(amount)) FROM shop GROUP BY region;
SELECT COUNT(*), DP_STDERR(COUNT(*)), DP_INTERVAL_HIGH(COUNT(*)) FROM shop WHERE sold_on < DATE '2025-05-06';
-- user_replace_one
SELECT region, COUNT(*), DP_STDERR(COUNT(*)) FROM shop GROUP BY region;
SELECT SUM(amount), DP_STDERR(SUM(amount)) FROM shop WHERE sold_on < DATE '2025-05-06';
-- stream_prefix
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM shop WHERE sold_on >= DATE '2025-01-02';
SELECT region, SUM(amount), DP_STDERR(SUM(amount)) FROM shop GROUP BY region;
-- stream_tree
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM shop WHERE sold_on >= DATE '2025-01-02';
SELECT region, SUM(amount), DP_STDERR(SUM(amount)) FROM shop GROUP BY region;
-- stream_fda
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM shop WHERE sold_on >= DATE '2025-01-02';
SELECT region, SUM(amount), DP_STDERR(SUM(amount)) FROM shop GROUP BY region;
-- stream_spectral
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM shop WHERE sold_on >= DATE '2025-01-02';
SELECT region, SUM(amount), DP_STDERR(SUM(amount)) FROM shop GROUP BY region;
-- local_rows
SELECT region, COUNT(*), DP_STDERR(COUNT(*)) FROM shop GROUP BY region;
SELECT SUM(amount), DP_STDERR(SUM(amount)) FROM shop WHERE age < 40;
-- local_weighted
SELECT region, COUNT(*), DP_STDERR(COUNT(*)) FROM shop GROUP BY region;
SELECT AVG(amount), DP_STDERR(AVG(amount)) FROM shop WHERE age < 40;
-- local_services
SELECT sex, COUNT(*), DP_STDERR(COUNT(*)) FROM customer WHERE age < 40 GROUP BY sex;
-- local_joint
SELECT sex, COUNT(*), DP_STDERR(COUNT(*)), DP_INTERVAL_LOW(COUNT(*)) FROM customer WHERE age < 40 AND income > 20000 GROUP BY sex;
-- residual
SELECT region, COUNT(*), DP_STDERR(COUNT(*)) FROM shop GROUP BY region;
SELECT category, SUM(amount), DP_STDERR(SUM(amount)) FROM shop GROUP BY category;
-- cube
SELECT region, category, COUNT(*), DP_STDERR(COUNT(*)) FROM shop GROUP BY region, category;
SELECT sex, SUM(amount), DP_STDERR(SUM(amount)) FROM shop WHERE age < 40 GROUP BY sex;
-- blocks_named
SELECT COUNT(*), DP_STDERR(COUNT(*)), SUM(amount), DP_STDERR(SUM(amount)) FROM shop WHERE age BETWEEN 30 AND 50 AND sold_on < DATE '2025-05-05';
-- blocks_allowed
SELECT COUNT(*), DP_STDERR(COUNT(*)), SUM(amount), DP_STDERR(SUM(amount)) FROM shop WHERE age BETWEEN 30 AND 50 AND sold_on < DATE '2025-05-05';
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM shop WHERE sold_on BETWEEN DATE '2025-02-03' AND DATE '2025-05-06';
SELECT region, COUNT(*), DP_STDERR(COUNT(*)) FROM shop GROUP BY region;
-- blocks_allowed_zcdp
SELECT COUNT(*), DP_STDERR(COUNT(*)), SUM(amount), DP_STDERR(SUM(amount)) FROM shop WHERE age BETWEEN 30 AND 50 AND sold_on < DATE '2025-05-05';
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM shop WHERE sold_on BETWEEN DATE '2025-02-03' AND DATE '2025-05-06';
SELECT region, COUNT(*), DP_STDERR(COUNT(*)) FROM shop GROUP BY region;
-- local_ahead
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM customer WHERE age < 40 AND income > 20000;
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM customer WHERE age BETWEEN 30 AND 54;
-- user_gaps
SELECT region, COUNT(*), SUM(amount), DP_STDERR(SUM(amount)), SUM(quantity), DP_STDERR(SUM(quantity)) FROM shop GROUP BY region;
SELECT AVG(amount), DP_STDERR(AVG(amount)), COUNT(quantity), DP_STDERR(COUNT(quantity)) FROM shop WHERE sold_on < DATE '2025-05-01';
-- bought
SELECT region, COUNT(*), DP_STDERR(COUNT(*)), SUM(amount), DP_STDERR(SUM(amount)) FROM shop WHERE age BETWEEN 30 AND 44 GROUP BY region;
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM shop WHERE sold_on BETWEEN DATE '2025-02-03' AND DATE '2025-05-06';
-- stream_late
SELECT sold_on, COUNT(*), DP_STDERR(COUNT(*)) FROM shop GROUP BY sold_on;
SELECT region, SUM(amount), DP_STDERR(SUM(amount)) FROM shop GROUP BY region;
-- reported
SELECT COUNT(*), DP_STDERR(COUNT(*)), DP_STDERR(COUNT(*), 'channel') FROM shop WHERE age < 42 AND region = 'north';
SELECT region, SUM(amount), DP_STDERR(SUM(amount)) FROM shop WHERE age >= 30 GROUP BY region;
SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM customer WHERE age < 42 AND sex = 'F';
