select category, brand, count as orders, count_low as orders_low, count_high as orders_high
from {{ source('retail', 'assortment') }} where brand is not null and brand not like '(%'
