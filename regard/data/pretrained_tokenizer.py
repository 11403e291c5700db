"""Tokenizers of Hugging Face checkpoints, with the ids of regard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data.sentencepiece import read_sentencepiece
from regard.data.tokenizer import FORMAT_VERSION, Tokenizer
from regard.data.vocabulary import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS, UNK_ID, WORD_MARK, Vocabulary
from regard.errors import DataError, UnsupportedError
from regard.files import read_file, read_json

__all__ = ["PretrainedTokenizer", "load_marian", "order_ids", "read_definition", "read_marian_vocabulary"]

MAX_BYTES = 256 << 20  # of a tokenizer.json
SPECIAL_IDS = (PAD_ID, UNK_ID, BOS_ID, EOS_ID)
BYTE_MARK, PIECE_MARK = "Ġ", "##"  # of GPT-2's tokens that begin with a space, of BERT's that continue a word


class PretrainedTokenizer(Tokenizer):
    """A tokenizer that `tokenizers` defines; ids 0 to 3 are padding, unknown, begin and end of sequence, as everywhere.

    Text that looks like a special token is encoded as text, except for language codes (>>deu<<) at its beginning.

    Args:
        definition: the JSON of a `tokenizers.Tokenizer`
        raw_tokens: its tokens, in the order of the ids of regard

    Example:
        >>> from tokenizers import Tokenizer as HubTokenizer, models, pre_tokenizers
        >>> hub = HubTokenizer(models.WordPiece({"[UNK]": 0, "sun": 1, "##ny": 2}, unk_token="[UNK]"))
        >>> hub.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        >>> raw = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "sun", "##ny"]
        >>> tokenizer = PretrainedTokenizer(hub.to_str(), raw)
        >>> tokenizer.encode("sunny sun"), tokenizer.convert_ids_to_tokens([4, 5])
        ([4, 5, 4], ['▁sun', 'ny'])
    """

    def __init__(self, definition: str, raw_tokens: Sequence[str]):
        from tokenizers import Tokenizer as HubTokenizer

        self.definition, self.raw_tokens = definition, list(raw_tokens)
        self._hub = HubTokenizer.from_str(definition)
        self._hub.encode_special_tokens = True
        self._hub.no_padding()
        self._hub.no_truncation()
        self._ids = {token: index for index, token in reversed(list(enumerate(self.raw_tokens)))}
        self.model_type, self.nfkc, self.lowercase = "pretrained", False, False
        self.vocabulary = Vocabulary(_display(self.raw_tokens, type(self._hub.model).__name__), [], [])
        codes = (token for token in self.raw_tokens if token.startswith(">>") and token.endswith("<<"))
        self._codes = frozenset(codes)

    def encode(self, text: str) -> list[int]:
        """Encode a text, without special tokens."""
        code, text = self._split_code(text)
        return [*code, *(self._ids.get(token, UNK_ID) for token in self._encode(text).tokens)]

    def decode(self, ids: Sequence[int], replacements: Mapping[int, str] | None = None) -> str:
        """Decode token ids to text, without special tokens."""
        if replacements or self._hub.decoder is None:
            return super().decode(ids, replacements)
        self.convert_ids_to_tokens(ids)  # checks the ids
        return self._hub.decoder.decode([self.raw_tokens[i] for i in ids if i not in (PAD_ID, BOS_ID, EOS_ID)]).strip()

    def surface_forms(self, text: str) -> list[str]:
        """The text of each token of `encode(text)`."""
        code, rest = self._split_code(text)
        # The text of a token may begin with the space before it; that of a part of a character is empty.
        forms = [rest[start:end].strip() for start, end in self._encode(rest).offsets]
        return [*(self.raw_tokens[one] for one in code), *forms]

    def encode_with_dropout(self, text: str, dropout: float, rng: Any) -> list[int]:
        """Only without dropout."""
        if dropout:
            raise UnsupportedError("the tokenizer of a checkpoint has no BPE-dropout; set bpe_dropout=0")
        return self.encode(text)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> PretrainedTokenizer:
        """The tokenizer that `save` wrote.

        Args:
            saved: the contents of its file
        """
        return cls(saved["definition"], saved["raw_tokens"])

    def _as_dict(self) -> dict[str, Any]:
        values = {"definition": self.definition, "raw_tokens": self.raw_tokens}
        return {"format": FORMAT_VERSION, "model_type": self.model_type} | values

    def _encode(self, text: str) -> Any:
        return self._hub.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False)

    def _split_code(self, text: str) -> tuple[list[int], str]:
        """The language code at the beginning of a text, and the rest."""
        if text.startswith(">>") and (end := text.find("<<")) > 0:
            return [self._ids.get(text[: end + 2], UNK_ID)], text[end + 2 :]
        return [], text


def _display(raw_tokens: Sequence[str], model: str) -> list[str]:
    """The tokens with ▁ before those that begin a word, special ones as everywhere; each is unique."""
    tokens, unique = list[str](), set(SPECIAL_TOKENS)
    for index, raw in enumerate(raw_tokens):
        token = raw
        if index in SPECIAL_IDS:
            tokens.append(SPECIAL_TOKENS[index])
            continue
        if model == "WordPiece" and not (raw.startswith("[") and raw.endswith("]")):
            token = raw.removeprefix(PIECE_MARK) if raw.startswith(PIECE_MARK) else WORD_MARK + raw
        elif model == "BPE":
            token = _decode_bytes(raw)
        tokens.append(f"{token}<{index}>" if token in unique else token)
        unique.add(tokens[-1])
    return tokens


def _decode_bytes(raw: str) -> str:
    """The text of a byte-level token, such as Ġun; a token with a part of a character stays as it is."""
    from tokenizers.decoders import ByteLevel

    text = ByteLevel().decode([raw])
    if "\N{REPLACEMENT CHARACTER}" in text or not text:
        return raw
    return WORD_MARK + text[1:] if text.startswith(" ") else text


def order_ids(count: int, pad: int, unk: int, bos: int, eos: int) -> list[int]:
    """The ids of a checkpoint in the order of regard: special tokens first, then the others as they are.

    Args:
        count: size of the vocabulary of the checkpoint
        pad, unk, bos, eos: ids of the special tokens; `bos` begins what a decoder writes, and may be another one too

    Example:
        >>> order_ids(6, pad=5, unk=1, bos=5, eos=0)
        [5, 1, 5, 0, 2, 3, 4]
    """
    special = (pad, unk, bos, eos)
    if not all(0 <= one < count for one in special):
        raise DataError(f"the ids {special} of special tokens are outside of the vocabulary of {count:,} tokens")
    return [*special, *(one for one in range(count) if one not in special)]


def read_definition(folder: Path) -> str:
    """The tokenizer of a checkpoint, as the JSON that `tokenizers` reads.

    From tokenizer.json, or from BERT's vocab.txt.

    Args:
        folder: of the checkpoint

    Example:
        PretrainedTokenizer(read_definition(Path("bert-base-chinese")), raw_tokens)
    """
    if (path := folder / "tokenizer.json").is_file():
        return read_file(path, MAX_BYTES).decode()
    if (path := folder / "vocab.txt").is_file():
        return _read_word_pieces(path)
    raise DataError(
        f"{folder} has no tokenizer.json and no vocab.txt; write one with transformers:"
        " AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
    )


def _read_word_pieces(path: Path) -> str:
    """BERT's tokenizer: words are split at spaces, punctuation and Chinese characters, and then into word pieces."""
    from tokenizers import Tokenizer as HubTokenizer
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    settings: dict[str, Any] = {}
    if (config := path.parent / "tokenizer_config.json").is_file():
        settings = read_json(config)
    tokens = path.read_text(encoding="utf-8").splitlines()
    unknown = str(settings.get("unk_token", "[UNK]"))
    hub = HubTokenizer(models.WordPiece({token: index for index, token in enumerate(tokens)}, unk_token=unknown))
    lowercase = bool(settings.get("do_lower_case", True))
    hub.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase,
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
    )
    hub.pre_tokenizer, hub.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    return hub.to_str()


