"""Studies: claims of papers reproduced at the scale of a laptop, by `regard reproduce NAME`."""

from regard.studies.registry import STUDIES
from regard.studies.runner import Study, run_trial

__all__ = ["STUDIES", "Study", "run_trial"]
