select * from {{ ref('months') }} where month = (select max(month) from {{ ref('months') }})