def read_marian_vocabulary(folder: Path, name: str, size: int) -> list[str]:
    """The tokens of Marian's vocab.json by id; rows of the embeddings without a token have a number as their name.

    Args:
        folder: of the checkpoint
        name: of the file
        size: number of rows of the embeddings

    Example:
        read_marian_vocabulary(Path("opus-mt-en-de"), "vocab.json", 58101)[0]  # "</s>"
    """
    try:
        ids = read_json(folder / name)
        tokens = [f"<{index}>" for index in range(size)]
        for token, index in ids.items():
            tokens[index] = token
    except FileNotFoundError:
        raise DataError(f"{folder / name} is missing; copy the whole folder of the model.") from None
    except (ValueError, TypeError, IndexError) as error:
        raise DataError(f"{folder / name} does not fit config.json ({type(error).__name__}); copy it again.") from None
    return tokens


def load_marian(folder: Path, spm_name: str, tokens: Sequence[str], order: Sequence[int]) -> PretrainedTokenizer:
    """The tokenizer of one language of a Marian model.

    Args:
        folder: of the checkpoint
        spm_name: of the SentencePiece model
        tokens: by the ids of the checkpoint
        order: these ids in the order of regard

    Example:
        load_marian(folder, "source.spm", tokens, order_ids(len(tokens), pad, unk, bos, eos)).encode("A dog runs.")
    """
    return PretrainedTokenizer(read_sentencepiece(folder / spm_name), [tokens[index] for index in order])
