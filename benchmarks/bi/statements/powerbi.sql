-- card
select count(*) as "a0" from "public"."booking" "$Table";

-- grouped visual with a limit
select "_"."channel", "_"."a0" from (select "rows"."channel" as "channel", sum("rows"."price") as "a0" from (
  select "channel", "price" from "public"."booking" "$Table") "rows" group by "channel") "_"
where not "_"."a0" is null limit 1000001;

-- join of two tables in DirectQuery
select "t0"."tier", sum("t0"."price") as "a0" from (
  select "$Outer"."price", "$Inner"."tier" from (select "guest_id" as "guest_id2", "price" as "price" from "public"."booking" "$Table") "$Outer"
  left outer join "public"."guest" "$Inner" on ("$Outer"."guest_id2" = "$Inner"."guest_id")) "t0" group by "t0"."tier" limit 1000001;

-- average and counts together
select "t0"."c4" as "c4", avg("t0"."price") as "a0", count("t0"."price") as "a1" from (
  select extract(year from "booked_at") as "c4", "price" from "public"."booking" "$Table") "t0" group by "t0"."c4" limit 1000001;

-- distinct count with blanks
select count(distinct "channel") + max(case when "channel" is null then 1 else 0 end) as "a0" from "public"."booking" "$Table";

-- slicer
select distinct "tier" from "public"."guest" "$Table" order by "tier" limit 101;

-- date slicer with relative dates
select "$Table"."channel" as "channel", count(*) as "a0" from "public"."booking" "$Table"
where "$Table"."checkin_on" >= timestamp '{day-60} 00:00:00' and "$Table"."checkin_on" < timestamp '{day-30} 00:00:00' group by "$Table"."channel";

-- top N visual filter: semi-join of the top values
select "rows"."hotel_id" as "hotel_id", sum("rows"."price") as "a0" from "public"."booking" "rows"
inner join (select "hotel_id" as "h", sum("price") as "a0" from "public"."booking" group by "hotel_id" order by sum("price") desc limit 5) "top"
on "rows"."hotel_id" = "top"."h" group by "rows"."hotel_id";

-- minimum and maximum of an axis
select min("age") as "a0", max("age") as "a1" from "public"."guest" "$Table";

-- standard deviation of a measure
select "channel", stddev_samp("price") as "a0" from "public"."booking" "$Table" group by "channel" limit 1000001;
