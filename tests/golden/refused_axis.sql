SELECT COUNT(*) FROM shop WHERE sold_on > DATE '2025-02-01' AND age > 20
-- NoViewError: no view can answer: demand lacks sales.sold_on; prices lacks sales.sold_on; trend lacks customer_id.customer.age; drop what is missing, or ask the curator for the view `sold_on_by_age: {of: sales, axes: [sales.sold_on, customer.age], measures: [count]}`
-- SELECT COUNT(*) FROM shop WHERE sold_on > DATE '2025-02-01' AND age > 20
--                                                                 ^^^^^^^^
