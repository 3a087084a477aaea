select sold_on_low as day, count as orders, count_low as orders_low, count_high as orders_high
from {{ source('retail', 'days') }} where sold_on_low is not null
