"""First-order estimates of patching: where they are exact, cancel or saturate."""

import pytest
import torch

from interp import Transformer, TransformerConfig, patching, wrap
from interp.metrics import weighted_mean
from tests import oracle
from tests.hugging_face_models import make
from tests.test_patching import induction_ends, model_of


@pytest.fixture(scope="module")
def model():
    return model_of()


@pytest.fixture(scope="module")
def ends():
    clean = torch.randint(16, (4, 10), generator=torch.Generator().manual_seed(0))
    corrupted = clean.clone()
    corrupted[:, 3] = (corrupted[:, 3] + 5) % 16
    return clean, corrupted


def linear_end(**options):
    """Without norms or MLPs, a logit difference is linear in what the last layer writes."""
    return model_of(d_mlp=None, normalization="none", n_layers=2, **options)


@pytest.mark.parametrize(("at", "direction"), [("corrupted", "denoising"), ("clean", "noising")])
@pytest.mark.parametrize("site", ["z", "v", "pattern"])
def test_estimates_are_exact_where_the_metric_is_linear(ends, at, direction, site):
    model = linear_end()
    estimate = patching.attribution_patching(model, *ends, site=site, at=at)
    exact = patching.activation_patching(model, *ends, site=site, direction=direction)
    torch.testing.assert_close(estimate.effect[1], exact.effect[1], atol=1e-4, rtol=1e-4)
    assert exact.effect[1].abs().max() > 1e-2
    assert not torch.allclose(estimate.effect[0], exact.effect[0], atol=1e-2)  # a layer below


@pytest.mark.parametrize("kv_heads", [2, 1])
@pytest.mark.parametrize("site", ["q", "k"])
def test_the_correction_sees_through_the_softmax(ends, site, kv_heads):
    model = linear_end(n_kv_heads=kv_heads, positional="rotary")
    exact = patching.activation_patching(model, *ends, site=site)
    corrected = patching.attribution_patching(model, *ends, site=site)
    plain = patching.attribution_patching(model, *ends, site=site, qk_correction=False)
    torch.testing.assert_close(corrected.effect[1], exact.effect[1], atol=1e-4, rtol=1e-4)
    assert (plain.effect[1] - exact.effect[1]).abs().max() > 1e-3


def test_saturated_attention_has_no_gradient_and_needs_the_correction():
    circuit, (clean, corrupted) = oracle.model(), induction_ends()
    exact = patching.activation_patching(
        circuit, clean, corrupted, site="k", direction="noising"
    ).effect
    given = {"site": "k", "at": "clean"}
    plain = patching.attribution_patching(circuit, clean, corrupted, qk_correction=False, **given)
    corrected = patching.attribution_patching(circuit, clean, corrupted, **given)
    assert exact[1, 0] < -0.3
    assert plain.effect[1, 0].abs() < 1e-6
    torch.testing.assert_close(corrected.effect[1], exact[1], atol=1e-5, rtol=0)


def cancelling():
    """A head copies tokens to the logits, and a later MLP takes off what is over 1/2 of it."""
    options = {"n_layers": 2, "n_heads": 1, "d_model": 6, "d_head": 3, "d_vocab": 3, "d_mlp": 3}
    how = {"positional": "none", "normalization": "none", "activation": "relu", "n_ctx": 2}
    model = Transformer(TransformerConfig(**options, **how)).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.zero_()
    token, out, one = slice(0, 3), slice(3, 6), torch.eye(3)
    model.W_E[:, token], model.W_U[out] = one, one
    model.blocks[0].attn.W_V[0, token], model.blocks[0].attn.W_O[0, :, out] = one, one
    mlp = model.blocks[1].mlp
    mlp.W_in[out], mlp.W_out[:, out] = one, -one
    mlp.b_in[:] = -0.5
    return model


@pytest.mark.parametrize("site", ["z", "v", "attn_out"])
def test_what_cancels_to_first_order_is_seen_with_a_layer_held(site):
    clean, corrupted = torch.zeros(2, 2, dtype=torch.long), torch.ones(2, 2, dtype=torch.long)
    asked = {"site": site, "at": "clean", "metric": lambda logits, batch: logits[:, -1, 0]}
    model = cancelling()
    exact = patching.activation_patching(
        model, clean, corrupted, site=site, metric=asked["metric"], direction="noising"
    )
    plain = patching.attribution_patching(model, clean, corrupted, **asked)
    dropped = patching.attribution_patching(model, clean, corrupted, grad_drop=True, **asked)
    columns = exact.effect[0] != 0
    assert exact.effect[0].sum() == pytest.approx(-0.5)  # from 1/2 to nothing
    assert plain.effect[0].abs().max() == 0
    assert dropped.effect[0, columns].sum() == pytest.approx(1.0)  # with the MLP held
    assert dropped.effect[1].abs().max() == 0  # a head that writes nothing
    assert dropped.method == "attribution, grad drop"


def test_without_cancelling_a_dropped_gradient_says_what_the_plain_one_says():
    """Of the last layer, no other layer's gradient passes through: each drop gives the same."""
    model, (clean, corrupted) = oracle.model(), induction_ends()
    plain = patching.attribution_patching(model, clean, corrupted)
    dropped = patching.attribution_patching(model, clean, corrupted, grad_drop=True)
    wanted = weighted_mean(plain.per_example.abs(), plain.weights)
    torch.testing.assert_close(dropped.effect[1], wanted[1])
    assert dropped.effect[1, 0] > 0.3


def test_the_residual_stream_is_asked_with_its_own_layer_held_too(ends):
    model = model_of()
    plain = patching.attribution_patching(model, *ends, site="resid")
    dropped = patching.attribution_patching(model, *ends, site="resid", grad_drop=True)
    assert (dropped.effect >= 0).all()
    assert not torch.allclose(dropped.effect[2], plain.effect[2].abs(), rtol=1e-3)


def test_gradients_are_dropped_where_there_are_layers_to_hold(ends):
    for wrong in (wrap(make("gpt2")), model_of(n_layers=1)):
        with pytest.raises(ValueError, match="two layers or more"):
            patching.attribution_patching(wrong, *ends, grad_drop=True)


def test_estimates_leave_no_gradient_and_refuse_a_flat_metric(model, ends):
    patching.attribution_patching(model, *ends)
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(ValueError, match="no gradient"):
        patching.attribution_patching(model, *ends, metric="accuracy")
