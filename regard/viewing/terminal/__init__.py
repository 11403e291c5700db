"""Attention in the terminal: the family of `regard.viewing.pictures` in characters, as wide as the terminal is."""

from regard.viewing.terminal._document import document as document
from regard.viewing.terminal._heads import heads as heads
from regard.viewing.terminal._heat import heat as heat
from regard.viewing.terminal._matrices import mask as mask
from regard.viewing.terminal._matrices import positions as positions
from regard.viewing.terminal._memory import memory as memory
from regard.viewing.terminal._overlay import overlay as overlay
from regard.viewing.terminal._regression import regression as regression
from regard.viewing.terminal._screen import COLORS as COLORS
