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
from regard.viewing import _files, _html
from regard.viewing._table import Measures

if TYPE_CHECKING:
    from regard.viewing.pictures import Picture

Words = Sequence[str] | Sequence[Sequence[str]]
Labels = list[tuple[str, ...]]


@dataclass
class Record:
    """The weights of one call of one attention.

    `name` is that of the module, `layer` its number among the model's attentions, `heads` which heads are here,
    `call` how many calls of this module came before. `queries` and `keys` are the words, one tuple a row of the
    batch, if somebody gave them; a row may have fewer words than positions, the rest is padding.

    >>> Record("look", 0, (0, 1), torch.full((1, 2, 3, 4), 0.25))
    Record('look', layer 0, heads 0 1, call 0, 1 x 2 x 3 x 4)
    """

    name: str
    layer: int
    heads: tuple[int, ...]
    weights: Float[Tensor, "batch heads queries keys"]
    queries: Labels | None = None
    keys: Labels | None = None
    call: int = 0

    def about(self) -> dict[str, Any]:
        """Everything but the weights, as plain as JSON."""
        return {
            "name": self.name,
            "layer": self.layer,
            "heads": list(self.heads),
            "call": self.call,
            "queries": self.queries,
            "keys": self.keys,
        }

    @classmethod
    def of(cls, about: dict[str, Any], weights: Tensor) -> Record:
        """What `about` described."""
        if weights.dim() != 4:
            raise ShapeError(
                f"a record has weights (batch, heads, queries, keys), got {tuple(weights.shape)}"
            )
        sides = {side: _tuples(about[side]) for side in ("queries", "keys")}
        return cls(about["name"], about["layer"], tuple(about["heads"]), weights, call=about["call"], **sides)

    def row(self, row: int) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None, Tensor]:
        """The words looked from, the words looked at and the weights (heads, queries, keys) of one row, unpadded."""
        queries = None if self.queries is None else self.queries[row]
        keys = None if self.keys is None else self.keys[row]
        rows = self.weights.shape[2] if queries is None else len(queries)
        columns = self.weights.shape[3] if keys is None else len(keys)
        return queries, keys, self.weights[row, :, :rows, :columns]

    def picture(self, row: int = 0) -> Picture:
        """Every head of one row of the batch, drawn for a paper (needs matplotlib)."""
        from regard.viewing import pictures

        queries, keys, weights = self.row(row)
        return pictures.heads(
            weights[None], queries, keys, layers=[self.name], heads=self.heads, title=self.name
        )

    def __repr__(self) -> str:
        heads, sizes = " ".join(map(str, self.heads)), " x ".join(map(str, self.weights.shape))
        return f"Record({self.name!r}, layer {self.layer}, heads {heads}, call {self.call}, {sizes})"

    def _repr_html_(self) -> str:
        return _html.of_record(self)


