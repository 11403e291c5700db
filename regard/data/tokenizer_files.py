"""A tokenizer of regard as the tokenizer.json of Hugging Face's `tokenizers`, with the same tokens and ids."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

from regard.data.pretrained_tokenizer import PretrainedTokenizer
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import BOS_ID, EOS_ID, SPECIAL_TOKENS, WORD_MARK, subword_pattern
from regard.errors import UnsupportedError
from regard.files import write_atomic, write_json

__all__ = ["build_hub_tokenizer", "save_hub_tokenizer"]

Frame = Literal["source", "prefix"]  # "text </s>" of an encoder, "<s> text" of a decoder


def build_hub_tokenizer(tokenizer: Tokenizer, frame: Frame) -> Any:
    """The same tokenizer as a `tokenizers.Tokenizer`.

    Args:
        tokenizer: trained by regard
        frame: what the special tokens around a text are: "source" is `text </s>`, "prefix" is `<s> text`

    Example:
        >>> ours = Tokenizer.train(["low lower lowest", "new newer newest"], "bpe", 30)
        >>> hub = build_hub_tokenizer(ours, "source")
        >>> hub.encode("newest low").ids == [*ours.encode("newest low"), EOS_ID]
        True
        >>> hub.decode(hub.encode("newest low").ids)
        'newest low'
    """
    from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors
    from tokenizers import Tokenizer as HubTokenizer

    if isinstance(tokenizer, PretrainedTokenizer):
        raise UnsupportedError("the tokenizer of a checkpoint is in its own folder; copy it from there")
    kind = tokenizer.model_type
    hub = HubTokenizer(tokenizer.vocabulary.build_model(kind))
    steps: list[Any] = [normalizers.NFKC()] if tokenizer.nfkc else []
    steps += [normalizers.Lowercase()] if tokenizer.lowercase else []
    if kind == "char":
        hub.pre_tokenizer, hub.decoder = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), decoders.Fuse()
    else:
        spaces = "".join(chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace())
        steps += [normalizers.Replace(WORD_MARK, "_"), normalizers.Replace(Regex(f"[{spaces}]+"), " ")]
        steps += [normalizers.Strip(), normalizers.Prepend(WORD_MARK), normalizers.Replace(" ", WORD_MARK)]
        pattern = f"{WORD_MARK}[^{WORD_MARK}]*" if kind == "word" else subword_pattern().pattern
        hub.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
        hub.decoder = decoders.Sequence([decoders.Replace(WORD_MARK, " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    hub.normalizer = normalizers.Sequence(steps)
    hub.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    bos, eos = SPECIAL_TOKENS[BOS_ID], SPECIAL_TOKENS[EOS_ID]
    template, special = (f"$A {eos}", (eos, EOS_ID)) if frame == "source" else (f"{bos} $A", (bos, BOS_ID))
    hub.post_processor = processors.TemplateProcessing(single=template, special_tokens=[special])
    hub.encode_special_tokens = True  # text that looks like a special token is text
    return hub


def save_hub_tokenizer(tokenizer: Tokenizer, folder: Path, frame: Frame, max_length: int) -> None:
    """Write tokenizer.json and tokenizer_config.json, which `transformers.AutoTokenizer` loads.

    Args:
        tokenizer: trained by regard
        folder: an existing folder
        frame: as in `build_hub_tokenizer`
        max_length: of a text in tokens, with special ones

    Example:
        save_hub_tokenizer(regard.load("runs/en-de").source, Path("en-de"), "source", 256)
    """
    content = build_hub_tokenizer(tokenizer, frame).to_str(pretty=False)
    write_atomic(folder / "tokenizer.json", (content + "\n").encode())
    names = ("pad_token", "unk_token", "bos_token", "eos_token")
    settings: dict[str, Any] = dict(zip(names, SPECIAL_TOKENS, strict=True))
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_length}
    settings |= {"split_special_tokens": True, "clean_up_tokenization_spaces": False}
    write_json(folder / "tokenizer_config.json", settings | {"model_input_names": ["input_ids", "attention_mask"]})
