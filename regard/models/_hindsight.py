"""Where a word looked, now that it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import softmax
from regard.errors import UnsupportedError

if TYPE_CHECKING:
    from regard.models.recurrent import Now, Recurrent

AT_ONCE = 1 << 24  # scores of words


@torch.no_grad()
def hindsight(
    model: Recurrent,
    source: Int[Tensor, "rows source"],
    source_lengths: Int[Tensor, " rows"],
    target: Int[Tensor, "rows target"],
) -> Float[Tensor, "rows target-1 source"]:
    """The chance that each word of the target came from each place of the source, by Bayes' rule.

        p(place | word) ~ weight of the place x p(word | context = state of the place)

    A decoder looks before it writes a word, so its weights are a guess; an unexpected word corrects it. After Shankar
    and Sarawagi (2019), "Posterior attention models for sequence to sequence learning", who train with it.
    """
    memory, now = model.encode(source, source_lengths)
    if memory.over is None:
        raise UnsupportedError("a model without attention has no weights to correct")
    embedded, found = model.write(target[:, :-1]), []
    for t, ahead in enumerate(model.first.ahead(embedded).unbind(1)):
        after, _, look = model.step(ahead, memory, now, t)
        assert look is not None
        given = (memory.over.value, ahead, embedded[:, t], now, after, target[:, t + 1])
        found.append(
            softmax(look.weights.squeeze(1).log() + _likely(model, *given))
        )  # 0 where it saw nothing
        now = after
    return torch.stack(found, 1)


def _likely(
    model: Recurrent, states: Tensor, ahead: Tensor, embedded: Tensor, now: Now, after: Now, word: Tensor
) -> Float[Tensor, "rows source"]:
    """The log-probability of the word that came, had the decoder seen one place of the source only."""
    rows, places = states.shape[:2]
    some = max(1, AT_ONCE // (places * model.output.out_features))
    likely = []
    for part in torch.arange(rows, device=states.device).split(some):
        each = part.repeat_interleave(places)
        context = states[part].flatten(0, 1)
        top = after.top[each]
        if model.order == "bahdanau":  # there the step itself sees the context
            top = model._turn(ahead[each], context, now.select(each).states)[-1][0]
        scores = model.output(model.say(top, context, embedded[each]))
        likely.append(scores.gather(1, word[each, None]).squeeze(1) - scores.logsumexp(-1))
    return torch.cat(likely).view(rows, places)
