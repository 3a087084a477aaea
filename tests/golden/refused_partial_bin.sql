SELECT COUNT(*) FROM shop WHERE price BETWEEN 11 AND 13
-- PartialBinError: product_id.product.price BETWEEN 11 AND 13 cuts bins of product.price: 100% of the answer would be interpolated, more than half; take whole bins, which begin at 10, 15; with `on_partial_bin: interpolate` in the catalog or the connection it is answered
-- SELECT COUNT(*) FROM shop WHERE price BETWEEN 11 AND 13
--                                 ^^^^^^^^^^^^^^^^^^^^^^^
