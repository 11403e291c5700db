"""The halves of the Transformer by themselves: one that fills in hidden words, and one that goes on writing.

Devlin et al. (2019), "BERT", arXiv 1810.04805: the encoder, which sees both sides of a word. Radford et al. (2018),
"Improving language understanding by generative pre-training": the decoder without a source, which sees what is before.
"""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Cache, MultiHead, causal
from regard.errors import UsageError
from regard.models.mixed import Mixed
from regard.models.transformer import Embedding, Encoder, Norm


class MaskedLanguageModel(nn.Module):
    """Reads words of which some are hidden, and says what they were.

        scores of word t = E x_t + b          x = reader(words), E the reader's embeddings

    The paper learns its positions and takes GELU and one more layer before the scores; these are those of the
    Transformer here. It has no second sentence to judge, which was found to help little (Liu et al. 2019, arXiv
    1907.11692).

    >>> from regard.models.mixed import Attending
    >>> model = MaskedLanguageModel(Mixed(words=20, dim=8, layers=[Attending(8, heads=2)]))
    >>> model.output(model(torch.randint(4, 20, (2, 5)), torch.tensor([5, 3]))).shape
    torch.Size([2, 5, 20])
    """

    def __init__(self, reader: Mixed):
        super().__init__()
        words = reader.embed.words.weight
        self.reader = reader
        self.output = nn.Linear(words.shape[1], words.shape[0])
        self.output.weight = words
        nn.init.zeros_(self.output.bias)

    def forward(
        self, words: Int[Tensor, "rows length"], lengths: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows length dim"]:
        """What `output` turns into the scores of the word at each place."""
        return self.reader(words, lengths)


class LanguageModel(nn.Module):
    """Says after each word which comes next, and so writes.

    >>> model = LanguageModel(words=20, dim=8, heads=2, layers=1, hidden_dim=16)
    >>> model.output(model(torch.randint(4, 20, (2, 5)))).shape
    torch.Size([2, 5, 20])
    """

    def __init__(
        self,
        words: int,
        *,
        dim: int = 256,
        heads: int = 4,
        layers: int = 4,
        hidden_dim: int | None = None,
        dropout: float = 0.1,
        norm: Norm = "pre",
    ):
        super().__init__()
        make = lambda: MultiHead(dim, heads)  # noqa: E731
        self.embed = Embedding(words, dim, dropout)
        self.decoder = Encoder(layers, dim, hidden_dim or 4 * dim, dropout, norm, make)
        self.output = nn.Linear(dim, words, bias=False)
        self.output.weight = self.embed.words.weight

    def forward(self, words: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length dim"]:
        """What `output` turns into the scores of the next word; what fills up a row comes after its words."""
        return self.decoder(self.embed(words), causal())

    def begin(self, source: Int[Tensor, "rows length"], source_lengths: Int[Tensor, " rows"]) -> Steps:
        """Read beginnings, all of one length, and go on word by word."""
        if bool((source_lengths != source.shape[1]).any()):
            raise UsageError(
                f"LanguageModel.begin takes beginnings of one length, got {sorted(set(source_lengths.tolist()))};"
                " go on with those of each length by themselves"
            )
        return Steps(self, source)


class Steps:
    """Texts being written, one word of each row at a time; a word costs one query a layer."""

    def __init__(self, model: LanguageModel, begun: Int[Tensor, "rows length"]):
        self.model, self.caches = model, [Cache() for _ in model.decoder.layers]
        self.last: Tensor | None = begun[:, -1]
        if begun.shape[1] > 1:
            self._read(begun[:, :-1])

    def step(self, words: Int[Tensor, " rows"]) -> Float[Tensor, "rows words"]:
        """The scores of the next word of each row; the first time after its beginning, whatever is given."""
        words, self.last = words if self.last is None else self.last, None
        return self.model.output(self._read(words[:, None])[:, -1])

    def select(self, rows: Int[Tensor, " new"]) -> None:
        """Go on with these rows; one may be taken several times."""
        self.last = None if self.last is None else self.last[rows]
        for cache in self.caches:
            cache.reorder(rows)

    def _read(self, words: Int[Tensor, "rows new"]) -> Float[Tensor, "rows new dim"]:
        x = self.model.embed(words, offset=len(self.caches[0]))
        return self.model.decoder(x, causal(), self.caches)
