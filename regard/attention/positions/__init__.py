"""Where things stand: positions added to vectors (absolute), or to scores (relative)."""

from regard.attention.positions.absolute import Learned as Learned
from regard.attention.positions.absolute import Sinusoidal as Sinusoidal
from regard.attention.positions.absolute import binary_code as binary_code
from regard.attention.positions.relative import Alibi as Alibi
from regard.attention.positions.relative import RelativeBias as RelativeBias
from regard.attention.positions.relative import Rotary as Rotary
