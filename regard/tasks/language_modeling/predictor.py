"""A trained language model: it goes on with a text, and says how well it would have foretold one.

A trained encoder that fills in hidden words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from regard.data import BOS_ID, EOS_ID, UNK_ID, Tokenizer
from regard.data.passages import PassageBatches, PassageReport
from regard.data.segmentation import SPLITTERS
from regard.decoding import DecodingConfig, decode
from regard.errors import InputError, InputTooLongError
from regard.models.language_models import CausalLM, MaskedLM
from regard.tasks.language_modeling.config import FillMaskConfig, TextGenerationConfig
from regard.training import linear_cross_entropy


def make_word_spacer(tokenizer: str) -> Callable[[str], str]:
    """Text with spaces between all words or characters, as the recipes of documents cut it.

    >>> make_word_spacer("word")("It's well-made.")
    "It's well - made ."
    """
    cut = SPLITTERS[tokenizer]
    return lambda text: " ".join(cut(text))


@dataclass(frozen=True)
class GeneratedText:
    """A text with its beginning, the log-probability of what was added, and whether it came to an end."""

    text: str
    log_prob: float
    num_tokens: int
    finished: bool

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


class TextGenerator:
    """A model with its tokenizer. `regard.load(RUN)` gives one."""

    def __init__(self, model: CausalLM, tokenizer: Tokenizer, config: TextGenerationConfig):
        self.model, self.tokenizer, self.config = model.eval(), tokenizer, config

    @property
    def device(self) -> torch.device:
        return self.model.lm_head.weight.device

    def generate(
        self,
        prompt: str = "",
        num_samples: int = 1,
        *,
        max_tokens: int | None = None,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> list[GeneratedText]:
        """Go on with a beginning, `number` times; `options` are those of `Decoding`, which draws if none is named.

        At most `length` tokens are added, and no more than fit into a passage of training behind the beginning.
        """
        ids = self.tokenizer.encode(prompt)
        room = self.config.passage_length - len(ids)
        if room < 1:
            raise InputTooLongError(
                f"the beginning has {len(ids):,} tokens, but this model takes {self.config.passage_length - 1:,}"
                " (length); shorten it"
            )
        most = min(room, max_tokens or room)
        how = DecodingConfig(
            **{"method": "sample", **options},
            num_best=num_samples,
            max_length=most,
            max_length_ratio=0,
            max_length_offset=most,
        )
        begun = torch.tensor([[BOS_ID, *ids]], device=self.device)
        lengths = torch.tensor([begun.shape[1]], device=self.device)
        found = decode(self.model, begun, lengths, how, generator=generator)[0]
        surfaces = self.tokenizer.surface_forms(prompt)
        unknown = {place: surfaces[place] for place, token in enumerate(ids) if token == UNK_ID}
        return [
            GeneratedText(
                self.tokenizer.decode([*ids, *one.token_ids], unknown),
                one.log_prob,
                len(one.token_ids),
                one.finished,
            )
            for one in found
        ]

    @torch.no_grad()
    def evaluate(self, texts: Iterable[str]) -> dict[str, Any]:
        """How well it foretells texts: nats a token, perplexity, and bits a character, which tokens do not change."""
        settings, output = self.config, self.model.lm_head
        given = PassageBatches(
            texts, self.tokenizer, length=settings.passage_length, max_tokens=settings.batch_tokens
        )
        total = 0.0
        for batch in given.iter_eval_batches():
            batch = batch.to(self.device)
            real = torch.arange(1, batch.token_ids.shape[1], device=self.device) < batch.lengths[:, None]
            hidden = self.model.forward_hidden(batch.token_ids[:, :-1])[real]
            total += float(linear_cross_entropy(hidden, output.weight, None, batch.token_ids[:, 1:][real])[0])
        return {**given.report.as_dict(), **text_metrics(total, given.report)}


def text_metrics(total: float, report: PassageReport) -> dict[str, float]:
    """What a text costs in all, a token, a character.

    >>> text_metrics(100.0, PassageReport(tokens=50, characters=200))["perplexity"] == math.exp(2)
    True
    """
    each = total / report.tokens
    return {
        "loss": each,
        "perplexity": math.exp(min(each, 100.0)),
        "bits_per_character": total / math.log(2) / report.characters,
    }


MASK_MARK = "___"


class TokenGuess(NamedTuple):
    """A word that may stand in a gap, and its probability."""

    word: str
    probability: float


class FillMask:
    """A model with its words. `regard.load(RUN)` gives one."""

    def __init__(self, model: MaskedLM, tokenizer: Tokenizer, config: FillMaskConfig):
        self.model, self.tokenizer, self.config = model.eval(), tokenizer, config

    @property
    def device(self) -> torch.device:
        return self.model.lm_head.weight.device

    @torch.no_grad()
    def predict(self, text: str, num_best: int = 5) -> list[list[TokenGuess]]:
        """The likeliest words of each gap in a text, where a gap is written ___."""
        ids, gaps = self._encode_with_gaps(text)
        shown = torch.tensor([[BOS_ID, *ids, EOS_ID]], device=self.device)
        states = self.model.forward_hidden(shown, torch.tensor([shown.shape[1]], device=self.device))
        scores = self.model.lm_head(states[0, gaps])
        scores[:, : EOS_ID + 1] = scores[:, -1] = -torch.inf  # only words: no special token, and no mask
        shares, found = scores.softmax(-1).topk(min(num_best, len(self.tokenizer) - EOS_ID - 1))
        return [
            [
                TokenGuess(self.tokenizer.decode([number]), share)
                for number, share in zip(row, shares_, strict=True)
            ]
            for row, shares_ in zip(found.tolist(), shares.tolist(), strict=True)
        ]

    def fill(self, text: str) -> str:
        """The text with the likeliest word in each gap."""
        parts = text.split(MASK_MARK)
        words = [several[0].word for several in self.predict(text, 1)]
        return "".join(part + word for part, word in zip(parts, [*words, ""], strict=True))

    def to_json(self, text: str, num_best: int = 5) -> dict[str, Any]:
        """Plain lists and numbers."""
        return {
            "text": text,
            "filled": self.fill(text),
            "gaps": [[guess._asdict() for guess in gap] for gap in self.predict(text, num_best)],
        }

    def _encode_with_gaps(self, text: str) -> tuple[list[int], list[int]]:
        """The numbers of the words with the mask in each gap, and where the gaps are behind BOS."""
        cut = make_word_spacer(self.config.tokenizer)
        ids: list[int] = []
        gaps: list[int] = []
        for place, part in enumerate(text.split(MASK_MARK)):
            if place:
                gaps.append(len(ids) + 1)
                ids.append(len(self.tokenizer))
            ids += self.tokenizer.encode(cut(part))
        if not gaps:
            raise InputError(f"there is no gap to fill in; write {MASK_MARK} where a word is hidden")
        if len(ids) + 1 > self.config.passage_length:
            raise InputTooLongError(
                f"the text has {len(ids):,} words, but this model takes {self.config.passage_length - 1:,} (length);"
                " shorten it"
            )
        return ids, gaps
