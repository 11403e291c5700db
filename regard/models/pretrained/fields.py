"""The fields of a config.json: each is read, known to have no effect on the computation, or refused."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from regard.errors import UnsupportedError

__all__ = ["HF_ACTIVATIONS", "ConfigFields"]

MAX_SIZE = 2**31 - 1  # of one axis
HF_ACTIVATIONS = {
    "relu": "relu", "gelu": "gelu", "gelu_python": "gelu", "silu": "silu", "swish": "silu", "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
}  # fmt: skip

# Training, output, generation, and names: none changes the logits of a model in eval mode.
HARMLESS = (
    *(
        "_*",
        "*dropout*",
        "*_pdrop",
        "*layerdrop*",
        "init_std",
        "initializer_*",
        "output_*",
        "summary_*",
        "return_dict*",
    ),
    *("architectures", "model_type", "transformers_version", "torch_dtype", "dtype", "use_cache", "gradient_*"),
    *("id2label", "label2id", "num_labels", "problem_type", "task_specific_params", "finetuning_task", "prefix"),
    *("tokenizer_class", "*_token_id", "bad_words_ids", "forced_*", "force_bos_token_to_be_generated"),
    *(
        "max_length",
        "min_length",
        "num_beams*",
        "early_stopping",
        "length_penalty",
        "no_repeat_ngram_size",
        "do_sample",
    ),
    *("temperature", "top_k", "top_p", "repetition_penalty", "diversity_penalty", "num_return_sequences"),
    *(
        "decoder_start_token_id",
        "language",
        "extra_pos_embeddings",
        "n_ctx",
        "n_positions",
        "license",
        "pretrained_config",
    ),
    *("is_encoder_decoder", "name_or_path", "torchscript", "chunk_size_feed_forward", "classif*", "max_window_layers"),
)


class ConfigFields:
    """Reads the fields of a config.json; `check_rest` refuses those that nobody read and that are not harmless.

    A field that is false, empty or null switches nothing on, so it needs no reader.

    Args:
        values: the fields
        path: the file, for messages

    Example:
        >>> fields = ConfigFields({"d_model": 8, "dropout": 0.1, "flux": True}, "config.json")
        >>> fields.get("d_model", 512)
        8
        >>> fields.check_rest()
        Traceback (most recent call last):
        regard.errors.UnsupportedError: config.json has the field flux=True, which regard does not know...
    """

    def __init__(self, values: Mapping[str, Any], path: str):
        self.values, self.path = values, path
        self.used: set[str] = set()

    def get(self, name: str, default: Any) -> Any:
        """The value of a field.

        Args:
            name: of the field
            default: its value if it is missing or null
        """
        self.used.add(name)
        value = self.values.get(name)
        return default if value is None else value

    def integer(self, name: str, default: int, minimum: int = 1) -> int:
        """As `get`, for a whole number of at least `minimum`.

        Args:
            name: of the field
            default: its value if it is missing or null
            minimum: the smallest value
        """
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= MAX_SIZE:
            raise UnsupportedError(
                f"{self.path}: {name} must be a whole number of {minimum} to {MAX_SIZE:,}, got {value!r}"
            )
        return value

    def number(self, name: str, default: float, below: float = math.inf) -> float:
        """As `get`, for a number of at least 0.

        Args:
            name: of the field
            default: its value if it is missing or null
            below: values are smaller
        """
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < below:
            limit = "finite" if below == math.inf else f"below {below:g}"
            raise UnsupportedError(f"{self.path}: {name} must be a number of at least 0 and {limit}, got {value!r}")
        return float(value)

    def require(self, name: str, allowed: Collection[Any], default: Any = None) -> None:
        """Raise UnsupportedError for a field with a value that regard does not compute.

        Args:
            name: of the field
            allowed: the values that it may have
            default: its value if it is missing or null
        """
        value = self.get(name, default)
        if value is not None and value not in allowed:
            expected = " or ".join(map(str, allowed))
            raise UnsupportedError(
                f"{self.path} has {name}={value!r}, which regard does not compute; it takes {expected}"
            )

    def activation(self, name: str, default: str) -> str:
        """The name of an activation, as regard says it.

        Args:
            name: of the field
            default: its value if it is missing or null
        """
        self.require(name, tuple(HF_ACTIVATIONS), default)
        return HF_ACTIVATIONS[self.get(name, default)]

    def check_rest(self, harmless: Iterable[str] = ()) -> None:
        """Raise UnsupportedError for a field that no call has read.

        Args:
            harmless: patterns of fields that do not matter for this family, in addition to those of all
        """
        patterns = (*HARMLESS, *harmless)
        for name, value in self.values.items():
            is_known = name in self.used or any(fnmatchcase(name, pattern) for pattern in patterns)
            if not is_known and value not in (None, False, 0, "", [], {}):
                raise UnsupportedError(
                    f"{self.path} has the field {name}={value!r}, which regard does not know and which may change the"
                    " computation; remove it from the file if it does not"
                )
