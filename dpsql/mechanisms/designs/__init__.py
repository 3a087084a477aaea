"""Joint measurement of a table's views: one module for each design, and the choice among them.

Read in this order: `measurement` (what every way answers), `question` (what views ask for), `product` (each axis by its
own strategy), `plane` (two axes together), `residual` (sets of axes), `adaptive` (ways that look at released
numbers first), `registry` (all that there are, and which one a family gets).
"""
