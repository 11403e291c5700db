"""Pictures for papers, notebooks and pages: every function gives a `Picture`, which saves itself as PNG or SVG."""

from regard.viewing.pictures._fonts import MissingGlyphs as MissingGlyphs
from regard.viewing.pictures._heads import heads as heads
from regard.viewing.pictures._heat import heat as heat
from regard.viewing.pictures._mask import mask as mask
from regard.viewing.pictures._memory import memory as memory
from regard.viewing.pictures._overlay import overlay as overlay
from regard.viewing.pictures._picture import Picture as Picture
from regard.viewing.pictures._positions import positions as positions
from regard.viewing.pictures._positions import shift as shift
from regard.viewing.pictures._regression import regression as regression
