"""Decoding: from anything that can take a step to translations with scores, alignments and the search itself.

    decode          a source, a model and `Decoding` options -> hypotheses: beam search, greedy, sampling
    force           a source and a translation -> its hypothesis
    look            hypotheses -> where the model looked while it wrote them, for `Alignment`
    aer, best_head  links of alignments against those that people made

No model is imported here: `Model` and `Steps` say what a model must promise.
"""

from regard.decoding._decode import beam as beam
from regard.decoding._decode import decode as decode
from regard.decoding._decode import greedy as greedy
from regard.decoding._decode import sample as sample
from regard.decoding._decode import trace as trace
from regard.decoding._force import force as force
from regard.decoding._force import look as look
from regard.decoding._protocol import Model as Model
from regard.decoding._protocol import Steps as Steps
from regard.decoding.alignment import Alignment as Alignment
from regard.decoding.alignment import Words as Words
from regard.decoding.copying import copy_unknown as copy_unknown
from regard.decoding.gold import Gold as Gold
from regard.decoding.gold import Head as Head
from regard.decoding.gold import aer as aer
from regard.decoding.gold import best_head as best_head
from regard.decoding.gold import parse_gold as parse_gold
from regard.decoding.gold import read_gold as read_gold
from regard.decoding.hypothesis import Candidate as Candidate
from regard.decoding.hypothesis import Hypothesis as Hypothesis
from regard.decoding.hypothesis import Trace as Trace
from regard.decoding.options import Decoding as Decoding
