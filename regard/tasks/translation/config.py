"""What a translation can be told: one closed set of typed settings for all of its recipes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from regard.config import Config, option
from regard.tasks.registry import Recipe
from regard.training.config import MONITOR_HELP, TrainingConfig

if TYPE_CHECKING:
    from regard.decoding import DecodingConfig
    from regard.tasks.translation.predictor import Translator

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
    train_files: tuple[str, ...] = option((), "files to train on: source and target, or one .tsv or .jsonl", path=True)
    valid_files: tuple[str, ...] = option((), "files to choose the best weights by", path=True)
    test_files: tuple[str, ...] = option((), "files that `regard evaluate` takes if it is given none", path=True)
    columns: tuple[str, ...] = option((), "columns of a .tsv (0,1) or keys of a .jsonl (source,target)")
    data_dir: str | None = option(
        None, "folder with the recipe's data; download: fetch it (multi30k, multi30k-tok, tatoeba-*, g2p)", path=True
    )
    language_pair: str | None = option(None, "languages of the recipe's data, such as en-de; the second is written")
    max_length: int = option(256, "longest sentence in tokens", ge=1)
    overflow: Literal["drop", "truncate", "error"] = option("drop", "what to do with a longer one; it is counted")
    streaming: bool = option(False, "read the training files again and again instead of holding them in memory")
    # tokens
    tokenizer: Literal["bpe", "unigram", "char", "word"] = option("bpe", "what a text is cut into", inherit=True)
    target_tokenizer: Literal["bpe", "unigram", "char", "word"] | None = option(
        None, "the same for the target; the source's if none", inherit=True
    )
    vocab_size: int = option(8000, "tokens a tokenizer may learn", ge=1, inherit=True)
    shared_vocab: bool = option(True, "one tokenizer for both languages", inherit=True)
    bpe_dropout: float = option(
        0.0, "merges of bpe forgotten at random in training (Provilkov et al. 2020)", ge=0, lt=1
    )
    nfkc: bool = option(False, "fold compatible characters into one, such as full-width letters", inherit=True)
    lowercase: bool = option(False, "all letters small", inherit=True)
    batch_tokens: int = option(4096, "tokens in a batch, counted as rows times the longest row", ge=1)
    # model
    model: Literal["recurrent", "transformer"] = option("recurrent", "which network")
    dim: Size = option(
        None, "size of a state, or of a position in the transformer; 256, transformer 512, if none", ge=1
    )
    num_layers: Size = option(None, "layers of the encoder and of the decoder; 1, transformer 6, if none", ge=1)
    dropout: float = option(0.2, "numbers forgotten at random in training", ge=0, lt=1)
    tie_embeddings: Literal["none", "output", "all"] = option(
        "none", "embeddings shared: target with output, or source too"
    )
    embed_dim: int | None = option(None, "recurrent: size of a word's vector; dim if none", ge=1, when=RECURRENT)
    encoder_hidden_dim: int | None = option(
        None, "recurrent: size of a state in one direction; half of dim if none", ge=1, when=RECURRENT
    )
    bidirectional: bool = option(True, "recurrent: read forwards and backwards, or forwards only", when=RECURRENT)
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
    reward_discount: float = option(0.5, "normalize=sample: how much later words count for a look", ge=0, le=1)
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
            raise self.option("tie_embeddings").error("all", "needs shared_vocab=on, one vocabulary for both languages")
        if self.tie_embeddings == "all" and self.model == "recurrent":
            raise self.option("tie_embeddings").error(
                "all", "needs model=transformer; a recurrent model takes tie_embeddings=output"
            )
        if self.shared_vocab and self.target_tokenizer not in (None, self.tokenizer):
            raise self.option("target_tokenizer").error(
                self.target_tokenizer, "needs shared_vocab=off; shared_vocab=on is one tokenizer for both languages"
            )
        if self.input_feeding and self.order != "luong":
            raise self.option("input_feeding").error(
                True, "needs order=luong; in Bahdanau's order every step has its context"
            )

    def resolve(self) -> TranslationConfig:
        """Sizes that were not given: a small recurrent network, or the Transformer as it was published."""
        given: dict[str, int | None] = {"dim": self.dim, "num_layers": self.num_layers, "ffn_dim": self.ffn_dim}
        large = self.model == "transformer"
        dim = given["dim"] or (512 if large else 256)
        num_layers = given["num_layers"] or (6 if large else 1)
        ffn_dim = given["ffn_dim"] or (4 * dim if large else None)
        return self.replace(dim=dim, num_layers=num_layers, ffn_dim=ffn_dim)


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Config):
    """How to search a translation; None: as in the config of the run."""

    beam_size: int | None = option(None, "hypotheses kept side by side; 1 is greedy", ge=1, le=1000)
    length_penalty: float | None = option(None, "above 0 prefers longer translations", ge=0, le=10)
    coverage_penalty: float | None = option(None, "above 0 prefers translations that attend to every word", ge=0)

    def num_candidates(self, beam_size: int) -> int:
        """Hypotheses that are kept side by side; `beam_size` is that of the run."""
        return self.beam_size or beam_size

    def decoding_config(self, translator: Translator) -> DecodingConfig:
        """The options of the search for a translator."""
        return self._beam_search(translator, self.beam_size or translator.config.beam_size)

    def _beam_search(self, translator: Translator, beam_size: int, num_best: int = 1) -> DecodingConfig:
        if self.coverage_penalty and beam_size == 1:
            raise self.option("coverage_penalty").error(self.coverage_penalty, "needs beam_size=2 or more")
        return translator.decoding_config(
            beam_size=beam_size,
            num_best=num_best,
            length_penalty=self.length_penalty,
            coverage_penalty=self.coverage_penalty,
        )


@dataclass(frozen=True, kw_only=True)
class TranslateOptions(SearchOptions):
    """Options of `Translator.predict`."""

    num_best: int = option(1, "translations of each text", ge=1, le=1000)
    sample: bool = option(False, "sample instead of searching")
    temperature: float | None = option(None, "of sampling: below 1 safer, above 1 more varied", ge=0.001, le=1000)
    top_k: int | None = option(None, "of sampling: only the most probable tokens; 0: all", ge=0)
    top_p: float | None = option(None, "of sampling: only tokens with this probability together", ge=1e-6, le=1)
    seed: int | None = option(None, "of sampling: the same seed gives the same translation", ge=0, lt=1 << 63)
    align: bool = option(False, "also return the alignment: the attention weights of the words")
    layer: int | None = option(None, "align: this layer, counted from 0; none: all, drawn as their mean", ge=0)
    head: int | None = option(None, "align: this head, counted from 0; none: all, drawn as their mean", ge=0)
    trace: bool = option(False, "also return the search: the candidates of each step")
    replace_unknown: bool = option(False, "replace unknown words by the source words that they attend to")

    def validate(self) -> None:
        """Check what involves several options."""
        for name in ("temperature", "top_k", "top_p", "seed"):
            if not self.sample and getattr(self, name) is not None:
                raise self.option(name).error(getattr(self, name), "needs sample=on")
        for name in ("layer", "head"):
            if not self.align and getattr(self, name) is not None:
                raise self.option(name).error(getattr(self, name), "needs align=on")
        for name in ("beam_size", "coverage_penalty", "trace"):
            if self.sample and getattr(self, name):
                raise self.option(name).error(getattr(self, name), "needs a beam search; leave sample out")

    def num_candidates(self, beam_size: int) -> int:
        """Hypotheses that are kept side by side; `beam_size` is that of the run."""
        return self.num_best if self.sample else max(self.num_best, self.beam_size or beam_size)

    def decoding_config(self, translator: Translator) -> DecodingConfig:
        """The options of the search for a translator."""
        if self.sample:
            return translator.decoding_config(
                method="sample",
                num_best=self.num_best,
                length_penalty=self.length_penalty,
                temperature=self.temperature,
                top_k=self.top_k,
                top_p=self.top_p,
            )
        beam_size = self.beam_size or max(translator.config.beam_size, self.num_best)
        return self._beam_search(translator, beam_size, self.num_best)

    def make_generator(self, device: Any) -> Any:
        """The random numbers of sampling; None for a search."""
        import torch

        if not self.sample:
            return None
        generator = torch.Generator(device)
        if self.seed is None:
            generator.seed()
            return generator
        return generator.manual_seed(self.seed)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(SearchOptions):
    """Options of `Translator.evaluate`."""

    bleu_tokenizer: BleuTokenizer | None = option(None, "tokenizer of BLEU; none: as in the config of the run")
    gold_alignments: str | None = option(
        None,
        "alignment error rate of every head on this file: source, target and links (0-0 1?2), with tabs",
        path=True,
    )


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(SearchOptions):
    """Options of `Translator.explain`."""

    target: str | None = option(None, "explain this translation instead of searching one")
    token_ids: tuple[int, ...] = option((), "explain the translation of these tokens instead of searching one")
    self_attention: bool = option(False, "also the self-attention of a Transformer; takes three times as long")
    layer: int | None = option(None, "this layer, counted from 0; None: the mean", ge=0)
    head: int | None = option(None, "this head, counted from 0; None: the mean", ge=0)
    heads: bool = option(False, "every layer and head, side by side")
    words: bool = option(True, "whole words, or the tokens of the model")
    faithfulness: bool = option(True, "measure how much the translation depends on the weights")

    def validate(self) -> None:
        """Check what involves several options."""
        if self.token_ids and (self.target is not None or min(self.token_ids) < 0):
            raise self.option("token_ids").error(self.token_ids, "must be 0 or more, and needs no target")
        if self.heads and (self.layer is not None or self.head is not None):
            raise self.option("heads").error(True, "shows all of them; leave layer and head out")


CONFIG_CLASSES = {"translation": TranslationConfig}
OPTION_CLASSES: dict[str, dict[str, type[Config]]] = {
    "translation": {"predict": TranslateOptions, "evaluate": EvaluateOptions, "explain": ExplainOptions}
}

TEXT_DEFAULTS = {"monitor": "bleu", "average_last": 5, "beam_size": 5}
CHARACTER_DEFAULTS = {
    "monitor": "exact",
    "tokenizer": "char",
    "shared_vocab": False,
    "beam_size": 1,
    "label_smoothing": 0.0,
}
TRANSFORMER_TINY = {
    "model": "transformer",
    "dim": 128,
    "num_layers": 4,
    "num_heads": 4,
    "ffn_dim": 256,
    "dropout": 0.3,
    "tie_embeddings": "all",
    "vocab_size": 10_000,
    "lr": 5e-3,
    "warmup_steps": 2000,
    "label_smoothing": 0.1,
}
RECIPES = (
    Recipe(
        "dates",
        "translation",
        "regard.tasks.translation.data:dates",
        "Dates in many languages to ISO 8601; generated.",
        "把多种语言书写的日期转成 ISO 8601；数据即时生成。",
        {
            **CHARACTER_DEFAULTS,
            "dim": 128,
            "embed_dim": 64,
            "steps": 1000,
            "validate_every": 250,
            "save_every": 250,
            "lr": 4e-3,
            "warmup_steps": 100,
            "schedule": "cosine",
        },
    ),
    Recipe(
        "reverse",
        "translation",
        "regard.tasks.translation.data:reverse",
        "Reversed strings: a task of seconds.",
        "字符串反转：几秒钟就能学会的任务。",
        {
            **CHARACTER_DEFAULTS,
            "max_length": 8,
            "batch_tokens": 512,
            "dim": 64,
            "embed_dim": 32,
            "steps": 300,
            "lr": 1e-2,
            "warmup_steps": 50,
            "schedule": "cosine",
        },
    ),
    Recipe(
        "pinyin",
        "translation",
        "regard.tasks.translation.data:pinyin",
        "Chinese phrases to their syllables; the phrases come with pypinyin.",
        "汉语短语转成拼音；短语来自 pypinyin 自带的数据。",
        {
            **CHARACTER_DEFAULTS,
            "target_tokenizer": "word",
            "dim": 256,
            "embed_dim": 128,
            "steps": 1500,
            "validate_every": 250,
            "save_every": 250,
            "lr": 3e-3,
            "warmup_steps": 200,
            "schedule": "cosine",
        },
    ),
    Recipe(
        "g2p",
        "translation",
        "regard.tasks.translation.data:g2p",
        "Spelling to pronunciation (SIGMORPHON 2021); language_pair is the language, such as eng_us.",
        "由拼写预测读音（SIGMORPHON 2021）；language_pair 是语言，例如 eng_us。",
        {**CHARACTER_DEFAULTS, "target_tokenizer": "word", "language_pair": "eng_us", "dim": 256, "embed_dim": 128},
    ),
    Recipe(
        "multi30k",
        "translation",
        "regard.tasks.translation.data:multi30k",
        "Image captions in English, German and French (raw text).",
        "图片说明的翻译：英语、德语、法语（原始文本）。",
        # with the published 5e-3, attention to the source may begin only after thousands of steps
        {**TEXT_DEFAULTS, **TRANSFORMER_TINY, "lr": 2.5e-3, "language_pair": "en-de"},
    ),
    Recipe(
        "multi30k-tok",
        "translation",
        "regard.tasks.translation.data:multi30k_tok",
        "The same lowercased and tokenized, the form in which results are published.",
        "同上，但用论文报告结果时的形式：小写、已分词。",
        {**TEXT_DEFAULTS, **TRANSFORMER_TINY, "language_pair": "en-de", "bleu_tokenizer": "none"},
    ),
    Recipe(
        "tatoeba-zh-en",
        "translation",
        "regard.tasks.translation.data:tatoeba_zh_en",
        "Everyday Chinese sentences to English; language_pair=en-zh for the other direction.",
        "日常汉语句子译成英语；language_pair=en-zh 则反过来。",
        {**TEXT_DEFAULTS, "language_pair": "zh-en", "shared_vocab": False},
    ),
    Recipe(
        "tatoeba-fr-en",
        "translation",
        "regard.tasks.translation.data:tatoeba_fr_en",
        "Everyday French sentences to English; language_pair=en-fr for the other direction.",
        "日常法语句子译成英语；language_pair=en-fr 则反过来。",
        {**TEXT_DEFAULTS, "language_pair": "fr-en"},
    ),
    Recipe(
        "hansards",
        "translation",
        "regard.tasks.translation.data:hansards",
        "English and French, evaluated with the gold alignments of the Hansards (alignment error rate).",
        "英法双语，用 Hansards 的人工词对齐评判（对齐错误率）。",
        {
            **TEXT_DEFAULTS,
            "language_pair": "en-fr",
            "lowercase": True,
            "dim": 256,
            "average_last": 0,
            "length_penalty": 0.6,
        },
    ),
    Recipe(
        "translation",
        "translation",
        "regard.tasks.translation.data:from_files",
        "Your own files: --train a.en a.de --valid b.en b.de.",
        "你自己的文本：--train a.en a.de --valid b.en b.de。",
        TEXT_DEFAULTS,
        reads_files=True,
    ),
)
