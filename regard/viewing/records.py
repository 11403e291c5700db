"""What was seen while a model was watched: one record a call of an attention."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import DataError, ShapeError, UsageError
from regard.viewing import notebook as _html
from regard.viewing import record_files as _files
from regard.viewing.notebook import MeasuresTable

if TYPE_CHECKING:
    from regard.viewing.figures import Figure

Tokens = Sequence[str] | Sequence[Sequence[str]]


TokenRows = list[tuple[str, ...]]


@dataclass
class AttentionRecord:
    """The weights of one call of one attention.

    `name` is that of the module, `layer` its number among the model's attentions, `heads` which heads are here,
    `call` how many calls of this module came before. `queries` and `keys` are the words, one tuple a row of the
    batch, if somebody gave them; a row may have fewer words than positions, the rest is padding.

    >>> AttentionRecord("look", 0, (0, 1), torch.full((1, 2, 3, 4), 0.25))
    Record('look', layer 0, heads 0 1, call 0, 1 x 2 x 3 x 4)
    """

    name: str
    layer: int
    heads: tuple[int, ...]
    weights: Float[Tensor, "batch heads queries keys"]
    query_tokens: TokenRows | None = None
    key_tokens: TokenRows | None = None
    call: int = 0

    def metadata(self) -> dict[str, Any]:
        """Everything but the weights, as plain as JSON."""
        return {
            "name": self.name,
            "layer": self.layer,
            "heads": list(self.heads),
            "call": self.call,
            "queries": self.query_tokens,
            "keys": self.key_tokens,
        }

    @classmethod
    def from_metadata(cls, metadata: dict[str, Any], weights: Tensor) -> AttentionRecord:
        """What `about` described."""
        if weights.dim() != 4:
            raise ShapeError(
                f"a record has weights (batch, heads, queries, keys), got {tuple(weights.shape)}"
            )
        sides = {side: _to_tuples(metadata[side]) for side in ("queries", "keys")}
        return cls(
            metadata["name"],
            metadata["layer"],
            tuple(metadata["heads"]),
            weights,
            call=metadata["call"],
            **sides,
        )

    def example(self, index: int) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None, Tensor]:
        """The words looked from, the words looked at and the weights (heads, queries, keys) of one row, unpadded."""
        queries = None if self.query_tokens is None else self.query_tokens[index]
        keys = None if self.key_tokens is None else self.key_tokens[index]
        rows = self.weights.shape[2] if queries is None else len(queries)
        columns = self.weights.shape[3] if keys is None else len(keys)
        return queries, keys, self.weights[index, :, :rows, :columns]

    def to_figure(self, index: int = 0) -> Figure:
        """Every head of one row of the batch, drawn for a paper (needs matplotlib)."""
        from regard.viewing import figures as pictures

        queries, keys, weights = self.example(index)
        return pictures.head_grid(
            weights[None], queries, keys, layer_names=[self.name], head_names=self.heads, title=self.name
        )

    def __repr__(self) -> str:
        heads, sizes = " ".join(map(str, self.heads)), " x ".join(map(str, self.weights.shape))
        return f"Record({self.name!r}, layer {self.layer}, heads {heads}, call {self.call}, {sizes})"

    def _repr_html_(self) -> str:
        return _html.render_record(self)


class AttentionRecords(Sequence[AttentionRecord]):
    """The records of a watched model, in the order in which they came.

    `seen[0]` is the first record, `seen["encoder.layers.0.look"]` that of a module by its name.

    >>> seen = AttentionRecords([AttentionRecord("look", 0, (0,), torch.full((1, 1, 2, 2), 0.5))])
    >>> seen.set_tokens(query_tokens=["a", "b"], key_tokens=["a", "b"])["look"].key_tokens
    [('a', 'b')]
    """

    def __init__(
        self,
        records: Iterable[AttentionRecord] = (),
        save_to: str | Path | None = None,
        tokens: Tokens | None = None,
    ):
        self._records = list(records)
        self._folder = None if save_to is None else _files.create_folder(Path(save_to))
        self._tokens = None if tokens is None else _to_token_rows(tokens)
        self._bytes_written = 0  # bytes since memory was given back

    def add(self, record: AttentionRecord) -> None:
        """One more record; if there is a folder it goes there, and only a handle on the file stays in memory."""
        self._records.append(record)
        if self._tokens is not None:
            self._set_tokens(len(self._records) - 1, self._tokens, self._tokens)
        if self._folder is not None:
            record = self._records[-1]
            path = _files.record_path(self._folder, len(self._records) - 1)
            self._records[-1] = replace(
                record, weights=_files.memory_map(path, record.metadata(), record.weights)
            )
            self._bytes_written += record.weights.nbytes
            if self._bytes_written > _files.TRIM_INTERVAL:
                self._bytes_written = _files.trim_heap()

    def layers(self) -> list[str]:
        """The names of the modules that were seen, in the order of their layers."""
        found = {record.name: record.layer for record in self._records}
        return sorted(found, key=lambda name: found[name])

    def calls(self, name: str) -> list[AttentionRecord]:
        """Every record of a module, one a call."""
        found = [record for record in self._records if record.name == name]
        if not found:
            raise KeyError(f"{name!r} was not seen; {self.describe()}")
        return found

    def concat_calls(self, name: str) -> AttentionRecord:
        """The calls of a decoder, one query each, put together: one record with a row for each query.

        Keys that were not there yet in earlier calls have weight 0. A beam search changes its rows from call to
        call, so only a call with the same rows of the batch can be joined.
        """
        calls = self.calls(name)
        if len({call.weights.shape[:2] for call in calls}) > 1:
            raise UsageError(
                f"the calls of {name!r} have different rows, as in a beam search, and cannot be joined"
            )
        keys = max(call.weights.shape[-1] for call in calls)
        wide = [torch.nn.functional.pad(call.weights, (0, keys - call.weights.shape[-1])) for call in calls]
        return replace(calls[-1], weights=torch.cat(wide, 2), query_tokens=None, call=0)

    def set_tokens(
        self,
        query_tokens: Tokens | None = None,
        key_tokens: Tokens | None = None,
        name_pattern: str | None = None,
    ) -> AttentionRecords:
        """Give words to the records that have as many queries and keys: of one text, or one list a row of the batch.

        `names` is a pattern of module names, such as "decoder.*.look_back"; without it every record is tried.
        """
        sides = {
            side: _to_token_rows(words)
            for side, words in (("queries", query_tokens), ("keys", key_tokens))
            if words is not None
        }
        if not sides:
            raise UsageError("label gives words to records: give queries, keys or both")
        asked = [
            place
            for place, record in enumerate(self._records)
            if fnmatchcase(record.name, name_pattern or "*")
        ]
        fits = [self._set_tokens(place, sides.get("queries"), sides.get("keys")) for place in asked]
        if not any(fits):
            sizes = sorted({tuple(self._records[place].weights.shape) for place in asked})
            shown = ", ".join(f"{size[0]} x {size[2]} x {size[3]}" for size in sizes[:5])
            given = " and ".join(
                f"{_max_length(rows)} {side}" + _describe_num_rows(rows) for side, rows in sides.items()
            )
            raise UsageError(f"no record has {given}; batch x queries x keys here are {shown or 'none'}")
        return self

    def _set_tokens(self, index: int, query_tokens: TokenRows | None, key_tokens: TokenRows | None) -> bool:
        record = self._records[index]
        changed: dict[str, Any] = {}
        for side, rows, axis in (("queries", query_tokens, 2), ("keys", key_tokens, 3)):
            if rows is None or _max_length(rows) != record.weights.shape[axis]:
                continue
            if len(rows) == 1:
                rows = rows * len(record.weights)
            if len(rows) == len(record.weights):
                changed[side] = rows
        self._records[index] = replace(record, **changed)
        return bool(changed)

    def measures(self) -> MeasuresTable:
        """Entropy, sparsity, distance, diagonality and agreement of every head: one table."""
        return MeasuresTable.build(self._records)

    def save(self, path: str | Path) -> None:
        """Write it down: `x.json` for little, `x.safetensors` for more, a folder (no ending) with a file a record.

        Nothing is rounded: what `Seen.load` reads is what was written, bit for bit.
        """
        _files.write_records(Path(path), [(record.metadata(), record.weights) for record in self._records])

    @classmethod
    def load(cls, path: str | Path) -> AttentionRecords:
        """What `save` wrote, or what `watch(to=folder)` has written so far; weights stay on the disk until read."""
        try:
            return cls(
                [
                    AttentionRecord.from_metadata(about, weights)
                    for about, weights in _files.read_records(Path(path))
                ]
            )
        except (KeyError, TypeError, AttributeError, RuntimeError):
            raise DataError(f"{path} is damaged, or was not written by Seen.save") from None

    @overload
    def __getitem__(self, index: int | str) -> AttentionRecord: ...
    @overload
    def __getitem__(self, index: slice) -> AttentionRecords: ...

    def __getitem__(self, index: int | str | slice) -> AttentionRecord | AttentionRecords:
        if isinstance(index, slice):
            return AttentionRecords(self._records[index])
        if isinstance(index, str):
            found = self.calls(index)
            if len(found) > 1:
                raise KeyError(
                    f"{index!r} was called {len(found)} times: seen.calls({index!r}) has every record, "
                    f"seen.joined({index!r}) puts the steps of a decoder together"
                )
            return found[0]
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no record {index}; {self.describe()}")
        return self._records[index]

    def describe(self) -> str:
        """In words, for whoever asked for something else."""
        if not self._records:
            return (
                "nothing was seen: call the model inside the `with`; what runs in a compiled graph, or in "
                "another thread, is not seen"
            )
        return f"there are {len(self)} records of {', '.join(self.layers())}"

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[AttentionRecord]:
        return iter(self._records)

    def __repr__(self) -> str:
        return f"Seen({len(self)} records of {len(self.layers())} attentions)"

    def _repr_html_(self) -> str:
        return _html.render_records(self)


def _to_token_rows(tokens: Tokens) -> TokenRows:
    """One text as a batch of one; a batch as it is."""
    several = [] if isinstance(tokens, str) else list(tokens)
    rows: list[Any] = [tuple(several)] if all(isinstance(word, str) for word in several) else several
    if isinstance(tokens, str) or not all(_is_token_row(row) for row in rows):
        raise TypeError(
            f"words are a list of texts, or one such list a row of the batch, got {reprlib.repr(tokens)}"
        )
    return [tuple(row) for row in rows]


def _is_token_row(row: Any) -> bool:
    return isinstance(row, (list, tuple)) and all(isinstance(word, str) for word in row)


def _describe_num_rows(rows: TokenRows) -> str:
    return "" if len(rows) == 1 else f" in {len(rows)} rows"


def _max_length(rows: TokenRows) -> int:
    return max(map(len, rows), default=0)


def _to_tuples(rows: Any) -> TokenRows | None:
    return None if rows is None else [tuple(row) for row in rows]
