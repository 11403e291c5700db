"""A program for torchrun: trains on a DataLoader. python distributed_loader.py RUN sampler|none [stop]"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from regard.training import Callback, Loss, RunFolder, distributed, fit
from tests.training.toy import ignore, make_config

ROWS = torch.randn(24, 3, generator=torch.Generator().manual_seed(1))


def squared_error(model, batch):
    (rows,) = batch
    return Loss((model(rows) - rows.sum(1, keepdim=True)).square().sum(), len(rows))


class StopInSecondProcess(Callback):
    def on_step(self, state):
        if distributed.distributed_context().rank == 1 and state.step == 4:
            state.request_stop("only here")


def train(folder, batch_size, sampler=None, callbacks=()):
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    loader = DataLoader(TensorDataset(ROWS), batch_size=batch_size, sampler=sampler)
    return fit(
        model,
        squared_error,
        loader,
        make_config(epochs=3, steps=10_000, save_every=100),
        RunFolder(folder),
        log=ignore,
        callbacks=callbacks,
    )


def main() -> None:
    folder, kind, *stop = sys.argv[1:]
    context = distributed.distributed_context()
    sampler = DistributedSampler(ROWS, context.world_size, context.rank, shuffle=False) if kind == "sampler" else None
    result = train(folder, 2, sampler, [StopInSecondProcess()] if stop else [])
    if context.is_main:
        sys.stderr.write(f"ended at step {result.step}: {result.stop_reason}\n")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
