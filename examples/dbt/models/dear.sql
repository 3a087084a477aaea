select * from {{ ref('ages_by_price') }} where price_low >= 50
