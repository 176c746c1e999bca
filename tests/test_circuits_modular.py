"""Measures of modular addition, on logits that were made by hand and on models of known form."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from interp import Transformer, TransformerConfig
from interp.circuits import distance_irrelevance, fourier, gradient_symmetricity

P = 11


def wave(k, *, p=P, height=1.0):
    """Height · cos w(a + b − c), the logits of a network that adds by frequency k alone."""
    n = torch.arange(p, dtype=torch.float64)
    angle = 2 * math.pi * k / p
    return height * (angle * (n[:, None, None] + n[None, :, None] - n)).cos()


def loss_of(logits):
    return float(F.cross_entropy(logits.flatten(0, 1), fourier.sums(len(logits)).flatten()))


def noise(generator, p=P):
    return torch.randn(p, p, p, generator=generator, dtype=torch.float64)


def test_waves_are_orthonormal_and_miss_constants():
    waves = fourier.waves(P).flatten(0, 1).flatten(1)
    assert_close(waves @ waves.T, torch.eye(P - 1, dtype=torch.float64))
    assert_close(waves.sum(1), torch.zeros(P - 1, dtype=torch.float64), atol=1e-12, rtol=0)


def test_a_fourier_solution_is_all_its_key_frequencies():
    logits = wave(2, height=20) + wave(5, height=10)
    assert fourier.key_frequencies(logits) == [2, 5]
    assert_close(fourier.shares(logits)[[1, 4]], torch.tensor([0.8, 0.2], dtype=torch.float64))
    assert fourier.restricted_loss(logits, [2, 5]) == pytest.approx(loss_of(logits), rel=1e-9)
    assert fourier.excluded_loss(logits, [2, 5]) == pytest.approx(math.log(P), abs=1e-9)
    assert fourier.excluded_loss(logits, [2]) == pytest.approx(loss_of(wave(5, height=10)))


def test_what_is_no_wave_is_left_out_but_for_each_classes_mean(generator):
    bias = torch.linspace(-3, 3, P, dtype=torch.float64)
    rest = noise(generator)
    rest = rest - sum(fourier._components(rest, [k]) for k in range(1, 6))
    logits = wave(3, height=8) + rest + bias
    expected = wave(3, height=8) + rest.mean((0, 1)) + bias
    assert fourier.restricted_loss(logits, [3]) == pytest.approx(loss_of(expected), rel=1e-9)
    assert fourier.excluded_loss(logits, [3]) == pytest.approx(loss_of(rest + bias), rel=1e-9)


def test_a_table_learnt_by_heart_has_no_key_frequency(generator):
    learnt = torch.rand(P, P, generator=generator) < 0.3
    answers = F.one_hot(fourier.sums(P), P).double()
    logits = 30 * torch.where(learnt[..., None], answers, 0.1 * noise(generator))
    keys = [2, 5]
    assert fourier.excluded_loss(logits, keys, pairs=learnt) < 1e-3
    assert fourier.restricted_loss(logits, keys) > 0.3
    random = fourier.shares(noise(generator))
    assert float(random.sum()) == pytest.approx(1 / P, abs=0.05)


def test_losses_go_below_what_float32_can_say():
    loss = fourier.restricted_loss(wave(2, height=120), [2])
    assert 0 < loss < 1.2e-7


def test_an_embedding_of_one_circle_has_one_frequency():
    angle = 2 * math.pi * 4 / P * torch.arange(P)
    circle = torch.stack([3 * angle.cos(), 3 * angle.sin()], 1)
    expected = torch.zeros(5, dtype=torch.float64)
    expected[3] = 3 * math.sqrt(P)
    assert_close(fourier.embedding_norms(circle), expected, atol=1e-5, rtol=1e-5)


def test_frequencies_and_moduli_that_are_none_are_refused():
    with pytest.raises(ValueError, match="from 1 to 5"):
        fourier.excluded_loss(wave(1), [6])
    with pytest.raises(ValueError, match="odd"):
        fourier.waves(8)


@pytest.mark.parametrize("p", [5, 11])
def test_distance_is_irrelevant_to_a_clock_and_all_to_a_pizza(p, generator):
    n = torch.arange(p)
    by_sum, by_distance = torch.randn(2, p, generator=generator, dtype=torch.float64)
    right = F.one_hot(fourier.sums(p), p)
    clock = right * by_sum[(n[:, None] + n) % p][..., None]
    pizza = right * by_distance[(n[:, None] - n) % p][..., None]
    assert distance_irrelevance(clock) == pytest.approx(1)
    assert distance_irrelevance(pizza) == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="no spread"):
        distance_irrelevance(right)


def adder(**changes):
    sizes = {"n_layers": 1, "n_heads": 2, "d_model": 16, "d_mlp": 32, "activation": "relu"}
    fixed = {"d_vocab": P + 1, "n_ctx": 3, "normalization": "none", "attention": "full"}
    return Transformer(TransformerConfig(**sizes | fixed | changes))


def test_uniform_attention_is_symmetric_and_a_look_up_is_not(generator):
    uniform = adder(attention_scale=1e-30)
    looking = adder(attention_scale=3.0, init_scale=2.0)
    ask = {"generator": generator, "equals": P}
    assert gradient_symmetricity(uniform, P, **ask) == pytest.approx(1, abs=1e-6)
    assert gradient_symmetricity(looking, P, **ask) < 0.8


def test_gradient_symmetricity_is_the_definitions(generator):
    model = adder(n_ctx=2, d_vocab=P)
    found = gradient_symmetricity(model, P, generator=generator, n_samples=7)
    triples = torch.randint(P, (3, 7), generator=torch.Generator().manual_seed(0)).T.tolist()
    cosines = []
    for a, b, c in triples:
        embedded = (model.W_E[[a, b]] + model.W_pos[:2]).detach().requires_grad_()
        model(embedded[None], start_at_layer=0)[0, 1, c].backward()
        cosines.append(F.cosine_similarity(*embedded.grad, dim=0))
    assert found == pytest.approx(float(torch.stack(cosines).mean()), abs=1e-5)


def test_logits_of_pairs_are_the_models(generator):
    model = adder()
    logits = fourier.logits_of_pairs(model, P, equals=P)
    assert logits.dtype is torch.float64
    assert_close(
        logits[3, 7], model(torch.tensor([[3, 7, P]]))[0, -1, :P].double(), atol=1e-5, rtol=1e-5
    )
