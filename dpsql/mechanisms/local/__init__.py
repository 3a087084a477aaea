"""Estimation from reports that people perturbed themselves: numpy in, numpy out, no entropy.

| here        | there                                | source |
|-------------|--------------------------------------|--------|
| lprr        | level combinations and their shares  | seed 003, corrected |
| blue        | unbiased estimate over all groups    | generalised least squares |
| simplex     | NormSub, simplex-constrained fit     | seed 001, section 4.2.2 |
| logs        | log shares: misfit, differences      | |
| spikes      | smooth log shares plus a few spikes  | |
| smooth      | the log-smooth stack of one axis     | |
| joint       | one smooth fit of several axes       | |
| truncation  | tau                                  | seed 003, section 3.1, corrected |
| grids       | HDG granularity                      | seed 001, section 3.4 |
| ahead       | adaptive trees in rounds             | seed 001 |
| maxent      | maximum entropy over 2^m cells       | seed 001, section 4.5.2 |
| shuffle     | numeric clones bound                 | Feldman, McMillan, Talwar 2021 |
"""
