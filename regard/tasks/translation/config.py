"""The options of translation: of training, of search, of evaluation and of explanations, and its recipes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from regard.config import Config, option
from regard.tasks.registry import make_recipe
from regard.training.config import MONITOR_HELP, TrainingConfig

if TYPE_CHECKING:
    _Size = int  # None until `resolve`
    _Text = str
else:
    _Size, _Text = int | None, str | None

__all__ = [
    "CONFIG_CLASSES", "OPTION_CLASSES", "RECIPES", "BleuTokenizer", "EvaluateOptions", "ExplainOptions",
    "SearchOptions", "TokenizerType", "TranslateOptions", "TranslationConfig",
]  # fmt: skip

BleuTokenizer = Literal[
    "auto", "none", "13a", "intl", "zh", "char", "ja-mecab", "ko-mecab", "spm", "flores101", "flores200"
]
TokenizerType = Literal["bpe", "unigram", "char", "word"]
RNN, TRANSFORMER = {"model": "rnn"}, {"model": "transformer"}


@dataclass(frozen=True, kw_only=True)
class TranslationConfig(TrainingConfig):
    """Options of a translation model and its training.

    Example:
        >>> TranslationConfig(model="transformer").resolve().embed_dim
        512
    """

    monitor: str = option("loss", MONITOR_HELP, choices=("loss", "perplexity", "bleu", "chrf", "exact_match"))
    # data
    train_files: tuple[str, ...] = option((), "training files: source and target, or one .tsv or .jsonl", path=True)
    valid_files: tuple[str, ...] = option((), "validation files, which select the best weights", path=True)
    test_files: tuple[str, ...] = option((), "test files, the default of `regard evaluate`", path=True)
    columns: tuple[str, ...] = option(
        (), "columns of source and target in a .tsv, such as 0,1, or their keys in a .jsonl"
    )
    data_dir: str | None = option(
        None, "folder of a dataset; or download, for the recipes multi30k, multi30k-tok, tatoeba-* and g2p", path=True
    )
    language_pair: str | None = option(
        None, "source and target language, such as en-de; selects the files of a dataset and the BLEU tokenizer"
    )
    max_length: int = option(256, "maximum length of a sentence in tokens", ge=1)
    overflow: Literal["drop", "truncate", "error"] = option(
        "drop", "what to do with sentences longer than max_length; their number is printed"
    )
    streaming: bool = option(False, "read the training files in every epoch instead of holding them in memory")
    # tokens
    tokenizer: TokenizerType = option("bpe", "type of the tokenizer", inherit=True)
    target_tokenizer: TokenizerType | None = option(
        None, "type of the target tokenizer; auto: that of the source", inherit=True, auto=True
    )
    vocab_size: int = option(8000, "maximum size of a vocabulary", ge=1, inherit=True)
    shared_vocab: bool = option(True, "one tokenizer and one vocabulary for both languages", inherit=True)
    bpe_dropout: float = option(
        0.0, "probability of skipping a BPE merge in training (Provilkov et al. 2020)", ge=0, lt=1
    )
    nfkc: bool = option(
        False, "apply NFKC Unicode normalization, which turns full-width letters into ASCII", inherit=True
    )
    lowercase: bool = option(False, "convert all text to lower case", inherit=True)
    batch_tokens: int = option(
        4096, "tokens per batch, at most: number of sentences times length of the longest on either side", ge=1
    )
    batch_size: int | None = option(None, "sentence pairs per batch, in place of batch_tokens", ge=1)
    # model
    model: Literal["rnn", "transformer"] = option("rnn", "architecture of encoder and decoder")
    embed_dim: _Size = option(
        None,
        "size of token embeddings (transformer: and of hidden states); auto: hidden_dim (rnn), 512 (transformer)",
        ge=1,
        auto=True,
    )
    num_layers: _Size = option(
        None, "layers of the encoder and of the decoder; auto: 1 (rnn), 6 (transformer)", ge=1, auto=True
    )
    dropout: float = option(0.2, "dropout probability", ge=0, lt=1)
    tie_embeddings: Literal["none", "output", "all"] = option(
        "none", "share the target embeddings with the output layer (output), and with the source embeddings (all)"
    )
    score: _Text = option(
        None,
        "score function of cross-attention, from decoder to encoder; auto: additive (rnn), scaled-dot (transformer);"
        " `regard mechanisms --kind score` lists all",
        auto=True,
    )
    normalize: str | None = option(
        None,
        "function that turns scores of cross-attention into weights, such as softmax, sparsemax or sample (hard"
        " attention); auto: softmax, or kernel_sum for kernel values; `regard mechanisms --kind normalizer` lists all",
        auto=True,
    )
    hidden_dim: _Size = option(None, "size of the decoder's state; auto: 256", ge=1, when=RNN, auto=True)
    encoder_hidden_dim: int | None = option(
        None, "size of the encoder's state in one direction; auto: hidden_dim / 2", ge=1, when=RNN, auto=True
    )
    bidirectional: bool = option(True, "whether the encoder reads in both directions", when=RNN)
    cell_type: Literal["gru", "lstm"] = option("gru", "type of the recurrent cells", when=RNN)
    decoder_type: Literal["bahdanau", "luong"] = option(
        "bahdanau",
        "decoder of Bahdanau et al. (2015), attention before each recurrent step, or of Luong et al. (2015), after it",
        when=RNN,
    )
    input_feeding: bool = option(
        False, "feed the output of attention to the next step (Luong et al. 2015); needs decoder_type=luong", when=RNN
    )
    init_hidden: Literal["bridge", "last", "per-layer", "zero"] = option(
        "bridge",
        "start of the decoder: tanh of a linear layer over the encoder's final states (bridge), these states themselves"
        " in every layer (last), those of each encoder layer in the same decoder layer (per-layer), or zeros (zero)",
        when=RNN,
    )
    readout_type: Literal["maxout", "tanh", "linear"] | None = option(
        None,
        "input of the output layer: maxout of state, context and token (decoder_type=bahdanau only), tanh of a linear"
        " layer over state and context, or both as they are (linear); auto: maxout (bahdanau), tanh (luong)",
        when=RNN,
        auto=True,
    )
    attention_scope: Literal["global", "local-m", "local-p", "none"] = option(
        "global",
        "attention to the whole source (global), to a window of it (local-m, local-p: Luong et al. 2015), or none",
        when=RNN,
    )
    window_radius: int = option(4, "window radius for attention_scope=local-m and local-p", ge=1, when=RNN)
    num_heads: int = option(8, "attention heads", ge=1, when=TRANSFORMER)
    ffn_dim: int | None = option(
        None, "inner size of the feed-forward networks; auto: 4 x embed_dim", ge=1, when=TRANSFORMER, auto=True
    )
    norm_first: bool = option(
        False, "layer norm before each sublayer (pre-norm) instead of after it (post-norm)", when=TRANSFORMER
    )
    self_score: str | None = option(
        None, "score function of self-attention; auto: scaled-dot", when=TRANSFORMER, auto=True
    )
    self_normalize: str | None = option(
        None,
        "function that turns scores of self-attention into weights; auto: as for normalize",
        when=TRANSFORMER,
        auto=True,
    )
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "relative", "none"] = option(
        "sinusoidal",
        "position encoding, added to embeddings (sinusoidal, learned), in the score of self-attention"
        " (rotary, alibi, relative), or none",
        when=TRANSFORMER,
    )
    # loss
    label_smoothing: float = option(0.1, "label smoothing", ge=0, lt=1)
    entropy_bonus: float = option(
        0.01,
        "with normalize=sample, hard attention trained by REINFORCE: weight of the entropy of attention in the loss",
        ge=0,
    )
    reward_discount: float = option(
        0.5,
        "with normalize=sample: discount factor of the reward, which sums the log-probabilities of later tokens",
        ge=0,
        le=1,
    )
    # decoding
    beam_size: int = option(5, "beam size; 1 is greedy search", ge=1)
    length_penalty: float = option(
        1.0, "exponent of the length normalization in beam search; larger values prefer longer translations", ge=0
    )
    length_penalty_type: Literal["wu", "power"] = option(
        "wu", "formula of the length penalty: that of Wu et al. (2016), or a power of the length as in transformers"
    )
    bleu_tokenizer: BleuTokenizer = option(
        "auto",
        "tokenizer of BLEU; auto: zh if the target language of language_pair is Chinese, char if it is ja, ko or th,"
        " or if tokenizer=char, otherwise 13a",
    )

    def validate(self) -> None:
        """Check what involves several options."""
        if self.bpe_dropout and self.tokenizer != "bpe":
            raise self.error("bpe_dropout", "needs tokenizer=bpe")
        is_halved = self.model == "rnn" and self.bidirectional and self.encoder_hidden_dim is None
        if is_halved and self.hidden_dim == 1:
            raise self.error("hidden_dim", "must be at least 2, a half for each direction; or set bidirectional=off")
        if self.model == "transformer" and self.embed_dim and self.embed_dim % self.num_heads:
            raise self.error("embed_dim", f"must be a multiple of num_heads={self.num_heads}")
        self.refuse_unused(
            "attention_scope", "init_hidden", "readout_type", "self_score", "self_normalize", "positions"
        )
        if self.tie_embeddings == "all" and not self.shared_vocab:
            raise self.error("tie_embeddings", "needs shared_vocab=on, one vocabulary for both languages")
        if self.tie_embeddings == "all" and self.model == "rnn":
            raise self.error("tie_embeddings", "needs model=transformer; an RNN takes tie_embeddings=output")
        if self.shared_vocab and self.target_tokenizer not in (None, self.tokenizer):
            why = "needs shared_vocab=off; shared_vocab=on is one tokenizer for both languages"
            raise self.error("target_tokenizer", why)
        if self.readout_type == "maxout" and self.decoder_type == "luong":
            raise self.error("readout_type", "maxout needs decoder_type=bahdanau; with luong set tanh or linear")
        if self.readout_type == "linear" and self.tie_embeddings != "none":
            raise self.error("readout_type", "linear needs tie_embeddings=none: its vectors do not have embed_dim")
        num_directions, hidden_dim = 1 + self.bidirectional, self.hidden_dim or 256
        if self.model == "rnn" and self.init_hidden in ("last", "per-layer"):
            size = num_directions * (self.encoder_hidden_dim or hidden_dim // num_directions)
            if size != hidden_dim:
                why = f"{self.init_hidden} needs encoder states of size hidden_dim={hidden_dim}, but they have {size}"
                raise self.error("init_hidden", why)
        if self.input_feeding and self.decoder_type != "luong":
            why = "needs decoder_type=luong; with decoder_type=bahdanau the context is an input of the same step"
            raise self.error("input_feeding", why)

    def resolve(self) -> TranslationConfig:
        """The same with all sizes and scores: those of a small RNN, or of the Transformer as published."""
        is_transformer = self.model == "transformer"
        hidden_dim = self.hidden_dim or 256
        embed_dim = self.embed_dim or (512 if is_transformer else hidden_dim)
        return self.replace(
            hidden_dim=hidden_dim,
            embed_dim=embed_dim,
            num_layers=self.num_layers or (6 if is_transformer else 1),
            ffn_dim=self.ffn_dim or (4 * embed_dim if is_transformer else None),
            score=self.score or ("scaled-dot" if is_transformer else "additive"),
            self_score=self.self_score or ("scaled-dot" if is_transformer else None),
        )


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Config):
    """Options of the search; None: as in the config of the run."""

    beam_size: int | None = option(None, "beam size; 1 is greedy search", ge=1, le=1000)
    length_penalty: float | None = option(None, "values above 0 prefer longer translations", ge=0, le=10)
    coverage_penalty: float | None = option(
        None, "values above 0 prefer translations that attend to every source word", ge=0
    )


@dataclass(frozen=True, kw_only=True)
class TranslateOptions(SearchOptions):
    """Options of `Translator.predict`."""

    num_best: int = option(1, "number of translations of each text", ge=1, le=1000)
    sample: bool = option(False, "sample tokens instead of searching")
    temperature: float | None = option(
        None, "sampling: divides the logits; values below 1 prefer probable tokens", ge=0.001, le=1000
    )
    top_k: int | None = option(None, "sampling: only the k most probable tokens; 0: all", ge=0)
    top_p: float | None = option(
        None, "sampling: only the most probable tokens that have this probability together", ge=1e-6, le=1
    )
    seed: int | None = option(
        None, "sampling: seed of the random numbers; auto: a random one", ge=0, lt=1 << 63, auto=True
    )
    align: bool = option(False, "also return the alignment: the attention weights of the words")
    layer: int | None = option(
        None, "align: index of the layer, from 0; auto: all layers, shown as their mean", ge=0, auto=True
    )
    head: int | None = option(
        None, "align: index of the head, from 0; auto: all heads, shown as their mean", ge=0, auto=True
    )
    trace: bool = option(False, "also return the search: the candidates of each step")
    replace_unknown: bool = option(False, "replace unknown tokens by the source words that they attend to")

    def validate(self) -> None:
        """Check what involves several options."""
        for switch, names in (("sample", ("temperature", "top_k", "top_p", "seed")), ("align", ("layer", "head"))):
            for name in names:
                if not getattr(self, switch) and getattr(self, name) is not None:
                    raise self.error(name, f"needs {switch}=on")
        for name in ("beam_size", "coverage_penalty", "trace"):
            if self.sample and getattr(self, name):
                raise self.error(name, "sample=on does not search")


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(SearchOptions):
    """Options of `Translator.evaluate`."""

    bleu_tokenizer: BleuTokenizer | None = option(None, "tokenizer of BLEU; none: that of the run")
    gold_alignments: str | None = option(
        None,
        "file of gold alignments, to measure every head: source, target and links (0-0 1?2) with tabs between them",
        path=True,
    )


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(SearchOptions):
    """Options of `Translator.explain`."""

    target: str | None = option(None, "explain this translation instead of the result of a search")
    token_ids: tuple[int, ...] = option((), "explain the translation of these tokens instead of the result of a search")
    self_attention: bool = option(False, "also the self-attention of a Transformer; takes three times as long")
    layer: int | None = option(None, "index of the layer, from 0; auto: the mean of all", ge=0, auto=True)
    head: int | None = option(None, "index of the head, from 0; auto: the mean of all", ge=0, auto=True)
    heads: bool = option(False, "show every layer and head separately")
    words: bool = option(True, "show whole words (on) or the tokens of the model (off)")
    faithfulness: bool = option(True, "measure how much the translation depends on the weights")

    def validate(self) -> None:
        """Check what involves several options."""
        if self.token_ids and (self.target is not None or min(self.token_ids) < 0):
            raise self.error("token_ids", "must be 0 or more, and needs no target")
        if self.heads and (self.layer is not None or self.head is not None):
            raise self.error("heads", "cannot be combined with layer or head, because it shows all")


CONFIG_CLASSES = {"translation": TranslationConfig}
OPTION_CLASSES = {"translation": {"predict": TranslateOptions, "evaluate": EvaluateOptions, "explain": ExplainOptions}}

TEXTS = "monitor=bleu average_last=5 beam_size=5"
CHARACTERS = "monitor=exact_match tokenizer=char shared_vocab=off beam_size=1 label_smoothing=0"
SYLLABLES = f"{CHARACTERS} target_tokenizer=word hidden_dim=256 embed_dim=128"
PERIODS = "validate_every=250 save_every=250 schedule=cosine"
TRANSFORMER_TINY = (
    "model=transformer embed_dim=128 hidden_dim=128 num_layers=4 num_heads=4 ffn_dim=256 dropout=0.3"
    " tie_embeddings=all vocab_size=10000 lr=5e-3 warmup_steps=2000 label_smoothing=0.1 language_pair=en-de"
)

_recipe = partial(make_recipe, "translation", TranslationConfig, "regard.tasks.translation.data")
RECIPES = (
    _recipe(
        "dates",
        "Dates in many languages to ISO 8601; generated.",
        f"{CHARACTERS} {PERIODS} hidden_dim=128 embed_dim=64 steps=1000 lr=4e-3 warmup_steps=100",
    ),
    _recipe(
        "reverse",
        "Reversed strings: a task of seconds.",
        f"{CHARACTERS} max_length=8 batch_tokens=512 hidden_dim=64 embed_dim=32 steps=300 lr=1e-2 warmup_steps=50"
        " schedule=cosine",
    ),
    _recipe(
        "pinyin",
        "Chinese phrases to their syllables; the phrases come with pypinyin.",
        f"{SYLLABLES} {PERIODS} steps=1500 lr=3e-3 warmup_steps=200",
    ),
    _recipe(
        "g2p",
        "Spelling to pronunciation (SIGMORPHON 2021); language_pair is the language, such as eng_us.",
        f"{SYLLABLES} language_pair=eng_us",
    ),
    _recipe(
        "multi30k",
        "Image captions in English, German and French (raw text).",
        # With the published lr=5e-3, attention to the source may begin only after thousands of steps.
        f"{TEXTS} {TRANSFORMER_TINY} lr=2.5e-3",
    ),
    _recipe(
        "multi30k-tok",
        "The same lowercased and tokenized, the form in which results are published.",
        f"{TEXTS} {TRANSFORMER_TINY} bleu_tokenizer=none",
    ),
    _recipe(
        "tatoeba-zh-en",
        "Everyday Chinese sentences to English; language_pair=en-zh for the other direction.",
        f"{TEXTS} language_pair=zh-en shared_vocab=off",
    ),
    _recipe(
        "tatoeba-fr-en",
        "Everyday French sentences to English; language_pair=en-fr for the other direction.",
        f"{TEXTS} language_pair=fr-en",
    ),
    _recipe(
        "hansards",
        "English and French, evaluated with the gold alignments of the Hansards (alignment error rate).",
        f"{TEXTS} language_pair=en-fr lowercase=on hidden_dim=256 embed_dim=256 average_last=0 length_penalty=0.6",
    ),
    _recipe("translation", "Your own files: --train a.en a.de --valid b.en b.de.", TEXTS, reads_files=True),
)
