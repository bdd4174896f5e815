"""Find faults in photos and captions, without training and without changing files.

::

    from curation.check import check

    result = check("my_photos")
    result.report()
"""

from curation.check.checks import CHECKS, Check
from curation.check.folder_check import check
from curation.check.result import CheckResult

__all__ = ["CHECKS", "Check", "CheckResult", "check"]
