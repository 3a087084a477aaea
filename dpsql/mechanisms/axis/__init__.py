"""What may be measured on one axis: one module for each strategy, and the choice among them.

Read in this order: `strategy` (what every strategy answers), `rows` (integer rows over intervals), `leaves` (the
simplest one), `registry` (all that there are, and which one an axis gets).
"""
