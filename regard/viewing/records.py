"""Records of attention weights: one per call of an attention module."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import DataError, ShapeError, UsageError
from regard.viewing import notebook, record_files
from regard.viewing.notebook import MeasuresTable

if TYPE_CHECKING:
    from regard.viewing.figures import Figure

__all__ = ["AttentionRecord", "AttentionRecords", "Tokens"]

Tokens = Sequence[str] | Sequence[Sequence[str]]
TokenRows = list[tuple[str, ...]]
METADATA = ("name", "layer", "heads", "call", "query_tokens", "key_tokens")  # in the order of the files


@dataclass
class AttentionRecord:
    """The weights of one call of one attention module.

    Args:
        name: the name of the module
        layer: its number among the attention modules of the model
        heads: the numbers of the recorded heads
        weights: attention weights, float32 on the CPU
        query_tokens: one tuple per example; positions behind a shorter tuple are padding
        key_tokens: the same for the keys
        call: the number of earlier calls of this module

    Shape:
        weights (batch, heads, queries, keys)

    Example:
        >>> AttentionRecord("self_attn", 0, (0, 1), torch.full((1, 2, 3, 4), 0.25))
        AttentionRecord('self_attn', layer 0, heads 0 1, call 0, 1 x 2 x 3 x 4)
    """

    name: str
    layer: int
    heads: tuple[int, ...]
    weights: Float[Tensor, "batch heads queries keys"]
    query_tokens: TokenRows | None = None
    key_tokens: TokenRows | None = None
    call: int = 0

    def metadata(self) -> dict[str, Any]:
        """All fields except the weights, as JSON."""
        return {name: getattr(self, name) for name in METADATA} | {"heads": list(self.heads)}

    @classmethod
    def from_metadata(cls, metadata: dict[str, Any], weights: Tensor) -> AttentionRecord:
        """Create a record from the JSON of `metadata` and its weights."""
        if weights.dim() != 4:
            raise ShapeError(f"a record has weights (batch, heads, queries, keys), got {tuple(weights.shape)}")
        tokens = {name: _to_tuples(metadata[name]) for name in ("query_tokens", "key_tokens")}
        values = {name: metadata[name] for name in METADATA} | tokens
        return cls(**values | {"heads": tuple(metadata["heads"])}, weights=weights)

    def example(self, index: int) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None, Tensor]:
        """Select one example of the batch, without padding.

        Args:
            index: its index in the batch

        Returns:
            The query tokens, the key tokens, and the weights (heads, queries, keys).
        """
        rows = (self.query_tokens, self.key_tokens)
        query_tokens, key_tokens = (None if tokens is None else tokens[index] for tokens in rows)
        queries, keys = (None if tokens is None else len(tokens) for tokens in (query_tokens, key_tokens))
        return query_tokens, key_tokens, self.weights[index, :, :queries, :keys]

    def to_figure(self, index: int = 0) -> Figure:
        """Draw every head of one example (requires matplotlib).

        Args:
            index: the index of the example in the batch
        """
        from regard.viewing.figures import head_grid

        query_tokens, key_tokens, weights = self.example(index)
        return head_grid(
            weights[None], query_tokens, key_tokens, layer_names=[self.name], head_names=self.heads, title=self.name
        )

    def __repr__(self) -> str:
        heads, sizes = " ".join(map(str, self.heads)), " x ".join(map(str, self.weights.shape))
        return f"AttentionRecord({self.name!r}, layer {self.layer}, heads {heads}, call {self.call}, {sizes})"

    def _repr_html_(self) -> str:
        return notebook.render_record(self)


class AttentionRecords(Sequence[AttentionRecord]):
    """The records of a watched model, in the order of the calls.

    `records[0]` is the first record, `records["encoder.layers.0.self_attn"]` the record of a module.

    Args:
        records: the records to begin with
        save_to: a new folder; every record is written to it, and only a memory map is kept
        tokens: the tokens of one text, or one list per example, for every axis with as many positions

    Example:
        >>> records = AttentionRecords([AttentionRecord("self_attn", 0, (0,), torch.full((1, 1, 2, 2), 0.5))])
        >>> records.set_tokens(query_tokens=["a", "b"], key_tokens=["a", "b"])["self_attn"].key_tokens
        [('a', 'b')]
    """

    def __init__(
        self, records: Iterable[AttentionRecord] = (), save_to: str | Path | None = None, tokens: Tokens | None = None
    ):
        self._records = list(records)
        self._folder = None if save_to is None else record_files.create_folder(Path(save_to))
        self._tokens = None if tokens is None else _to_token_rows(tokens)
        self._bytes_written = 0  # since the heap was trimmed

    def add(self, record: AttentionRecord) -> None:
        """Append a record and, with `save_to`, write it to the folder."""
        self._records.append(record)
        if self._tokens is not None:
            self._set_tokens(len(self._records) - 1, self._tokens, self._tokens)
        if self._folder is not None:
            record = self._records[-1]
            path = record_files.record_path(self._folder, len(self._records) - 1)
            weights = record_files.memory_map(path, record.metadata(), record.weights)
            self._records[-1] = replace(record, weights=weights)
            self._bytes_written += record.weights.nbytes
            if self._bytes_written > record_files.TRIM_INTERVAL:
                self._bytes_written = record_files.trim_heap()

    def layers(self) -> list[str]:
        """The names of the recorded modules, in the order of their layers."""
        numbers = {record.name: record.layer for record in self._records}
        return sorted(numbers, key=lambda name: numbers[name])

    def calls(self, name: str) -> list[AttentionRecord]:
        """All records of a module, one per call."""
        records = [record for record in self._records if record.name == name]
        if not records:
            raise KeyError(f"no record of {name!r}; {self.describe()}")
        return records

    def concat_calls(self, name: str) -> AttentionRecord:
        """Concatenate the calls of a module along the queries, such as the steps of a decoder.

        Keys that earlier calls did not have get weight 0. The calls must have the same batch; those of a beam search do
        not, because it reorders its rows.

        Args:
            name: the name of the module

        Returns:
            One record with the queries of all calls.
        """
        calls = self.calls(name)
        if len({call.weights.shape[:2] for call in calls}) > 1:
            raise UsageError(f"the calls of {name!r} have different batches, as in a beam search")
        keys = max(call.weights.shape[-1] for call in calls)
        padded = [torch.nn.functional.pad(call.weights, (0, keys - call.weights.shape[-1])) for call in calls]
        return replace(calls[-1], weights=torch.cat(padded, 2), query_tokens=None, call=0)

    def set_tokens(
        self, query_tokens: Tokens | None = None, key_tokens: Tokens | None = None, name_pattern: str | None = None
    ) -> AttentionRecords:
        """Set the tokens of all records with as many queries or keys.

        Args:
            query_tokens: the tokens of one text, or one list per example
            key_tokens: the same for the keys
            name_pattern: a pattern of module names, such as "decoder.*.cross_attn"; None: all records

        Returns:
            These records.
        """
        if query_tokens is None and key_tokens is None:
            raise UsageError("set_tokens requires query_tokens, key_tokens or both")
        queries, keys = (None if tokens is None else _to_token_rows(tokens) for tokens in (query_tokens, key_tokens))
        indices = [i for i, r in enumerate(self._records) if fnmatchcase(r.name, name_pattern or "*")]
        fits = [self._set_tokens(i, queries, keys) for i in indices]
        if not any(fits):
            sizes = sorted({tuple(self._records[i].weights.shape) for i in indices})
            shapes = ", ".join(f"{size[0]} x {size[2]} x {size[3]}" for size in sizes[:5])
            requested = " and ".join(
                f"{_max_length(rows)} {side}" + (f" in {len(rows)} examples" if len(rows) != 1 else "")
                for side, rows in (("queries", queries), ("keys", keys))
                if rows is not None
            )
            raise UsageError(f"no record has {requested}; records have batch x queries x keys {shapes or 'none'}")
        return self

    def _set_tokens(self, index: int, query_tokens: TokenRows | None, key_tokens: TokenRows | None) -> bool:
        record = self._records[index]
        changes: dict[str, Any] = {}
        for field, rows, axis in (("query_tokens", query_tokens, 2), ("key_tokens", key_tokens, 3)):
            if rows is None or _max_length(rows) != record.weights.shape[axis]:
                continue
            if len(rows) in (1, len(record.weights)):
                changes[field] = rows * len(record.weights) if len(rows) == 1 else rows
        self._records[index] = replace(record, **changes)
        return bool(changes)

    def measures(self) -> MeasuresTable:
        """Measure every head: entropy, sparsity, distance, diagonality, similarity to the other heads."""
        return MeasuresTable.build(self._records)

    def save(self, path: str | Path) -> None:
        """Save the records bit for bit.

        Args:
            path: x.json for few records, x.safetensors for more, or a new folder (no suffix) with a file per record
        """
        data = [(record.metadata(), record.weights) for record in self._records]
        record_files.write_records(Path(path), data)

    @classmethod
    def load(cls, path: str | Path) -> AttentionRecords:
        """Load records of `save` or of `watch(..., save_to=folder)`; weights are read from the disk when used.

        Args:
            path: the file or folder
        """
        try:
            data = record_files.read_records(Path(path))
            return cls([AttentionRecord.from_metadata(metadata, weights) for metadata, weights in data])
        except (KeyError, TypeError, AttributeError, RuntimeError):
            raise DataError(f"{path} {record_files.NOT_RECORDS}") from None

    @overload
    def __getitem__(self, index: int | str) -> AttentionRecord: ...
    @overload
    def __getitem__(self, index: slice) -> AttentionRecords: ...

    def __getitem__(self, index: int | str | slice) -> AttentionRecord | AttentionRecords:
        if isinstance(index, slice):
            return AttentionRecords(self._records[index])
        if isinstance(index, str):
            calls = self.calls(index)
            if len(calls) > 1:
                raise KeyError(
                    f"{index!r} was called {len(calls)} times: use calls({index!r}) for all records or "
                    f"concat_calls({index!r}) for the steps of a decoder"
                )
            return calls[0]
        if not -len(self) <= index < len(self):
            raise IndexError(f"no record {index}; {self.describe()}")
        return self._records[index]

    def describe(self) -> str:
        """The number of records and the names of their modules, for messages."""
        if not self._records:
            return (
                "nothing was recorded: call the model inside the `with` block; compiled graphs and other threads "
                "are not recorded"
            )
        return f"there are {len(self)} records of {', '.join(self.layers())}"

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"AttentionRecords({len(self)} records of {len(self.layers())} modules)"

    def _repr_html_(self) -> str:
        return notebook.render_records(self)


def _to_token_rows(tokens: Tokens) -> TokenRows:
    """The tokens of one text as a batch of one; a batch as it is."""
    items = [] if isinstance(tokens, str) else list(tokens)
    rows: list[Any] = [tuple(items)] if all(isinstance(token, str) for token in items) else items
    is_text = [isinstance(row, (list, tuple)) and all(isinstance(token, str) for token in row) for row in rows]
    if isinstance(tokens, str) or not all(is_text):
        raise TypeError(f"tokens must be a list of strings or one such list per example, got {reprlib.repr(tokens)}")
    return [tuple(row) for row in rows]


def _max_length(rows: TokenRows) -> int:
    return max(map(len, rows), default=0)


def _to_tuples(rows: Any) -> TokenRows | None:
    return None if rows is None else [tuple(row) for row in rows]
