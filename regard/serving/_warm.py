"""What a server does before its first request."""

from __future__ import annotations

import random

from regard.data import EOS
from regard.recipes import Translator

LONG = 40  # tokens: few sentences have more


def warm_up(translator: Translator, texts: int) -> None:
    """Translate so many long texts that say nothing: what a full batch needs is then there before the first request.

    The first request is as fast as later ones, and a server that has memory to start has enough to go on.
    """
    chance, source, length = random.Random(0), translator.source, min(LONG, translator.max_length)
    words = range(
        min(EOS + 1, len(source) - 1), len(source)
    )  # the last one, where there is nothing but signs
    noise = [source.decode(chance.choices(words, k=length)) for _ in range(texts)]
    fitting = [text for text in noise if len(source.encode(translator.clean(text))) <= translator.max_length]
    translator.search(fitting, translator.decoding(max_length=length))
