"""What papers found, found again at the scale of a laptop: `regard reproduce NAME`."""

from regard.studies.registry import STUDIES
from regard.studies.runner import Study, run_trial

__all__ = ["STUDIES", "Study", "run_trial"]
