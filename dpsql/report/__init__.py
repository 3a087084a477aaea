"""Pictures of a release and of answers.

model     axes, labels and variance tables as plain values, ready for JSON
page      `dpsql report`: one self-contained HTML page around them
"""

from dpsql.report.page import report_page

__all__ = ["report_page"]
