"""Frequency oracles: what a report says of its owner's item, and what a tally of reports says of everybody's.

| here                | there | a report says |
|---------------------|-------|---------------|
| `unary_encoding`    | OUE   | one bit per item |
| `local_hashing`     | OLH   | a seed and a bucket of items |
| `randomised_response` | GRR | one item |
| `square_wave`       | WAVE  | one bin near the own leaf |

An oracle has two halves: the device's in `dpsql.client.oracles`, the collector's here. Nobody asks which one it is.
"""
