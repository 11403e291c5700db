"""The checker of shapes that runs the tests: it finds what is wrong in a call, a result or a construction."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from beartype import BeartypeConf, beartype
from jaxtyping import Float
from torch import Tensor

from tests.shape_checks import check_calls

check = check_calls(typechecker=partial(beartype, conf=BeartypeConf(violation_type=TypeError)))
Rows = Float[Tensor, "rows dim"]


@check
def product(one: Rows, other: "Rows", wrong: bool = False, unknown: "NoSuchName" = 0) -> Float[Tensor, "rows"]:
    return (one * other).sum(0 if wrong else 1)


@check
def nested(one: Rows) -> Float[Tensor, "dim rows"]:
    product(one.T, one.T)  # has sizes of its own
    return one.T


@check
def rows(one: Rows) -> Iterator[Float[Tensor, "dim"]]:
    yield from one


@check
def double(number: int) -> "int":
    return 2 * number


class Layer:
    dim = 3

    @check
    def forward(self, one: Float[Tensor, "rows {self.dim}"]) -> Float[Tensor, "rows {self.dim}"]:
        return one


@check
@dataclass
class Operands:
    one: Rows
    other: Rows


def test_right_shapes_pass():
    assert product(torch.ones(2, 3), torch.ones(2, 3)).shape == (2,)
    assert nested(torch.ones(2, 3)).shape == (3, 2)
    assert len(list(rows(torch.ones(2, 3)))) == 2
    assert double(2) == 4
    assert Operands(torch.ones(2, 3), torch.ones(2, 3)).one.shape == (2, 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: product(torch.ones(2, 3), torch.ones(2, 4)),
        lambda: product(torch.ones(2, 3), torch.ones(2, 3), wrong=True),
        lambda: product(torch.ones(2, 3), torch.ones(2, 3).long()),
        lambda: rows(torch.ones(3)),
        lambda: double("a"),
        lambda: Layer().forward(torch.ones(2, 4)),
        lambda: Operands(torch.ones(2, 3), torch.ones(2, 4)),
    ],
    ids=["argument", "result", "dtype", "generator", "no shape", "attribute", "dataclass"],
)
def test_a_wrong_shape_is_found(call):
    with pytest.raises(TypeError, match=r"violates|Type-check"):
        call()
