select sold_on_low as month, region, sum_amount as revenue, sum_amount_low as revenue_low, sum_amount_high as revenue_high
from {{ source('retail', 'trend') }} where sold_on_low is not null
