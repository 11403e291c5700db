"""Batches from any loader (a DataLoader, torchdata's StatefulDataLoader, a list), and batches of any form."""

from __future__ import annotations

import base64
import contextlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import ConfigError, DataError, DtypeError, UnsupportedError, UsageError
from regard.training.distributed import DistributedContext, seed_generators
from regard.training.run import step_seed
from regard.training.weights import from_safetensors, to_safetensors

__all__ = ["LoaderBatches", "batches_per_epoch", "decode_state", "encode_state"]

MARK = "__regard__"  # key of a JSON object that stands for a value that JSON does not have
END = object()


class LoaderBatches:
    """A loader as an endless source of batches: each pass over it is an epoch.

    In the process of the training, a batch is a function of (seed, epoch, number of the batch): `random`, NumPy, torch,
    and a `generator` of the loader or its samplers are seeded with them. `set_epoch` of the loader, its samplers and
    its dataset is called.

    A position has the epoch and the number of the batch. If the loader has `state_dict()` and `load_state_dict()`, it
    has its state as well, from which the loader resumes; of other loaders, and with several processes, the batches of
    the epoch before the position are read again and skipped.

    Args:
        loader: can be iterated more than once
        seed: seed of the training
        context: the processes of the training
        counts_epochs: whether the length of the training is given in epochs, so that each must have `len(loader)`
            batches

    Raises:
        DtypeError: it cannot be iterated, or only once
        DataError: it is empty
        UsageError: its sampler divides the data among another number of processes

    Example:
        >>> source = LoaderBatches(["a", "b"])
        >>> [batch for batch, _ in zip(source.batches(None), range(3))]
        [('a', {'epoch': 0, 'batch': 1, 'length': 2}), ('b', ...), ('a', {'epoch': 1, 'batch': 1, 'length': 2})]
    """

    def __init__(
        self,
        loader: Iterable[Any],
        seed: int = 0,
        context: DistributedContext | None = None,
        counts_epochs: bool = False,
    ):
        context = context or DistributedContext()
        self.has_state = all(callable(getattr(loader, name, None)) for name in ("state_dict", "load_state_dict"))
        if not isinstance(loader, Iterable) or (isinstance(loader, Iterator) and not self.has_state):
            what = "an iterator, which ends after one pass" if isinstance(loader, Iterator) else "not iterable"
            expected = "a DataLoader, a list, or an object with batches(position)"
            raise DtypeError(f"batches: a {type(loader).__name__} is {what}; give {expected}")
        self.loader, self.seed, self.rank, self.counts_epochs = loader, seed, context.rank, counts_epochs
        self.has_state = self.has_state and context.world_size == 1  # a checkpoint has the state of one process
        batch_sampler = getattr(loader, "batch_sampler", None)
        samplers = [getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)]
        self._parts = [loader, *samplers, getattr(loader, "dataset", None)]
        shares = next((n for one in samplers if isinstance(n := getattr(one, "num_replicas", None), int)), None)
        if shares not in (None, context.world_size):
            problem = f"the sampler of the loader divides the data among {shares} processes"
            raise UsageError(f"{problem}, but the training has {context.world_size}")
        self.is_sharded = shares is not None and context.world_size > 1
        try:
            self.length: int | None = len(loader)  # type: ignore[arg-type]
        except TypeError:  # a DataLoader over an IterableDataset
            self.length = None
        if self.length == 0:
            raise DataError("the loader is empty; each pass over it must give at least one batch")

    def batches(self, position: dict[str, Any] | None) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Iterate over batches without end, each with the position after it.

        Args:
            position: where to start; None: at the beginning
        """
        epoch, done, state = self._find(position)
        while True:
            self._start_epoch(epoch)
            skipped, number = (done, 0) if state is None else (0, done)
            if state is not None:
                self.loader.load_state_dict(state)  # type: ignore[attr-defined]
            with self._seeded(epoch, 0):
                iterator = iter(self.loader)
            while True:
                with self._seeded(epoch, number + 1):
                    batch = next(iterator, END)
                if batch is END:
                    break
                number += 1
                if self.length is not None and number > self.length:
                    problem = f"the length of the loader is {self.length:,}, but it has more batches in an epoch"
                    raise DataError(f"{problem}; correct its __len__, or leave it out")
                if number > skipped:
                    yield batch, self._position(epoch, number)
            if not number:
                raise DataError(f"the loader has no batches in epoch {epoch}; it must give the same ones at each pass")
            if self.counts_epochs and self.length is not None and number < self.length:
                problem = f"the length of the loader is {self.length:,}, but epoch {epoch} has {number:,} batches"
                raise DataError(f"{problem}; correct its __len__, or give steps in place of epochs")
            epoch, done, state = epoch + 1, 0, None

    def _position(self, epoch: int, number: int) -> dict[str, Any]:
        position = {"epoch": epoch, "batch": number, "length": self.length}
        if self.has_state:
            position["state"] = self.loader.state_dict()  # type: ignore[attr-defined]
        return position

    def _find(self, position: dict[str, Any] | None) -> tuple[int, int, Any]:
        """Epoch, number of batches before the position, and the state of the loader if it is resumed from it."""
        if position is None:
            return 0, 0, None
        if not {"epoch", "batch", "length"} <= position.keys():
            raise DataError(
                "the run was trained with batches of another kind; resume it with those, or begin a new run"
            )
        epoch, done = position["epoch"], position["batch"]
        if self.has_state and "state" in position:
            return epoch, done, decode_state(position["state"])
        return (epoch + 1, 0, None) if done == position["length"] == self.length else (epoch, done, None)

    def describe_resume(self, position: dict[str, Any]) -> str:
        """One sentence about how the loader continues from a position.

        Args:
            position: that of the checkpoint
        """
        epoch, done, state = self._find(position)
        if position["length"] != self.length:
            return (
                f"the loader has another length than before ({self.length}, not {position['length']}), so its batches"
                " will not be those of an uninterrupted training"
            )
        if state is not None:
            has_workers = getattr(self.loader, "num_workers", 0) > 0  # whose random states are not in its state
            note = "; random numbers that its workers draw begin anew" if has_workers else ""
            return f"the loader resumes from its state, after batch {done:,} of epoch {epoch}{note}"
        if not done:
            return f"the loader begins epoch {epoch}"
        return f"the loader cannot start within an epoch: the first {done:,} batches of epoch {epoch} are read again"

    def _start_epoch(self, epoch: int) -> None:
        for part in {id(part): part for part in self._parts}.values():
            if callable(set_epoch := getattr(part, "set_epoch", None)):
                set_epoch(epoch)
            if isinstance(generator := getattr(part, "generator", None), torch.Generator):
                generator.manual_seed(step_seed(self.seed, epoch))

    @contextlib.contextmanager
    def _seeded(self, epoch: int, number: int) -> Iterator[None]:
        """Random numbers are a function of the batch; outside they are unchanged."""
        # Processes that share a batch read the same one; those with batches of their own draw their own numbers.
        seed = step_seed(step_seed(self.seed, epoch), number, self.rank if self.is_sharded else 0)
        states = random.getstate(), np.random.get_state(), torch.get_rng_state()
        seed_generators(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
            torch.set_rng_state(states[2])


def batches_per_epoch(source: Any) -> int:
    """The number of batches of an epoch.

    Args:
        source: a source of batches

    Raises:
        ConfigError: it has no epochs, or does not know their length

    Example:
        >>> batches_per_epoch(LoaderBatches(["a", "b"]))
        2
    """
    count: Callable[[], int] | None = getattr(source, "batches_per_epoch", None)
    length = getattr(source, "length", None) if count is None else count()
    if length is None:
        raise ConfigError("epochs: the length of an epoch of this data is not known; give steps instead")
    return length


def encode_state(value: Any, where: str = "state") -> Any:
    """The state of a loader as JSON; tensors, arrays, bytes, tuples and keys that are no texts become objects.

    Args:
        value: dicts, lists and tuples of plain values, tensors, arrays and bytes
        where: its name, for messages

    Raises:
        UnsupportedError: it has a value of another type

    Example:
        >>> encode_state({"a": (1, 2)})
        {'a': {'__regard__': 'tuple', 'value': [1, 2]}}
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list):
        return [encode_state(one, f"{where}[{index}]") for index, one in enumerate(value)]
    if isinstance(value, tuple):
        return {MARK: "tuple", "value": encode_state(list(value), where)}
    if isinstance(value, Mapping):
        if MARK not in value and all(type(key) is str for key in value):
            return {key: encode_state(one, f"{where}[{key!r}]") for key, one in value.items()}
        return {MARK: "dict", "value": [encode_state(list(item), where) for item in value.items()]}
    if isinstance(value, bytes):
        return {MARK: "bytes", "value": base64.b64encode(value).decode()}
    if isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind in "biuf"):
        kind, tensor = ("tensor", value) if isinstance(value, Tensor) else ("array", torch.from_numpy(value))
        return {MARK: kind, "value": base64.b64encode(to_safetensors({"value": tensor})).decode()}
    problem = f"the loader cannot be saved: {where} of its state_dict() is a {type(value).__name__}"
    raise UnsupportedError(f"{problem}; it may have numbers, texts, bytes, tensors, lists, tuples and dicts")


def decode_state(value: Any) -> Any:
    """What `encode_state` was given.

    Args:
        value: JSON

    Example:
        >>> decode_state(encode_state({"a": (1, b"2")}))
        {'a': (1, b'2')}
    """
    if isinstance(value, list):
        return [decode_state(one) for one in value]
    if not isinstance(value, dict):
        return value
    if MARK not in value:
        return {key: decode_state(one) for key, one in value.items()}
    kind, content = value[MARK], value["value"]
    if kind in ("tuple", "dict"):
        items = decode_state(content)
        return tuple(items) if kind == "tuple" else dict(items)
    data = base64.b64decode(content)
    if kind == "bytes":
        return data
    tensor = from_safetensors(data)["value"]
    return tensor if kind == "tensor" else tensor.numpy()