class Seen(Sequence[Record]):
    """The records of a watched model, in the order in which they came.

    `seen[0]` is the first record, `seen["encoder.layers.0.look"]` that of a module by its name.

    >>> seen = Seen([Record("look", 0, (0,), torch.full((1, 1, 2, 2), 0.5))])
    >>> seen.label(queries=["a", "b"], keys=["a", "b"])["look"].keys
    [('a', 'b')]
    """

    def __init__(
        self, records: Iterable[Record] = (), to: str | Path | None = None, tokens: Words | None = None
    ):
        self._records = list(records)
        self._folder = None if to is None else _files.new_folder(Path(to))
        self._tokens = None if tokens is None else _rows(tokens)
        self._written = 0  # bytes since memory was given back

    def add(self, record: Record) -> None:
        """One more record; if there is a folder it goes there, and only a handle on the file stays in memory."""
        self._records.append(record)
        if self._tokens is not None:
            self._label(len(self._records) - 1, self._tokens, self._tokens)
        if self._folder is not None:
            record = self._records[-1]
            path = _files.numbered(self._folder, len(self._records) - 1)
            self._records[-1] = replace(record, weights=_files.moved(path, record.about(), record.weights))
            self._written += record.weights.nbytes
            if self._written > _files.MANY:
                self._written = _files.give_back()

    def layers(self) -> list[str]:
        """The names of the modules that were seen, in the order of their layers."""
        found = {record.name: record.layer for record in self._records}
        return sorted(found, key=lambda name: found[name])

    def calls(self, name: str) -> list[Record]:
        """Every record of a module, one a call."""
        found = [record for record in self._records if record.name == name]
        if not found:
            raise KeyError(f"{name!r} was not seen; {self.what_there_is()}")
        return found

    def joined(self, name: str) -> Record:
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
        return replace(calls[-1], weights=torch.cat(wide, 2), queries=None, call=0)

    def label(
        self, queries: Words | None = None, keys: Words | None = None, names: str | None = None
    ) -> Seen:
        """Give words to the records that have as many queries and keys: of one text, or one list a row of the batch.

        `names` is a pattern of module names, such as "decoder.*.look_back"; without it every record is tried.
        """
        sides = {
            side: _rows(words) for side, words in (("queries", queries), ("keys", keys)) if words is not None
        }
        if not sides:
            raise UsageError("label gives words to records: give queries, keys or both")
        asked = [
            place for place, record in enumerate(self._records) if fnmatchcase(record.name, names or "*")
        ]
        fits = [self._label(place, sides.get("queries"), sides.get("keys")) for place in asked]
        if not any(fits):
            sizes = sorted({tuple(self._records[place].weights.shape) for place in asked})
            shown = ", ".join(f"{size[0]} x {size[2]} x {size[3]}" for size in sizes[:5])
            given = " and ".join(f"{_longest(rows)} {side}" + _in_rows(rows) for side, rows in sides.items())
            raise UsageError(f"no record has {given}; batch x queries x keys here are {shown or 'none'}")
        return self

    def _label(self, place: int, queries: Labels | None, keys: Labels | None) -> bool:
        record = self._records[place]
        changed: dict[str, Any] = {}
        for side, rows, axis in (("queries", queries, 2), ("keys", keys, 3)):
            if rows is None or _longest(rows) != record.weights.shape[axis]:
                continue
            if len(rows) == 1:
                rows = rows * len(record.weights)
            if len(rows) == len(record.weights):
                changed[side] = rows
        self._records[place] = replace(record, **changed)
        return bool(changed)

    def measures(self) -> Measures:
        """Entropy, sparsity, distance, diagonality and agreement of every head: one table."""
        return Measures.of(self._records)

    def save(self, path: str | Path) -> None:
        """Write it down: `x.json` for little, `x.safetensors` for more, a folder (no ending) with a file a record.

        Nothing is rounded: what `Seen.load` reads is what was written, bit for bit.
        """
        _files.write(Path(path), [(record.about(), record.weights) for record in self._records])

    @classmethod
    def load(cls, path: str | Path) -> Seen:
        """What `save` wrote, or what `watch(to=folder)` has written so far; weights stay on the disk until read."""
        try:
            return cls([Record.of(about, weights) for about, weights in _files.read(Path(path))])
        except (KeyError, TypeError, AttributeError, RuntimeError):
            raise DataError(f"{path} is damaged, or was not written by Seen.save") from None

    @overload
    def __getitem__(self, which: int | str) -> Record: ...
    @overload
    def __getitem__(self, which: slice) -> Seen: ...

    def __getitem__(self, which: int | str | slice) -> Record | Seen:
        if isinstance(which, slice):
            return Seen(self._records[which])
        if isinstance(which, str):
            found = self.calls(which)
            if len(found) > 1:
                raise KeyError(
                    f"{which!r} was called {len(found)} times: seen.calls({which!r}) has every record, "
                    f"seen.joined({which!r}) puts the steps of a decoder together"
                )
            return found[0]
        if not -len(self) <= which < len(self):
            raise IndexError(f"there is no record {which}; {self.what_there_is()}")
        return self._records[which]

    def what_there_is(self) -> str:
        """In words, for whoever asked for something else."""
        if not self._records:
            return (
                "nothing was seen: call the model inside the `with`; what runs in a compiled graph, or in "
                "another thread, is not seen"
            )
        return f"there are {len(self)} records of {', '.join(self.layers())}"

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def __repr__(self) -> str:
        return f"Seen({len(self)} records of {len(self.layers())} attentions)"

    def _repr_html_(self) -> str:
        return _html.of_seen(self)


def _rows(words: Words) -> Labels:
    """One text as a batch of one; a batch as it is."""
    several = [] if isinstance(words, str) else list(words)
    rows: list[Any] = [tuple(several)] if all(isinstance(word, str) for word in several) else several
    if isinstance(words, str) or not all(_are_words(row) for row in rows):
        raise TypeError(
            f"words are a list of texts, or one such list a row of the batch, got {reprlib.repr(words)}"
        )
    return [tuple(row) for row in rows]


def _are_words(row: Any) -> bool:
    return isinstance(row, (list, tuple)) and all(isinstance(word, str) for word in row)


def _in_rows(rows: Labels) -> str:
    return "" if len(rows) == 1 else f" in {len(rows)} rows"


def _longest(rows: Labels) -> int:
    return max(map(len, rows), default=0)


def _tuples(rows: Any) -> Labels | None:
    return None if rows is None else [tuple(row) for row in rows]
