"""How a statistic of one, two or more axes is measured: one module for each way.

Read in this order: `measurement` (what every way answers), `product` (each axis by its own strategy), `plane` (two axes
together), `residual` (sets of axes), `data_dependent` (ways that look at released numbers first).
"""
