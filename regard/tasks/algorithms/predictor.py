"""A trained network of an algorithm task: its error on sequences of any length, and a trace of its memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.algorithms import Algorithm, DynamicNGrams, SequenceBatch
from regard.data.sources import seeded_generator
from regard.errors import ConfigError, DataError, UnsupportedError
from regard.models import NeuralTuringMachine
from regard.tasks.algorithms.config import AlgorithmEvaluateOptions, AlgorithmExplainOptions
from regard.tasks.algorithms.data import max_training_sizes, sample_batches
from regard.tasks.algorithms.memory_trace import MemoryTrace
from regard.tasks.predictor import AttentionMap, Prediction, Predictor, Report

__all__ = ["AlgorithmPredictor", "bits_per_sequence", "optimal_cost"]

METRICS = ("bits", "best", "errors", "exact_match", "loss")


class AlgorithmPredictor(Predictor[Tensor, Mapping[str, int], Prediction]):
    """A trained network with the algorithm that it learned: what `regard.load(RUN)` returns.

    It needs no input, because the algorithm generates sequences. An example of a split is a size, such as
    `{"length": 20}`.

    Example:
        predictor = regard.load("runs/copy")
        predictor.evaluate([{"length": 30}]).metrics["errors"]  # wrong bits, %
    """

    evaluate_options = AlgorithmEvaluateOptions
    explain_options = AlgorithmExplainOptions

    @property
    def algorithm(self) -> Algorithm:
        """The generator of its sequences."""
        return self.processor.algorithm

    @property
    def has_attention(self) -> bool:
        """Whether the network has a memory to show."""
        return isinstance(self.model, NeuralTuringMachine)

    def describe(self) -> dict[str, Any]:
        """The algorithm and the largest sizes of training."""
        return super().describe() | {"algorithm": self.algorithm.name, "max_training_sizes": self.max_training_sizes}

    @property
    def max_training_sizes(self) -> dict[str, int]:
        """The largest sizes of the training sequences, such as `{"length": 20}`."""
        return max_training_sizes(self.algorithm)

    @cached_property
    def max_training_steps(self) -> int:
        """The steps of the longest training sequence."""
        return self.algorithm.sample(seeded_generator(0), 1, **self.max_training_sizes).inputs.shape[1]

    def memory_rows_for(self, num_steps: int) -> int | None:
        """The memory rows for a sequence of `num_steps`: those of training, times its relative length."""
        if not self.has_attention:
            return None
        return self.model.memory_rows * math.ceil(num_steps / self.max_training_steps)

    @torch.no_grad()
    def compute_logits(
        self, inputs: Float[Tensor, "batch steps input_dim"], memory_rows: int | None = None
    ) -> Float[Tensor, "batch steps output_dim"]:
        """The outputs before the sigmoid.

        Args:
            inputs: a batch of sequences
            memory_rows: the size of the memory; by default `memory_rows_for` the length of the sequences
        """
        if memory_rows is not None and memory_rows < 1:
            raise ConfigError(f"invalid value '{memory_rows}' for memory_rows: must be at least 1")
        state: Any = None
        if isinstance(self.model, NeuralTuringMachine):
            state = self.model.init_state(len(inputs), memory_rows or self.memory_rows_for(inputs.shape[1]))
        elif memory_rows is not None:
            raise UnsupportedError("memory_rows is not possible: this model has no memory")
        return self.model(inputs.to(self.device), state)[0].cpu()

    def predict(self, inputs: Sequence[Float[Tensor, "steps input_dim"]], options: Any = None) -> list[Prediction]:
        """The output bits of sequences in the encoding of the algorithm; a word of the text is a step."""
        predictions = []
        for sequence in inputs:
            logits = self.compute_logits(sequence[None])[0]
            words = ["".join(map(str, step)) for step in (logits > 0).int().tolist()]
            score = float(torch.nn.functional.logsigmoid(logits.abs()).sum())
            predictions.append(Prediction(" ".join(words), score))
        return predictions

    def evaluate(self, examples: Iterable[Mapping[str, int]], options: Any = None) -> Report:
        """The cost in bits per sequence and the percentage of wrong bits; a row of the table for each size.

        Args:
            examples: sizes of the sequences, of which those of training are replaced
            options: `AlgorithmEvaluateOptions`; its sizes replace the examples

        Returns:
            A report whose metrics are those of the first size.
        """
        options = options or AlgorithmEvaluateOptions()
        rows: list[dict[str, Any]] = []
        for example in [options.sizes] if options.sizes else examples:
            sizes = self.max_training_sizes | dict(example)
            batches = sample_batches(self.algorithm, sizes, options.num_sequences, options.seed)
            rows.append(sizes | self.evaluate_batches(batches, options.memory_rows))
        if not rows:
            raise DataError("there is nothing to evaluate: no sizes were given")
        metrics = {name: rows[0][name] for name in METRICS if name in rows[0]}
        table = [{name: value for name, value in row.items() if name != "loss"} for row in rows]
        return Report(sum(row["sequences"] for row in rows), metrics, tables={"sizes": table})

    def evaluate_batches(self, batches: Iterable[SequenceBatch], memory_rows: int | None = None) -> dict[str, Any]:
        """The results of sequences of one size, as a row of the table of `evaluate`, with the loss.

        Args:
            batches: the sequences
            memory_rows: the size of the memory; by default it grows with the sequences
        """
        cost = best = 0.0
        rows, num_bits = memory_rows, 0
        wrong: list[int] = []  # bits of each sequence
        for batch in batches:
            rows = memory_rows or self.memory_rows_for(batch.inputs.shape[1])
            logits = self.compute_logits(batch.inputs, memory_rows)[:, batch.target_mask]
            targets = batch.targets[:, batch.target_mask]
            is_wrong = ((logits > 0) != (targets > 0.5)).flatten(1)
            cost += float(bits_per_sequence(logits, targets).sum())
            wrong += is_wrong.sum(1).tolist()
            num_bits += is_wrong.numel()
            if isinstance(self.algorithm, DynamicNGrams):
                best += float(optimal_cost(self.algorithm, batch).sum())
        num_sequences, num_wrong = len(wrong), sum(wrong)
        bits = cost / num_sequences
        return {
            **({} if rows is None else {"memory_rows": rows}),
            "sequences": num_sequences,
            "bits": bits,
            **({"best": best / num_sequences} if isinstance(self.algorithm, DynamicNGrams) else {}),
            "wrong_bits": num_wrong,
            "target_bits": num_bits,
            "errors": 100 * num_wrong / max(num_bits, 1),
            "exact_match": 100 * wrong.count(0) / num_sequences,
            "loss": math.log(2) * bits * num_sequences / max(num_bits, 1),
        }

    @torch.no_grad()
    def explain(self, input: Tensor | None = None, options: Any = None) -> MemoryTrace:
        """The trace of one generated sequence.

        Args:
            input: None; the sequence is generated
            options: `AlgorithmExplainOptions`
        """
        if not isinstance(self.model, NeuralTuringMachine):
            raise UnsupportedError("this model has no memory to show; train one with model=ntm")
        options = options or AlgorithmExplainOptions()
        (batch,) = sample_batches(self.algorithm, self.max_training_sizes | options.sizes, 1, options.seed)
        state = self.model.init_state(1, options.memory_rows or self.memory_rows_for(batch.inputs.shape[1]))
        steps = []
        for inputs in batch.inputs.to(self.device).unbind(1):
            steps.append(self.model.step(inputs, state))
            state = steps[-1].state
        logits = torch.cat([step.output for step in steps]).cpu()
        outputs, mask = logits.sigmoid(), batch.target_mask
        is_wrong = ((outputs > 0.5) != (batch.targets[0] > 0.5))[mask]
        num_wrong, num_bits = int(is_wrong.sum()), is_wrong.numel()
        cost = float(bits_per_sequence(logits[None, mask], batch.targets[:, mask]))
        optimal = batch.targets
        if isinstance(self.algorithm, DynamicNGrams):  # its bits are random
            optimal = self.algorithm.optimal_prediction(batch.targets[..., 0])[..., None]
        trace = MemoryTrace(
            prediction=Prediction(f"{num_wrong} of {num_bits} bits wrong", -math.log(2) * cost),
            maps=(
                _make_map("write", [step.state.write_weights for step in steps]),
                _make_map("read", [step.state.read_weights for step in steps]),
            ),
            name=self.algorithm.name,
            inputs=batch.inputs[0],
            outputs=outputs,
            targets=batch.targets[0],
            read_vectors=torch.cat([step.state.read for step in steps]).cpu(),
            add_vectors=torch.cat([step.add for step in steps]).cpu(),
            memory=torch.cat([step.state.memory for step in steps]).cpu(),
            optimal_outputs=optimal[0].where(mask[:, None], 0.0),
            target_mask=mask,
            num_wrong_bits=num_wrong,
            num_target_bits=num_bits,
            head=options.head,
        )
        trace.select_heads(options.head)  # refuses a head that does not exist
        return trace


def _make_map(name: str, weights: Sequence[Tensor]) -> AttentionMap:
    """The weights of heads over the rows of the memory, from those of each step."""
    by_head = torch.cat(list(weights)).cpu().transpose(0, 1)
    steps, rows = ([str(number) for number in range(size)] for size in by_head.shape[1:])
    return AttentionMap(name, by_head, steps, rows)


def bits_per_sequence(
    logits: Float[Tensor, "batch steps output_dim"], targets: Float[Tensor, "batch steps output_dim"]
) -> Float[Tensor, " batch"]:
    """The cross entropy of each sequence in bits.

    Args:
        logits: outputs before the sigmoid
        targets: bits, 0 or 1

    Shape:
        - logits, targets: (batch, steps, output_dim)
        - returns: (batch,)

    Returns:
        The sums over steps and bits.

    Example:
        >>> bits_per_sequence(torch.zeros(1, 3, 4), torch.ones(1, 3, 4))
        tensor([12.])
    """
    losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return losses.flatten(1).sum(1) / math.log(2)


def optimal_cost(algorithm: DynamicNGrams, batch: SequenceBatch) -> Float[Tensor, " batch"]:
    """The cost of the optimal prediction in bits per sequence.

    Args:
        algorithm: the source of the sequences
        batch: sequences of it

    Returns:
        The cost of each sequence, (batch,).
    """
    targets = batch.targets[..., 0]
    probability = algorithm.optimal_prediction(targets)
    log_probs = torch.where(targets > 0.5, probability, 1 - probability).log2()
    return -log_probs[:, batch.target_mask].sum(1)
