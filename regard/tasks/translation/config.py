"""What a translation can be told: one closed set of typed settings for all of its recipes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from regard.config import option
from regard.training.config import MONITOR_HELP, TrainingConfig

if TYPE_CHECKING:
    Size = int  # a size may be given as None; whoever reads it always finds a number
else:
    Size = int | None

BleuTokenizer = Literal[
    "auto", "none", "13a", "intl", "zh", "char", "ja-mecab", "ko-mecab", "spm", "flores101", "flores200"
]


RECURRENT, TRANSFORMER = {"model": "recurrent"}, {"model": "transformer"}


@dataclass(frozen=True, kw_only=True)
class TranslationConfig(TrainingConfig):
    """From one text to another."""

    monitor: str = option("loss", MONITOR_HELP, choices=("loss", "perplexity", "bleu", "chrf", "exact"))
    # data
    train_files: tuple[str, ...] = option(
        (), "files to train on: source and target, or one .tsv or .jsonl", path=True
    )
    valid_files: tuple[str, ...] = option((), "files to choose the best weights by", path=True)
    test_files: tuple[str, ...] = option(
        (), "files that `regard evaluate` takes if it is given none", path=True
    )
    columns: tuple[str, ...] = option((), "columns of a .tsv (0,1) or keys of a .jsonl (source,target)")
    data_dir: str | None = option(
        None,
        "folder with the recipe's data; download: fetch it (multi30k, multi30k-tok, tatoeba-*, g2p)",
        path=True,
    )
    language_pair: str | None = option(
        None, "languages of the recipe's data, such as en-de; the second is written"
    )
    max_length: int = option(256, "longest sentence in tokens", ge=1)
    overflow: Literal["drop", "truncate", "error"] = option(
        "drop", "what to do with a longer one; it is counted"
    )
    streaming: bool = option(
        False, "read the training files again and again instead of holding them in memory"
    )
    # tokens
    tokenizer: Literal["bpe", "unigram", "char", "word"] = option(
        "bpe", "what a text is cut into", inherit=True
    )
    target_tokenizer: Literal["bpe", "unigram", "char", "word"] | None = option(
        None, "the same for the target; the source's if none", inherit=True
    )
    vocab_size: int = option(8000, "tokens a tokenizer may learn", ge=1, inherit=True)
    shared_vocab: bool = option(True, "one tokenizer for both languages", inherit=True)
    bpe_dropout: float = option(
        0.0, "merges of bpe forgotten at random in training (Provilkov et al. 2020)", ge=0, lt=1
    )
    nfkc: bool = option(
        False, "fold compatible characters into one, such as full-width letters", inherit=True
    )
    lowercase: bool = option(False, "all letters small", inherit=True)
    batch_tokens: int = option(4096, "tokens in a batch, counted as rows times the longest row", ge=1)
    # model
    model: Literal["recurrent", "transformer"] = option("recurrent", "which network")
    dim: Size = option(
        None, "size of a state, or of a position in the transformer; 256, transformer 512, if none", ge=1
    )
    num_layers: Size = option(
        None, "layers of the encoder and of the decoder; 1, transformer 6, if none", ge=1
    )
    dropout: float = option(0.2, "numbers forgotten at random in training", ge=0, lt=1)
    tie_embeddings: Literal["none", "output", "all"] = option(
        "none", "embeddings shared: target with output, or source too"
    )
    embed_dim: int | None = option(
        None, "recurrent: size of a word's vector; dim if none", ge=1, when=RECURRENT
    )
    encoder_hidden_dim: int | None = option(
        None, "recurrent: size of a state in one direction; half of dim if none", ge=1, when=RECURRENT
    )
    bidirectional: bool = option(
        True, "recurrent: read forwards and backwards, or forwards only", when=RECURRENT
    )
    cell_type: Literal["gru", "lstm"] = option("gru", "recurrent: kind of cell", when=RECURRENT)
    order: Literal["bahdanau", "luong"] = option(
        "bahdanau", "recurrent: look then step, or step then look", when=RECURRENT
    )
    input_feeding: bool = option(
        False, "recurrent, order=luong: hand on what was said to the next step", when=RECURRENT
    )
    attention_scope: Literal["global", "local-m", "local-p", "none"] = option(
        "global", "recurrent: how much of the source", when=RECURRENT
    )
    window_radius: int = option(4, "recurrent: how far local attention looks", ge=1, when=RECURRENT)
    score: str = option(
        "additive", "recurrent: how well a key answers; `regard mechanisms --kind score`", when=RECURRENT
    )
    normalize: str | None = option(
        None, "recurrent: how regard is shared; `regard mechanisms --kind normalizer`", when=RECURRENT
    )
    num_heads: int = option(8, "transformer: looks side by side", ge=1, when=TRANSFORMER)
    ffn_dim: int | None = option(
        None, "transformer: size inside the feed-forward network; 4 dim if none", ge=1, when=TRANSFORMER
    )
    norm: Literal["post", "pre"] = option(
        "post", "transformer: layer norm after each sublayer, or before it", when=TRANSFORMER
    )
    # loss
    label_smoothing: float = option(0.1, "label smoothing", ge=0, lt=1)
    entropy_bonus: float = option(0.01, "normalize=sample: reward for an open choice", ge=0)
    reward_discount: float = option(
        0.5, "normalize=sample: how much later words count for a look", ge=0, le=1
    )
    # writing
    beam_size: int = option(5, "translations kept side by side; 1 is greedy", ge=1)
    length_penalty: float = option(1.0, "above 0 prefers longer translations", ge=0)
    bleu_tokenizer: BleuTokenizer = option(
        "auto", "words for BLEU; auto: zh for Chinese, char for ja, ko, th and letters, else 13a"
    )

    def validate(self) -> None:
        """Check what involves several options."""
        if self.bpe_dropout and self.tokenizer != "bpe":
            raise self.option("bpe_dropout").error(self.bpe_dropout, "needs tokenizer=bpe")
        dim: int | None = self.dim  # None until `resolve`
        halved = self.model == "recurrent" and self.bidirectional and self.encoder_hidden_dim is None
        if halved and dim is not None and dim < 2:
            raise self.option("dim").error(
                dim, "must be at least 2, a half for each direction; or take bidirectional=off"
            )
        if self.model == "transformer" and dim is not None and dim % self.num_heads:
            raise self.option("dim").error(dim, f"must be a multiple of num_heads={self.num_heads}")
        self.refuse_unused("score", "normalize", "attention_scope")
        if self.tie_embeddings == "all" and not self.shared_vocab:
            raise self.option("tie_embeddings").error(
                "all", "needs shared_vocab=on, one vocabulary for both languages"
            )
        if self.tie_embeddings == "all" and self.model == "recurrent":
            raise self.option("tie_embeddings").error(
                "all", "needs model=transformer; a recurrent model takes tie_embeddings=output"
            )
        if self.shared_vocab and self.target_tokenizer not in (None, self.tokenizer):
            raise self.option("target_tokenizer").error(
                self.target_tokenizer,
                "needs shared_vocab=off; shared_vocab=on is one tokenizer for both languages",
            )
        if self.input_feeding and self.order != "luong":
            raise self.option("input_feeding").error(
                True, "needs order=luong; in Bahdanau's order every step has its context"
            )

    def resolve(self) -> TranslationConfig:
        """Sizes that were not given: a small recurrent network, or the Transformer as it was published."""
        given: dict[str, int | None] = {
            "dim": self.dim,
            "num_layers": self.num_layers,
            "ffn_dim": self.ffn_dim,
        }
        large = self.model == "transformer"
        dim = given["dim"] or (512 if large else 256)
        num_layers = given["num_layers"] or (6 if large else 1)
        ffn_dim = given["ffn_dim"] or (4 * dim if large else None)
        return self.replace(dim=dim, num_layers=num_layers, ffn_dim=ffn_dim)
