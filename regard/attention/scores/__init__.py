"""How alike are a query and a key? One class for each answer; ``+`` and ``*`` combine them."""

from regard.attention.scores.base import Features as Features
from regard.attention.scores.base import Scaled as Scaled
from regard.attention.scores.base import Score as Score
from regard.attention.scores.base import Sum as Sum
from regard.attention.scores.distance import Boxcar as Boxcar
from regard.attention.scores.distance import Cosine as Cosine
from regard.attention.scores.distance import Epanechnikov as Epanechnikov
from regard.attention.scores.distance import Gaussian as Gaussian
from regard.attention.scores.dot import Bilinear as Bilinear
from regard.attention.scores.dot import Constant as Constant
from regard.attention.scores.dot import Dot as Dot
from regard.attention.scores.dot import Energy as Energy
from regard.attention.scores.dot import Location as Location
from regard.attention.scores.dot import ScaledDot as ScaledDot
from regard.attention.scores.network import Additive as Additive
from regard.attention.scores.network import Concat as Concat
