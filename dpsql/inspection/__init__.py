"""`dpsql audit`: an offline check that a release file holds what its catalog says, and nothing else.

Read top down: `run` lists the checks. Everything in the file but the noisy integers is recomputed from the catalog
inside it and from those integers, and compared (`tables`, `numbers`); what cannot be recomputed is named. The
integers themselves are checked for the scale of their noise, and the mechanism that made them is audited by sampling
(`sampling`).
"""

from dpsql.inspection.report import AuditReport, Check
from dpsql.inspection.run import audit_release

__all__ = ["AuditReport", "Check", "audit_release"]
