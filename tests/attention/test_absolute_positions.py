"""Absolute positions against plain loops, and the properties of sinusoids."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from regard.attention.positions import Learned, Sinusoidal, binary_code
from regard.errors import UsageError

DIM, LENGTH, TABLE = 6, 5, 40
EVEN = st.integers(1, 8).map(lambda half: 2 * half)
POSITION = st.integers(-(10**6), 10**6)
law = settings(max_examples=30)


def make(kind: type[nn.Module]) -> nn.Module:
    return Sinusoidal(DIM) if kind is Sinusoidal else Learned(TABLE, DIM)


both = pytest.mark.parametrize("kind", [Sinusoidal, Learned])


def reference_encoding(length: int, dim: int, base: float, offset: int) -> torch.Tensor:
    rows = []
    for i in range(offset, offset + length):
        rows.append([])
        for j in range(dim // 2):
            angle = i * base ** (-2 * j / dim)
            rows[-1] += [math.sin(angle), math.cos(angle)]
    return torch.tensor(rows, dtype=torch.float64)


@law
@given(EVEN, st.integers(1, 12), POSITION, st.sampled_from([10000.0, 100, 2.0]))
def test_encoding_equals_the_formula(dim, length, offset, base):
    encoding = Sinusoidal(dim, base).encoding(length, offset, dtype=torch.float64)
    assert_close(encoding, reference_encoding(length, dim, base, offset), atol=1e-9, rtol=0)


@law
@given(EVEN, POSITION, POSITION)
def test_a_shift_is_one_linear_map_for_every_position(dim, i, delta):
    sinusoidal = Sinusoidal(dim)
    matrix = sinusoidal.shift_matrix(delta, dtype=torch.float64)
    start = sinusoidal.encoding(4, i, dtype=torch.float64)
    shifted = sinusoidal.encoding(4, i + delta, dtype=torch.float64)
    assert_close(start @ matrix.mT, shifted, atol=1e-8, rtol=0)
    assert_close(matrix @ matrix.mT, torch.eye(dim, dtype=torch.float64))


def test_shift_matrices_compose_and_invert():
    sinusoidal = Sinusoidal(8)
    assert_close(sinusoidal.shift_matrix(2) @ sinusoidal.shift_matrix(5), sinusoidal.shift_matrix(7))
    assert_close(sinusoidal.shift_matrix(-3), sinusoidal.shift_matrix(3).mT)
    assert_close(sinusoidal.shift_matrix(0), torch.eye(8))
    assert_close(sinusoidal.shift_matrix(0.5) @ sinusoidal.shift_matrix(0.5), sinusoidal.shift_matrix(1))


def test_large_positions_are_as_accurate_as_small_ones():
    far = Sinusoidal(DIM).encoding(2, 10**7)
    assert_close(far, reference_encoding(2, DIM, 10000.0, 10**7).float(), atol=1e-6, rtol=0)


def test_encodings_differ_and_their_dot_product_depends_on_the_distance():
    code = Sinusoidal(32).encoding(200, dtype=torch.float64)
    products = code @ code.mT
    for distance in (0, 1, 17):
        along = products.diagonal(distance)
        assert_close(along, along[:1].expand_as(along))
    assert (torch.cdist(code, code) + torch.eye(200) > 0.1).all()


@both
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_any_number_of_batch_axes_equals_a_loop(kind, batch):
    module, x = make(kind), torch.randn(*batch, LENGTH, DIM)
    loop = [module(entry) for entry in x.reshape(-1, LENGTH, DIM)]
    assert torch.equal(module(x), torch.stack(loop).view_as(x))


@both
@law
@given(offset=st.integers(0, TABLE - 1), data=st.data())
def test_an_offset_selects_a_later_part(kind, offset, data):
    end = data.draw(st.integers(offset, TABLE))
    module, x = make(kind), torch.randn(2, TABLE, DIM)
    part = slice(offset, end)
    assert torch.equal(module(x[:, part], offset), module(x)[:, part])
    assert torch.equal(module(x[:, part], torch.tensor(offset)), module(x)[:, part])


@both
def test_one_offset_for_each_batch_entry(kind):
    module, x, offsets = make(kind), torch.randn(2, 3, LENGTH, DIM), torch.randint(0, 30, (2, 3))
    output = module(x, offsets)
    for i in range(2):
        for j in range(3):
            assert torch.equal(output[i, j], module(x[i, j], int(offsets[i, j])))
    shared = module(x, offsets[:, 0])  # the first axis only, as lengths have it
    assert torch.equal(shared, torch.stack([module(x[i], int(offsets[i, 0])) for i in range(2)]))


@both
def test_offsets_are_for_the_leading_axes_even_if_sizes_are_equal(kind):
    module, x, offsets = make(kind), torch.randn(3, 3, 3, DIM), torch.tensor([0, 7, 20])
    expected = torch.stack([module(entry, int(offset)) for entry, offset in zip(x, offsets, strict=True)])
    assert torch.equal(module(x, offsets), expected)


@both
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_dtype_of_x_is_preserved_and_the_sum_rounded_once(kind, dtype):
    module, x = make(kind), torch.randn(2, LENGTH, DIM).to(dtype)
    assert module(x).dtype == dtype
    if dtype.itemsize == 2:
        assert torch.equal(module(x), module(x.float()).to(dtype))


def test_the_encoding_is_accurate_in_a_half_precision_module():
    x = torch.zeros(1, 4, DIM)
    assert torch.equal(Sinusoidal(DIM).bfloat16()(x, 10**6), Sinusoidal(DIM)(x, 10**6))
    assert not Sinusoidal(DIM).state_dict()


@both
def test_gradients(kind):
    module, x = make(kind).double(), torch.randn(2, LENGTH, DIM, dtype=torch.float64, requires_grad=True)
    offsets = torch.tensor([0, 3])
    assert torch.autograd.gradcheck(lambda x, *_: module(x, 3), (x, *module.parameters()))
    assert torch.autograd.gradcheck(lambda x, *_: module(x, offsets), (x, *module.parameters()))


def test_learned_starts_small_and_has_gradients_for_used_rows_only():
    torch.manual_seed(0)
    module = Learned(1000, 64)
    assert module.table.std().item() == pytest.approx(0.02, rel=0.02)
    assert module.table.mean().item() == pytest.approx(0, abs=1e-3)
    module(torch.zeros(2, 3, 64), offset=4).sum().backward()
    assert torch.equal(module.table.grad[:, 0].nonzero().flatten(), torch.tensor([4, 5, 6]))


@both
def test_empty_inputs(kind):
    assert make(kind)(torch.zeros(2, 0, DIM)).shape == (2, 0, DIM)
    assert make(kind)(torch.zeros(0, LENGTH, DIM), torch.zeros(0, dtype=torch.long)).shape == (0, LENGTH, DIM)


@law
@given(st.integers(1, 300), st.integers(1, 12))
def test_binary_code_counts(length, bits):
    expected = [[(i >> j) % 2 for j in range(bits)] for i in range(length)]
    assert binary_code(length, bits).tolist() == expected
    assert len(binary_code(length).unique(dim=0)) == length


def test_sines_have_the_periods_of_bits():
    # With base 2^bits each sine is twice as slow as the one before, like a bit: half as many changes of sign.
    bits = 5
    sines = Sinusoidal(2 * bits, base=2.0**bits).encoding(1024)[:, ::2]
    for code in (sines.sign(), binary_code(1024, bits)):
        flips = (code.diff(dim=0) != 0).sum(0)
        assert_close(flips[:-1] / flips[1:], torch.full((bits - 1,), 2.0), atol=0.1, rtol=0)


@pytest.mark.bare
@both
def test_compiles_to_one_graph(kind):
    module, x = make(kind), torch.randn(2, LENGTH, DIM)
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    for offset in (0, 7, 9, torch.tensor(4), torch.tensor([1, 6])):
        assert_close(compiled(x, offset), module(x, offset))


@pytest.mark.bare
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, from inside its compiler
def test_compiles_to_machine_code():
    module, x = Sinusoidal(DIM), torch.randn(2, LENGTH, DIM)
    offset = torch.tensor([5, 10**6])
    assert_close(torch.compile(module, fullgraph=True)(x, offset), module(x, offset))


@pytest.mark.bare
@pytest.mark.parametrize("dim", [0, 1, 5, -2])
def test_an_odd_size_is_an_error(dim):
    with pytest.raises(
        ValueError, match=f"embed_dim must be even, one sine and one cosine for each frequency, got {dim}"
    ):
        Sinusoidal(dim)


@pytest.mark.bare
@pytest.mark.parametrize("offset", [-1, 36, 1000, torch.tensor(36), torch.tensor([0, 36]), torch.tensor([-1, 0])])
def test_positions_beyond_the_table_are_an_error(offset):
    with pytest.raises(ValueError, match=r"Learned: positions must be in 0\.\.39, got -?\d+\.\.\d+$"):
        Learned(TABLE, DIM)(torch.zeros(2, LENGTH, DIM), offset)


@pytest.mark.bare
@both
def test_wrong_shapes_are_an_error(kind):
    with pytest.raises(ValueError, match=r"x must be .* with embed_dim 6, but its shape is \(2, 5, 7\)"):
        make(kind)(torch.zeros(2, 5, 7))
    with pytest.raises(ValueError, match=r"x must be .* with embed_dim 6, but its shape is \(6,\)"):
        make(kind)(torch.zeros(6))
    with pytest.raises(ValueError, match=r"begins like the batch axes \(2,\) of x, but its shape is \(3,\)"):
        make(kind)(torch.zeros(2, 5, 6), torch.tensor([1, 2, 3]))
    with pytest.raises(ValueError, match=r"begins like the batch axes \(2,\) of x, but its shape is \(2, 1\)"):
        make(kind)(torch.zeros(2, 5, 6), torch.tensor([[1], [2]]))


def test_sines_before_cosines_are_the_same_numbers_in_another_order():
    encoding, halves = Sinusoidal(6).encoding(5), Sinusoidal(6, interleaved=False).encoding(5)
    assert torch.equal(halves, torch.cat((encoding[:, 0::2], encoding[:, 1::2]), 1))
    with pytest.raises(UsageError, match="interleaved=True"):
        Sinusoidal(6, interleaved=False).shift_matrix(1)
