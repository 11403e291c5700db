"""What a translation can be told: one closed set of typed settings for all of its recipes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from regard.errors import ConfigError
from regard.training.settings import Settings, setting

Tokenization = Literal[
    "auto", "none", "13a", "intl", "zh", "char", "ja-mecab", "ko-mecab", "spm", "flores101", "flores200"
]
# None can be given for a size; who reads it finds a number always.
if TYPE_CHECKING:
    Size = int
else:
    Size = int | None
# The sizes that nobody chose: a small recurrent network, or the Transformer as it was published.
SIZES = {"recurrent": {"dim": 256, "layers": 1}, "transformer": {"dim": 512, "layers": 6}}
WATCHED = ("loss", "perplexity", "bleu", "chrf", "exact")


@dataclass(frozen=True, kw_only=True)
class Translation(Settings):
    """From one text to another."""

    # data
    train: tuple[str, ...] = setting((), "files to train on: source and target, or one .tsv or .jsonl")
    valid: tuple[str, ...] = setting((), "files to choose the best weights by")
    test: tuple[str, ...] = setting((), "files that `regard evaluate` takes if it is given none")
    columns: tuple[str, ...] = setting((), "columns of a .tsv (0,1) or keys of a .jsonl (source,target)")
    data: str | None = setting(
        None, "folder with the recipe's data; download: fetch it (multi30k, multi30k-tok, tatoeba-*, g2p)"
    )
    pair: str | None = setting(None, "languages of the recipe's data, such as en-de; the second is written")
    max_length: int = setting(256, "longest sentence in tokens")
    too_long: Literal["drop", "cut", "stop"] = setting("drop", "what to do with a longer one; it is counted")
    stream: bool = setting(False, "read the training files again and again instead of holding them in memory")
    # tokens
    tokenizer: Literal["bpe", "unigram", "char", "word"] = setting("bpe", "what a text is cut into")
    target_tokenizer: Literal["bpe", "unigram", "char", "word"] | None = setting(
        None, "the same for the target; the source's if none"
    )
    vocab: int = setting(8000, "tokens a tokenizer may learn")
    joint: bool = setting(True, "one tokenizer for both languages")
    bpe_dropout: float = setting(0.0, "merges of bpe forgotten at random in training (Provilkov et al. 2020)")
    nfkc: bool = setting(False, "fold compatible characters into one, such as full-width letters")
    lowercase: bool = setting(False, "all letters small")
    batch_tokens: int = setting(4096, "tokens in a batch, counted as rows times the longest row")
    # model
    model: Literal["recurrent", "transformer"] = setting("recurrent", "which network")
    dim: Size = setting(
        None, "size of a state, or of a position in the transformer; 256, transformer 512, if none"
    )
    layers: Size = setting(None, "layers of the encoder and of the decoder; 1, transformer 6, if none")
    dropout: float = setting(0.2, "numbers forgotten at random in training")
    tied: Literal["none", "output", "all"] = setting(
        "none", "embeddings shared: target with output, or source too"
    )
    embed_dim: int | None = setting(None, "recurrent: size of a word's vector; dim if none")
    encoder_dim: int | None = setting(
        None, "recurrent: size of a state in one direction; half of dim if none"
    )
    bidirectional: bool = setting(True, "recurrent: read forwards and backwards, or forwards only")
    cell: Literal["gru", "lstm"] = setting("gru", "recurrent: kind of cell")
    order: Literal["bahdanau", "luong"] = setting("bahdanau", "recurrent: look then step, or step then look")
    input_feeding: bool = setting(False, "recurrent, order=luong: hand on what was said to the next step")
    scope: Literal["global", "local-m", "local-p", "none"] = setting(
        "global", "recurrent: how much of the source"
    )
    radius: int = setting(4, "recurrent: how far local attention looks")
    score: str = setting("additive", "recurrent: how well a key answers; `regard list --kind score`")
    normalize: str | None = setting(None, "recurrent: how regard is shared; `regard list --kind normalizer`")
    heads: int = setting(8, "transformer: looks side by side")
    hidden_dim: int | None = setting(None, "transformer: size inside the feed-forward network; 4 dim if none")
    norm: Literal["post", "pre"] = setting(
        "post", "transformer: layer norm after each sublayer, or before it"
    )
    # loss
    smoothing: float = setting(0.1, "label smoothing")
    entropy: float = setting(0.01, "normalize=sample: reward for an open choice")
    discount: float = setting(0.5, "normalize=sample: how much later words count for a look")
    # writing
    beam: int = setting(5, "translations kept side by side; 1 is greedy")
    length_penalty: float = setting(1.0, "above 0 prefers longer translations")
    bleu: Tokenization = setting(
        "auto", "words for BLEU; auto: zh for Chinese, char for ja, ko, th and letters, else 13a"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._settle_sizes()
        for name in ("vocab", "dim", "layers", "batch_tokens", "max_length", "heads", "beam", "radius"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is too small: it must be at least 1")
        for name in ("embed_dim", "encoder_dim", "hidden_dim"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} is too small: it must be at least 1, or none")
        for name in ("length_penalty", "entropy"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name}={getattr(self, name)} must be a number, at least 0")
        if not 0 <= self.discount <= 1:
            raise ConfigError(f"discount={self.discount} must be from 0 to 1")
        if self.watch not in WATCHED:
            raise ConfigError(f"watch={self.watch} is not possible; watch is one of {', '.join(WATCHED)}")
        for name in ("dropout", "bpe_dropout", "smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 0 and below 1")
        if self.bpe_dropout and self.tokenizer != "bpe":
            raise ConfigError(f"bpe_dropout={self.bpe_dropout} needs tokenizer=bpe, not {self.tokenizer}")
        if self.model == "recurrent" and self.bidirectional and self.encoder_dim is None and self.dim < 2:
            raise ConfigError(
                f"dim={self.dim} is too small to be halved for two directions: it must be at least 2, or"
                " bidirectional=off"
            )
        if self.model == "transformer" and self.dim % self.heads:
            raise ConfigError(f"dim={self.dim} must be a multiple of heads={self.heads}")
        if self.model == "transformer" and (self.score, self.normalize, self.scope) != (
            "additive",
            None,
            "global",
        ):
            raise ConfigError(
                "score, normalize and scope are those of model=recurrent; a transformer has its own"
            )
        if self.tied == "all" and not self.joint:
            raise ConfigError("tied=all needs joint=on: one vocabulary for both languages")
        if self.tied == "all" and self.model == "recurrent":
            raise ConfigError("tied=all is for the transformer; a recurrent model takes tied=output")
        if self.joint and self.target_tokenizer not in (None, self.tokenizer):
            raise ConfigError("joint=on means one tokenizer; set joint=off for two kinds")
        if self.input_feeding and self.order != "luong":
            raise ConfigError(
                "input_feeding=on needs order=luong: in Bahdanau's order every step has seen its context"
            )

    def _settle_sizes(self) -> None:
        """What nobody chose goes by the model; from here on it is a number, also in run.json."""
        for name, size in SIZES[self.model].items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, size)  # frozen for everybody else
        if self.model == "transformer" and self.hidden_dim is None:
            object.__setattr__(self, "hidden_dim", 4 * self.dim)
