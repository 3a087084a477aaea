-- Months whose orders are above those of the month before whatever the noise: their intervals do not meet.
select later.month, later.region, later.orders, later.orders_low, later.orders_high
from {{ ref('months') }} later join {{ ref('months') }} earlier
  on later.region = earlier.region and earlier.month = later.month - interval 1 month
where later.orders_low > earlier.orders_high
