"""Words that the vocabulary does not have, copied from the source."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from torch import Tensor

from regard.decoding.alignment import Alignment


def copy_unknown(
    alignment: Alignment,
    unknown: Collection[int],
    dictionary: Mapping[str, str] | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> tuple[str, ...]:
    """The target words, those with an unknown token replaced by the source word it looked at most.

    Luong et al. (2015), arXiv 1410.8206, with attention in the place of their aligner; names and numbers
    mostly survive it. `unknown` are positions of target tokens. A word of the `dictionary` is translated by
    it, others are copied as they are. The words are those of the alignment, so give it source words as they
    were written: the pieces of an unknown one may not tell. The end of the sentence is never copied; a word that
    looked at nothing else stays as it is.

    >>> weights = torch.tensor([[[[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]]]])
    >>> seen = Alignment(("<unk>", "lacht", "</s>"), ("<unk>", "laughs"), weights, target_end=False,
    ...                  source_words=("Ottilie", "lacht"))
    >>> copy_unknown(seen, [0])
    ('Ottilie', 'laughs')
    """
    words = list(alignment.names("target"))
    names = alignment.names("source")
    for place, group in enumerate(alignment.groups("target")):
        pieces = tuple(position for position in group if position in unknown)
        if not pieces or not names:
            continue
        weights = _regarded(alignment, pieces, layer, head)
        if weights.any():
            word = names[int(weights.argmax())]
            words[place] = (dictionary or {}).get(word, word)
    return tuple(words)


def _regarded(alignment: Alignment, pieces: tuple[int, ...], layer: int | None, head: int | None) -> Tensor:
    """How much these target tokens look at each source word."""
    alone = replace(alignment, target_groups=(pieces,), target_words=None)
    return alone.looked(layer, head).words(renormalize=False).weights.flatten()
