-- Brands of a category that none surely passes: their upper end reaches the best lower end.
select * from {{ ref('brands') }}
qualify orders_high >= max(orders_low) over (partition by category)
