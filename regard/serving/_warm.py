"""What a server does before its first request."""

from __future__ import annotations

import random

from regard.data import EOS
from regard.recipes import Translator

LONG = 40  # tokens: few sentences have more


def warm_up(translator: Translator, texts: int) -> None:
    """Translate so many long texts that say nothing, so that most of what a full batch needs is there before the first.

    Without it, the memory of a server grew for thousands of requests.
    """
    chance, source, length = random.Random(0), translator.source, min(LONG, translator.max_length)
    first = min(EOS + 1, len(source) - 1)  # the last one, where there is nothing but signs
    words = range(first, len(source))
    noise = [source.decode(chance.choices(words, k=length)) for _ in range(texts)]
    fitting = [text for text in noise if len(source.encode(translator.clean(text))) <= translator.max_length]
    translator.search(fitting, translator.decoding(max_length=length))
