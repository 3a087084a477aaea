"""`dpsql design`: the views, cuts, measures and shares that answer some questions with the least predicted error.

    questions   statements -> what each of their numbers needs: a table, axes with the ends that are asked, measures
    measures    expressions that statements sum and no table declares -> measures with bounds that follow
    views       needs -> views; two are put together where that errs less; budgets follow from errors
    text        views as a person would write them, put into the catalog's own text

Every prediction is the planner's: a candidate is planned, and a release without estimates says how far answers will be
off.

**Privacy**: a function of the catalog, of the statements and of public tables. The views become public with the
release: somebody who chose the questions by what private rows hold has told it.
"""
