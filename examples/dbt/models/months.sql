-- Orders of each month and region, with their intervals.
select sold_on_low as month, region, count as orders, count_low as orders_low, count_high as orders_high
from {{ source('retail', 'trend') }} where sold_on_low is not null
