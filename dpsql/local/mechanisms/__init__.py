"""Estimation from reports that people perturbed themselves: numpy in, numpy out, no entropy.

| here        | there                                | source |
|-------------|--------------------------------------|--------|
| grids       | levels of a path, granularity of a grid | seeds 003 (corrected) and 001, section 3.4 |
| blue        | unbiased estimate over all groups; proper histograms | least squares; seed 001, section 4.2.2 |
| smooth      | the log-smooth stack of one axis     | |
| joint       | one smooth fit of several axes       | |
| truncation  | tau                                  | seed 003, section 3.1, corrected |
| shuffle     | numeric clones bound                 | Feldman, McMillan, Talwar 2021 |
"""
