-- Cells of which noise does not hide whether anybody is in them.
select category, brand, age_group, count as orders, count_low as orders_low, count_high as orders_high
from {{ source('retail', 'tastes') }} where count_low > 0
