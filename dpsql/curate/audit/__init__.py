"""`dpsql audit`: an offline check that a release file holds what its catalog says, and nothing else.

Read top down: `run` lists the checks. Everything in the file but the noisy integers is recomputed from the catalog
inside it and from those integers, and compared (`contents`); what cannot be recomputed is named. The
integers themselves are checked for the scale of their noise, and the mechanism that made them is audited by sampling
(`blackbox`).
"""

from dpsql.curate.audit.report import AuditReport, Check
from dpsql.curate.audit.run import audit_release

__all__ = ["AuditReport", "Check", "audit_release"]
