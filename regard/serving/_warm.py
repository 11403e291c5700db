"""What a server does before its first request."""

from __future__ import annotations

import random

from regard.data import EOS_ID
from regard.tasks import Translator

LONG = 40  # tokens: few sentences have more
TIMES = 6  # full batches; after so many, memory hardly grows


def warm_up(translator: Translator, texts: int) -> None:
    """Translate so many texts that say nothing, first long ones, then of all lengths by chance, some times over.

    Most of the memory that full batches need is there then before the first request. Without it, the memory of a
    server grew for thousands of requests.
    """
    chance, source, longest = random.Random(0), translator.source, min(LONG, translator.max_length)
    first = min(EOS_ID + 1, len(source) - 1)  # the last one, where there is nothing but signs
    words = range(first, len(source))
    for time in range(TIMES):
        lengths = [longest if time == 0 else chance.randint(1, longest) for _ in range(texts)]
        noise = [source.decode(chance.choices(words, k=length)) for length in lengths]
        fitting = [text for text in noise if len(source.encode(translator.clean(text))) <= translator.max_length]
        translator.search(fitting, translator.decoding_config(max_length=longest))
