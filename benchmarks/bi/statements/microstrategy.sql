-- metric by attribute, with a description form
select a12."tier" "tier", sum(a11."price") "WJXBFS1" from "booking" a11 join "guest" a12 on (a11."guest_id" = a12."guest_id") group by a12."tier";

-- two attributes and two metrics
select a13."city" "city", a11."channel" "channel", sum(a11."price") "WJXBFS1", sum(a11."nights") "WJXBFS2" from "booking" a11
join "hotel" a12 on (a11."hotel_id" = a12."hotel_id") join "city" a13 on (a12."city_id" = a13."city_id") group by a13."city", a11."channel";

-- two passes joined
select coalesce(pa11."tier", pa12."tier") "tier", pa11."WJXBFS1" "bookings", pa12."WJXBFS1" "cancelled" from (
  select a12."tier" "tier", count(*) "WJXBFS1" from "booking" a11 join "guest" a12 on (a11."guest_id" = a12."guest_id") group by a12."tier") pa11
full outer join (select a12."tier" "tier", count(*) "WJXBFS1" from "booking" a11 join "guest" a12 on (a11."guest_id" = a12."guest_id") where a11."cancelled" = true group by a12."tier") pa12
on (pa11."tier" = pa12."tier");

-- DayOfWeek by its function pattern
select (EXTRACT(DOW FROM a11."checkin_on") + 1) "dow", count(*) "n" from "booking" a11 group by (EXTRACT(DOW FROM a11."checkin_on") + 1);

-- MonthStartDate by its function pattern
select (CAST(a11."checkin_on" AS DATE) - (EXTRACT(DAY FROM a11."checkin_on")::integer - 1)) "start", sum(a11."price") "WJXBFS1" from "booking" a11
group by (CAST(a11."checkin_on" AS DATE) - (EXTRACT(DAY FROM a11."checkin_on")::integer - 1));

-- AddDays from CurrentDate
select count(*) "n" from "booking" a11 where a11."checkin_on" >= (CURRENT_DATE + (-28) * INTERVAL '1 DAY') and a11."checkin_on" < CURRENT_DATE;

-- rank metric over a grouped pass
select pa."city", pa."WJXBFS1", rank() over (order by pa."WJXBFS1" desc) "r" from (select a13."city" "city", sum(a11."price") "WJXBFS1" from "booking" a11
join "hotel" a12 on (a11."hotel_id" = a12."hotel_id") join "city" a13 on (a12."city_id" = a13."city_id") group by a13."city") pa order by "r";
