-- big value of this month against the last
select date_trunc('month', checkin_on) as month, sum(price) as sales_usd0, count(*) as orders_num0 from booking
where checkin_on >= date_trunc('month', current_date) - interval '2 months' and checkin_on < date_trunc('month', current_date) group by 1 order by 1 desc;

-- bar chart by category
select city, sum(price) as revenue_usd from booking inner join hotel on booking.hotel_id = hotel.hotel_id inner join city on hotel.city_id = city.city_id
group by city order by revenue_usd desc limit 10;

-- calendar heat map
select checkin_on as day, count(*) as n from booking where extract(year from checkin_on) = extract(year from date '{day-100}') group by 1 order by 1;

-- value with a filter of the page
select count(*) as n from booking where channel like 'web' and checkin_on between '{day-90}' and '{day-31}';

-- histogram of a column with coarser bins
select floor(party / 2.0) * 2 as bin, count(*) as n from booking group by 1 order by 1;

-- area chart of a share
select date_trunc('quarter', checkin_on) as quarter, channel, count(*) * 1.0 / sum(count(*)) over (partition by date_trunc('quarter', checkin_on)) as share
from booking group by 1, 2 order by 1, 2;
