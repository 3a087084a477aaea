# Texts that no leaf lists are flagged with the nearest spelling; listed ones and other conditions are not.
$OF = SELECT COUNT(*) FROM shop WHERE category

## flags
-- 'cofee' (nearest: 'coffee') for
-- ; no row has it
$OF = 'cofee';
-- 'TEA' (nearest: 'tea') for
-- ; no row has it
$OF = 'TEA';
-- no value 'xyzzy' for
-- ; no row has it
$OF IN ('tea', 'xyzzy');
-- category LIKE 'choc%': product.category has cake, coffee, tea; no row has it
$OF LIKE 'choc%';
-- not lists no value
$OF = 'tea';
-- not lists no value
$OF IN ('tea', 'cake');
-- not lists no value
$OF LIKE 'c%';
-- not lists no value
$OF <> 'xyzzy';

# What people ask is not refused with what attacks a server.
$GROUPS = (SELECT region, COUNT(*) AS n FROM sales JOIN customer USING (customer_id) GROUP BY region)

## answered
SELECT region || ' ' || CAST(n AS VARCHAR), LPAD(region, 12, '.') FROM $GROUPS;
SELECT STRING_AGG(region, ', ') FROM $GROUPS;
SELECT REPEAT('#', 20), REPLACE(region, 'east', 'eastern') FROM $GROUPS;
