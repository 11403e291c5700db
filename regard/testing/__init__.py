"""Checks of user-defined mechanisms: `check_score`, `check_normalizer` and `check_mask`.

Each runs the laws of attention on a part and raises LawViolation with the law that fails:

    from regard.testing import check_score
    check_score(MyScore)
"""

from regard.testing.checks import check_mask, check_normalizer, check_score
from regard.testing.laws import LawViolation

__all__ = ["LawViolation", "check_mask", "check_normalizer", "check_score"]
