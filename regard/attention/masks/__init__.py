"""Who may be looked at: masks as values with names, joined with ``&``, ``|``, ``~``. True = may be looked at."""

from regard.attention.masks.base import Mask as Mask
from regard.attention.masks.base import as_mask as as_mask
from regard.attention.masks.base import dense as dense
from regard.attention.masks.grid import Grid as Grid
from regard.attention.masks.kinds import around as around
from regard.attention.masks.kinds import causal as causal
from regard.attention.masks.kinds import documents as documents
from regard.attention.masks.kinds import padding as padding
from regard.attention.masks.kinds import window as window
