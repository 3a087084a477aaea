"""The exact privacy loss of releases, measured: every place where exact integers meet noise is watched (`loss`), two
neighbours are published whole (`sides`), made up for a catalog and aimed at its bounds (`madeup`), and the worst of
them is held against what the ledger is charged (`run`).
"""

from dpsql.curate.prove.run import Proof, prove, prove_release

__all__ = ["Proof", "prove", "prove_release"]
