"""Does a mechanism of your own keep the laws? Three functions that say so, or which law it breaks.

from regard.testing import check_score
check_score(MyScore)
"""

from regard.testing.checks import check_mask, check_normalizer, check_score
from regard.testing.laws import LawViolation

__all__ = ["LawViolation", "check_mask", "check_normalizer", "check_score"]
