-- grouped table
select CHANNEL_4, COUNT_5, SUM_6 from (select channel CHANNEL_4, count(1) COUNT_5, sum(price) SUM_6 from (select channel, price from public.booking) Q1 group by channel) Q2
order by CHANNEL_4 asc nulls last limit 10001;

-- date trunc through cast
select DATETRUNC_3, COUNT_4 from (select date_trunc('quarter', checkin_on::timestamp) DATETRUNC_3, count(1) COUNT_4 from public.booking Q1 group by date_trunc('quarter', checkin_on::timestamp)) Q2 order by DATETRUNC_3 asc limit 10001;

-- DateDiff in days from today
select count(1) COUNT_2 from public.booking Q1 where checkin_on >= (now() - interval '14' day)::date and checkin_on < now()::date;

-- bins of a number
select BIN_3, count(1) COUNT_4 from (select floor((age - 18) / 12::float8) BIN_3 from public.guest) Q1 group by BIN_3 order by BIN_3;

-- percent of grand total
select TIER_2, CNT_3, CNT_3::float8 / sum(CNT_3) over () PCT_4 from (select tier TIER_2, count(1) CNT_3 from public.guest group by tier) Q1 order by TIER_2;
