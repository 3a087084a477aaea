select age_low, age_high, price_low, price_high, count as orders, count_low as orders_low, count_high as orders_high
from {{ source('retail', 'demand') }} where age_low is not null and price_low is not null
