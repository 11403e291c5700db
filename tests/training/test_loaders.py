"""fit with a DataLoader, a list, and loaders with a state; batches of any form."""

import random
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

from regard.errors import ConfigError, DataError, DtypeError, UnsupportedError, UsageError
from regard.training import Callback, Loss, RunFolder, checkpoint, fit
from regard.training.distributed import DistributedContext, move_to_device
from regard.training.engine import resolve_epochs
from regard.training.loaders import LoaderBatches, decode_state, encode_state
from tests.training.toy import CountingRows, ignore, make_config

NUMBERS = range(10)


class Noisy(Dataset):
    """Numbers that each reading changes by random noise from all three generators."""

    def __init__(self, size=10):
        self.size, self.read = size, []

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        self.read.append(index)
        noise = torch.rand(2) + random.random() + float(np.random.rand())
        return {"x": noise, "y": torch.tensor([float(index)])}


class StatefulLoader:
    """Batches of numbers in random order, with the protocol of torchdata: a state that continues within an epoch."""

    def __init__(self, size=10, batch_size=3):
        self.size, self.batch_size, self.read = size, batch_size, []
        self.generator_state, self.done = torch.Generator().manual_seed(3).get_state(), 0

    def __len__(self):
        return -(-self.size // self.batch_size)

    def __iter__(self):
        generator = torch.Generator()
        generator.set_state(self.generator_state)
        order = torch.randperm(self.size, generator=generator).split(self.batch_size)
        while self.done < len(order):
            rows = order[self.done]
            self.done += 1
            self.read.append(rows.tolist())
            yield {"x": torch.stack([rows.float(), torch.rand(len(rows))], 1), "y": rows[:, None].float()}
        self.generator_state, self.done = generator.get_state(), 0

    def state_dict(self):
        return {"generator": self.generator_state, "done": self.done, 7: (1, b"x")}

    def load_state_dict(self, state):
        assert state[7] == (1, b"x")
        self.generator_state, self.done = state["generator"], state["done"]


def squared_error(model, batch):
    """With dropout: the random numbers of the model must not depend on those of the loader."""
    error = (nn.functional.dropout(model(batch["x"]), 0.5) - batch["y"]).square().sum()
    return Loss(error, len(batch["y"]))


def train(folder, loader, steps=17, log=ignore, **options):
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    config = make_config(**{"steps": steps, "save_every": 3, **options})
    fit(model, squared_error, loader, config, RunFolder(folder), log=log)
    return model


def assert_resumes(folder, make_loader, stops=(2, 7, 8), **options):
    """A training that ends at some steps and is resumed has the weights of one that was not."""
    expected = train(folder / "whole", make_loader(), **options).state_dict()
    lines = []
    for steps in (*stops, 17):
        model = train(folder / "parts", make_loader(), steps, lines.append, **options)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
    other = train(folder / "other", make_loader(), 16).state_dict()
    assert not torch.equal(model.weight, other["weight"])
    return lines


@pytest.mark.parametrize("grad_accumulation", [1, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_data_loader_resumes_exactly_by_reading_its_epoch_again(tmp_path, drop_last, grad_accumulation):
    lines = assert_resumes(
        tmp_path,
        lambda: DataLoader(Noisy(), batch_size=3, shuffle=True, drop_last=drop_last),
        grad_accumulation=grad_accumulation,
    )
    assert any(line.startswith("the loader cannot start within an epoch: the first ") for line in lines)


def test_a_data_loader_with_a_generator_of_its_own_resumes_exactly(tmp_path):
    def make_loader():
        return DataLoader(Noisy(), batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(9))

    assert_resumes(tmp_path, make_loader)


@pytest.mark.slow
def test_a_data_loader_with_workers_resumes_exactly(tmp_path):
    assert_resumes(tmp_path, lambda: DataLoader(Noisy(), batch_size=3, shuffle=True, num_workers=2))


def test_a_loader_with_a_state_resumes_from_it(tmp_path):
    lines = assert_resumes(tmp_path, StatefulLoader)
    assert "the loader resumes from its state, after batch 2 of epoch 0" in lines
    loader = StatefulLoader()
    train(tmp_path / "parts", loader, 18)
    assert len(loader.read) == 1, "no batch is read twice"


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata 0.11 with torch 2.13
@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_stateful_data_loader_of_torchdata_resumes_exactly(tmp_path, num_workers):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def make_loader():
        # The random numbers of workers are not in its state.
        dataset = (
            Noisy() if num_workers == 0 else [{"x": torch.full((2,), 1.0 * n), "y": torch.ones(1)} for n in NUMBERS]
        )
        return stateful.StatefulDataLoader(dataset, batch_size=3, shuffle=True, num_workers=num_workers)

    lines = assert_resumes(tmp_path, make_loader, stops=(2, 4, 7, 8))
    note = "; random numbers that its workers draw begin anew" if num_workers else ""
    assert f"the loader resumes from its state, after batch 3 of epoch 1{note}" in lines


def test_the_position_at_the_end_of_an_epoch_reads_nothing_again(tmp_path):
    train(tmp_path, DataLoader(Noisy(9), batch_size=3), steps=3)
    dataset, lines = Noisy(9), []
    train(tmp_path, DataLoader(dataset, batch_size=3), 4, lines.append)
    assert dataset.read == [0, 1, 2]
    assert "the loader begins epoch 1" in lines


def test_another_length_of_the_loader_is_reported(tmp_path):
    train(tmp_path, DataLoader(Noisy(), batch_size=3), steps=3)
    lines = []
    train(tmp_path, DataLoader(Noisy(), batch_size=2), 4, lines.append)
    assert any("the loader has another length than before (5, not 4)" in line for line in lines)


def test_a_list_of_tuples_is_a_loader(tmp_path):
    rows = [(torch.ones(2, 2), torch.zeros(2, 1))]
    model = nn.Linear(2, 1)
    lines = []

    def loss_fn(model, batch):
        x, y = batch
        return Loss((model(x) - y).square().sum(), len(x))

    fit(model, loss_fn, rows, make_config(epochs=30, steps=10_000), RunFolder(tmp_path), log=lines.append)
    assert lines[-1] == "done: all 30 steps are done"
    assert checkpoint.load_latest(tmp_path / "checkpoints").state["data_position"]["epoch"] == 29


@pytest.mark.bare
def test_loaders_that_cannot_be_repeated_are_refused():
    with pytest.raises(DtypeError, match="a generator is an iterator, which ends after one pass; give a DataLoader"):
        LoaderBatches(batch for batch in [1])
    with pytest.raises(DtypeError, match="a int is not iterable"):
        LoaderBatches(3)
    with pytest.raises(DataError, match="the loader is empty"):
        LoaderBatches([])

    class Once:
        def __init__(self):
            self.items = iter([1])

        def __iter__(self):
            return self.items

    stream = LoaderBatches(Once()).batches(None)
    next(stream)
    with pytest.raises(DataError, match="the loader has no batches in epoch 1"):
        next(stream)


def test_a_wrong_length_is_an_error():
    class Wrong(list):
        def __len__(self):
            return 1

    stream = LoaderBatches(Wrong([1, 2])).batches(None)
    next(stream)
    with pytest.raises(DataError, match="the length of the loader is 1, but it has more batches"):
        next(stream)


@pytest.mark.bare
def test_a_loss_function_must_return_a_loss(tmp_path):
    with pytest.raises(DtypeError, match=r"loss_fn returned a Tensor; it must return Loss\(total, count\)"):
        fit(
            nn.Linear(2, 1),
            lambda model, x: model(x).sum(),
            [torch.ones(1, 2)],
            make_config(),
            RunFolder(tmp_path),
            log=ignore,
        )


def test_batches_of_any_form_move_to_a_device():
    class Named(NamedTuple):
        x: torch.Tensor
        name: str

    @dataclass
    class Own:
        x: torch.Tensor

        def to(self, device):
            return Own(self.x.to(device))

    meta = torch.device("meta")
    batch = move_to_device({"a": [torch.ones(1), Named(torch.ones(1), "n")], "b": Own(torch.ones(1)), "c": None}, meta)
    assert batch["a"][0].device == batch["a"][1].x.device == batch["b"].x.device == meta
    assert isinstance(batch["a"][1], Named)
    assert (batch["a"][1].name, batch["c"]) == ("n", None)
    transformers = pytest.importorskip("transformers")
    encoding = transformers.BatchEncoding({"input_ids": torch.ones(1, 2), "length": [3]})
    moved = move_to_device(encoding, meta)
    assert isinstance(moved, transformers.BatchEncoding)
    assert moved["input_ids"].device == meta


def test_the_state_of_a_loader_is_saved_without_pickle():
    state = {"a": (1, [2.5, None, "x"]), 3: b"\x00", "t": torch.arange(3), "n": np.arange(2), "s": np.float64(0.5)}
    decoded = decode_state(encode_state(state))
    assert decoded["a"] == state["a"]
    assert decoded[3] == b"\x00"
    assert torch.equal(decoded["t"], state["t"])
    assert isinstance(decoded["n"], np.ndarray)
    assert decoded["s"] == 0.5
    marked = {"__regard__": "tuple"}
    assert decode_state(encode_state(marked)) == marked
    with pytest.raises(UnsupportedError, match=r"state\['a'\]\[1\] of its state_dict\(\) is a set"):
        encode_state({"a": [1, {2}]})


def test_random_numbers_outside_do_not_depend_on_the_loader():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    next(LoaderBatches(DataLoader(Noisy(), shuffle=True)).batches(None))
    assert torch.equal(torch.rand(3), expected)


def test_each_process_needs_its_own_part_of_the_data(tmp_path, monkeypatch):
    context = DistributedContext(rank=1, world_size=2)
    sampler = DistributedSampler(range(10), num_replicas=2, rank=1)
    assert LoaderBatches(DataLoader(range(10), sampler=sampler), 0, context).is_sharded
    assert not LoaderBatches(DataLoader(range(10)), 0, context).is_sharded
    with pytest.raises(UsageError, match=r"the sampler of the loader divides the data among 2 processes, but .* has 1"):
        LoaderBatches(DataLoader(range(10), sampler=sampler))
    epochs = []
    monkeypatch.setattr(sampler, "set_epoch", epochs.append)
    stream = LoaderBatches(DataLoader(range(10), sampler=sampler, batch_size=3), 0, context).batches(None)
    assert [next(stream)[1]["batch"] for _ in range(5)] == [1, 2, 1, 2, 1]
    assert epochs == [0, 1, 2]


class ShuffledBatches:
    """A batch sampler in an order of its own: from the epoch of set_epoch, and from its generator."""

    def __init__(self, size=10, num_replicas=None):
        self.size, self.epoch, self.generator = size, 0, torch.Generator().manual_seed(9)
        if num_replicas is not None:
            self.num_replicas = num_replicas

    def __len__(self):
        return -(-self.size // 3)

    def __iter__(self):
        order = torch.randperm(self.size, generator=self.generator).roll(self.epoch)
        yield from order.split(3)

    def set_epoch(self, epoch):
        self.epoch = epoch


def test_a_batch_sampler_gets_the_epoch_and_is_seeded(tmp_path):
    sampler = ShuffledBatches()
    stream = LoaderBatches(DataLoader(range(10), batch_sampler=sampler)).batches(None)
    epochs = [[next(stream)[0].tolist() for _ in range(4)] for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert sampler.epoch == 1
    assert_resumes(tmp_path, lambda: DataLoader(Noisy(), batch_sampler=ShuffledBatches()))


def test_a_batch_sampler_can_divide_the_data():
    loader, context = DataLoader(range(10), batch_sampler=ShuffledBatches(num_replicas=2)), DistributedContext(1, 2)
    assert LoaderBatches(loader, 0, context).is_sharded
    with pytest.raises(UsageError, match=r"the sampler of the loader divides the data among 2 processes, but .* has 1"):
        LoaderBatches(loader)


def test_a_length_above_the_batches_of_an_epoch_is_an_error_if_epochs_are_counted(tmp_path):
    class Long(list):
        def __len__(self):
            return 4

    rows = Long([{"x": torch.ones(1, 2), "y": torch.ones(1, 1)}] * 2)
    with pytest.raises(DataError, match=r"length of the loader is 4, but epoch 0 has 2 batches; .* or give steps"):
        train(tmp_path / "epochs", rows, 10_000, epochs=2)
    train(tmp_path / "steps", rows, 5)


def test_a_loss_that_draws_numbers_of_numpy_resumes_exactly(tmp_path):
    def noisy_error(model, batch):
        return Loss((model(batch["x"]) * np.random.rand() - batch["y"]).square().sum(), len(batch["y"]))

    class Draws(Callback):
        def on_step(self, state):
            np.random.rand(), random.random(), torch.rand(1)

    def run(folder, steps, *callbacks):
        torch.manual_seed(0)
        np.random.seed(steps)
        model = nn.Linear(2, 1)
        loader, config = DataLoader(Noisy(), batch_size=3), make_config(steps=steps)
        fit(model, noisy_error, loader, config, RunFolder(folder), log=ignore, callbacks=callbacks)
        return model.weight

    expected = run(tmp_path / "whole", 9)
    run(tmp_path / "parts", 4)
    assert torch.equal(run(tmp_path / "parts", 9), expected)
    assert torch.equal(run(tmp_path / "drawn", 9, Draws()), expected)


def test_epochs_are_steps_by_the_length_of_the_loader():
    source = LoaderBatches(DataLoader(range(10), batch_size=3))
    assert resolve_epochs(make_config(epochs=2, steps=10_000), source).steps == 8
    assert resolve_epochs(make_config(epochs=2, steps=10_000, grad_accumulation=3), source).steps == 3
    assert resolve_epochs(make_config(steps=5), source).steps == 5
    with pytest.raises(
        ConfigError, match="invalid value '2' for epochs: it is in place of steps, which is 5; leave one"
    ):
        make_config(epochs=2, steps=5)

    class Unsized(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    for unknown in (LoaderBatches(DataLoader(Unsized())), CountingRows()):
        with pytest.raises(ConfigError, match="epochs: the length of an epoch of this data is not known; give steps"):
            resolve_epochs(make_config(epochs=2, steps=10_000), unknown)


def test_a_run_with_other_batches_is_not_resumed(tmp_path):
    model, config = nn.Linear(2, 1), make_config(steps=2)

    class Source:
        def batches(self, position):
            while True:
                yield {"x": torch.ones(1, 2), "y": torch.ones(1, 1)}, {"place": 1}

    fit(model, squared_error, Source(), config, RunFolder(tmp_path), log=ignore)
    with pytest.raises(DataError, match="trained with batches of another kind"):
        train(tmp_path, DataLoader(Noisy()))
