"""Rotations of queries and keys: the plain formula, its derivatives, and what compiles it."""

import pytest
import torch
from torch.autograd import forward_ad

from interp.attention.positions import rotate, rotations
from tests.tiny import some_tokens, tiny

PAIRINGS = pytest.mark.parametrize("interleaved", [False, True])
HALVES = pytest.mark.parametrize("half", [4, 3])  # of 8 coordinates: all of them, or six


def plainly(x, turn, interleaved):
    """Each pair as a complex number, times its position's unit number; in float64."""
    half = turn.shape[-1]
    first, second = torch.arange(half), torch.arange(half) + half
    if interleaved:
        first, second = torch.arange(0, 2 * half, 2), torch.arange(1, 2 * half, 2)
    x, unit = x.double(), torch.complex(*turn.double())[:, :, None]
    pairs = torch.complex(x[..., first], x[..., second]) * unit
    out = x.clone()
    out[..., first], out[..., second] = pairs.real, pairs.imag
    return out


def drawn(half, batch=3, rows=1, heads=2, dtype=torch.float64, requires_grad=False):
    generator = torch.Generator().manual_seed(half)
    angle = 10 * torch.randn(rows, 5, half, generator=generator, dtype=torch.float64)
    x = torch.randn(batch, 5, heads, 8, generator=generator, dtype=torch.float64)
    return x.to(dtype).requires_grad_(requires_grad), torch.stack([angle.cos(), angle.sin()])


def test_a_quarter_turn_by_hand():
    x, turn = torch.tensor([[[[1.0, 2.0, 3.0, 4.0, 5.0]]]]), torch.tensor([0.0, 1.0])
    turn = turn[:, None, None, None].expand(2, 1, 1, 2)
    assert rotate(x, turn).flatten().tolist() == [-3.0, -4.0, 1.0, 2.0, 5.0]
    assert rotate(x, turn, interleaved=True).flatten().tolist() == [-2.0, 1.0, -4.0, 3.0, 5.0]


@PAIRINGS
@HALVES
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("dtype", "error"),  # two or three roundings of numbers below 5
    [(torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 6e-2)],
)
def test_it_is_the_plain_formula(interleaved, half, rows, dtype, error):
    x, turn = drawn(half, rows=rows, dtype=dtype)
    expected = plainly(x, turn, interleaved)
    for given in (x, x.clone().requires_grad_()):
        found = rotate(given, turn, interleaved=interleaved)
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, rtol=error, atol=error)
    assert not torch.allclose(expected, x.double(), atol=0.5)


@PAIRINGS
@HALVES
def test_heads_cut_from_a_wider_product_are_left_as_they_are(interleaved, half):
    merged, turn = drawn(half, heads=6)
    before = merged.clone()
    found = rotate(merged[:, :, 2:4], turn, interleaved=interleaved)
    torch.testing.assert_close(found, plainly(before[:, :, 2:4], turn, interleaved))
    assert torch.equal(merged, before)


@PAIRINGS
@HALVES
def test_first_and_second_derivatives(interleaved, half):
    x, turn = drawn(half, batch=2, rows=2, requires_grad=True)

    def turned(x):
        return rotate(x, turn, interleaved=interleaved)

    assert torch.autograd.gradcheck(turned, (x,))
    assert torch.autograd.gradgradcheck(turned, (x,))
    by_function = torch.func.grad(lambda x: turned(x).pow(3).sum())(x.detach())
    (by_tape,) = torch.autograd.grad(turned(x).pow(3).sum(), x)
    torch.testing.assert_close(by_function, by_tape)


@PAIRINGS
@HALVES
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own forward mode
def test_a_derivative_taken_forward_turns_as_its_input_does(interleaved, half):
    x, turn = drawn(half, requires_grad=True)
    along = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    with forward_ad.dual_level():
        given = forward_ad.make_dual(x, along)
        found = forward_ad.unpack_dual(rotate(given, turn, interleaved=interleaved)).tangent
    torch.testing.assert_close(found, plainly(along, turn, interleaved))


@PAIRINGS
@HALVES
def test_one_graph_holds_it_with_its_gradient(interleaved, half):
    x, turn = drawn(half, requires_grad=True)

    def cubed(x):
        return rotate(x, turn, interleaved=interleaved).pow(3).sum()

    torch.compiler.reset()
    whole = torch.compile(cubed, fullgraph=True, backend="aot_eager")
    (found,), (expected,) = (torch.autograd.grad(f(x), x) for f in (whole, cubed))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["llama", "gptj"])
def test_a_models_gradients_are_those_of_the_plain_formula(kind, monkeypatch):
    model, tokens = tiny(kind).double(), some_tokens()
    loss = model.loss(tokens)
    found = torch.autograd.grad(loss, list(model.parameters()))
    monkeypatch.setattr(
        "interp.layers.rotate", lambda x, turn, *, interleaved: plainly(x, turn, interleaved)
    )
    expected_loss = model.loss(tokens)
    expected = torch.autograd.grad(expected_loss, list(model.parameters()))
    torch.testing.assert_close(loss, expected_loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["llama", "gptj"])
def test_autocast_turns_what_is_rounded_and_gives_gradients(kind):
    model, tokens = tiny(kind), some_tokens()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.loss(tokens)
    loss.backward()
    torch.testing.assert_close(loss, model.loss(tokens), rtol=0.05, atol=0.05)
    assert all(weight.grad is not None for weight in model.parameters())


def test_the_table_is_of_the_angles_that_su_et_al_give():
    turn = rotations(7, 6)
    angle = torch.arange(7.0)[:, None] * 10_000.0 ** -(torch.arange(3.0) / 3)
    torch.testing.assert_close(turn, torch.stack([angle.cos(), angle.sin()]))
