"""Linear probes read what is there, and their control does not."""

import pytest
import torch

from interp import Transformer, TransformerConfig, probes


def test_a_planted_direction_is_found_in_its_own_coordinates(generator):
    x = torch.randn(400, 12, generator=generator) * torch.linspace(0.1, 30, 12) + 5
    planted = torch.zeros(12)
    planted[3] = 1.0
    labels = (x[:, 3] > 5).long()
    probe = probes.LinearProbe().fit(x, labels)
    assert probe.held_out_score > 0.9
    assert abs(probe.control_score - 0.5) < 0.2
    assert probe.selectivity > 0.3
    spread = probe.direction[0] * x.std(0)
    assert torch.cosine_similarity(spread, planted, dim=0) > 0.95
    assert probe.score(x, labels) > 0.95
    assert (probe.predict(x) == labels).float().mean() > 0.95


def test_several_classes_and_values(generator):
    x = torch.randn(300, 8, generator=generator)
    classes = x[:, :3].argmax(-1) + 10
    probe = probes.LinearProbe().fit(x, classes)
    assert probe.direction.shape == (3, 8)
    assert probe.held_out_score > 0.8
    assert set(probe.predict(x).tolist()) == {10, 11, 12}
    values = x @ torch.arange(8.0) + 3
    ridge = probes.LinearProbe("ridge").fit(x, values)
    assert ridge.held_out_score > 0.99
    assert ridge.control_score < 0.2
    torch.testing.assert_close(ridge.direction[0], torch.arange(8.0), atol=0.1, rtol=0)
    torch.testing.assert_close(ridge.predict(x), values, atol=0.5, rtol=0)


def test_noise_has_no_selectivity(generator):
    x = torch.randn(1000, 20, generator=generator)
    labels = torch.randint(0, 2, (1000,), generator=generator)
    # 200 held out: standard errors of 0.035 and 0.02
    assert abs(probes.LinearProbe().fit(x, labels).selectivity) < 0.15


def test_whole_sequences_are_held_out(generator):
    """Tokens of one sequence carry its label plainly: held-out sequences can't be guessed by it."""
    identity = torch.randn(40, 1, 64, generator=generator).expand(-1, 10, -1)
    labels = torch.randint(0, 2, (40, 1), generator=generator).expand(-1, 10)
    leaked = probes.LinearProbe().fit(identity.reshape(400, 64), labels.reshape(400))
    assert leaked.held_out_score > 0.95
    assert probes.LinearProbe().fit(identity, labels).held_out_score < 0.9


def test_a_sweep_sees_where_information_is():
    config = TransformerConfig(
        n_layers=2, n_heads=2, d_model=16, d_vocab=10, n_ctx=8, positional="none", bos_token=0
    )
    model = Transformer(config).eval()
    tokens = torch.randint(1, 10, (120, 6), generator=torch.Generator().manual_seed(1))
    first = (tokens[:, 0] > 5).long()
    own = probes.sweep_probes(model, "resid_pre", tokens=tokens, labels=first, positions=[0, 5])
    assert own.score.shape == (2, 2)
    assert own.score[0, 0] == 1  # the embedding of the token itself
    assert own.score[0, 1] < 0.8  # layer 0 at the last token knows nothing of the first
    assert own.direction.shape == (2, 2, 1, 16)
    assert own.positions == (0, 5)
    pooled = probes.sweep_probes(model, tokens=tokens, labels=(tokens > 5).long())
    assert pooled.score.shape == (2, 1)
    assert (pooled.score > 0.8).all()
    heads = probes.sweep_probes(model, "z", tokens=tokens, labels=first, positions=[0])
    assert heads.direction.shape[-1] == 16
    assert len(own.frame()) == 4


def test_pads_are_not_fitted():
    config = TransformerConfig(n_layers=1, n_heads=2, d_model=16, d_vocab=10, n_ctx=8)
    model = Transformer(config).eval()
    tokens = torch.randint(0, 10, (60, 6), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(60, 6, dtype=torch.bool)
    mask[:, :2] = False
    labels = (tokens > 5).long()
    a = probes.sweep_probes(model, tokens=tokens, labels=labels, mask=mask, positions=[0, 3])
    changed = tokens.clone()
    changed[:, :2] = 0
    b = probes.sweep_probes(model, tokens=changed, labels=labels, mask=mask, positions=[0, 3])
    torch.testing.assert_close(a.direction, b.direction)


def test_bad_input_is_refused(generator):
    x = torch.randn(20, 4, generator=generator)
    with pytest.raises(ValueError, match="two classes or more"):
        probes.LinearProbe().fit(x, torch.zeros(20).long())
    with pytest.raises(ValueError, match="two classes or more"):
        probes.LinearProbe().fit(x, x[:, 0])
    with pytest.raises(ValueError, match="a label for each"):
        probes.LinearProbe().fit(x, torch.zeros(19).long())
    with pytest.raises(ValueError, match="too few"):
        probes.LinearProbe().fit(x[:2], torch.arange(2))
    with pytest.raises(TypeError, match="activations must be a tensor, got ndarray"):
        probes.LinearProbe().fit(x.numpy(), torch.arange(20) % 2)
    with pytest.raises(RuntimeError, match="not fitted yet"):
        _ = probes.LinearProbe().direction
    with pytest.raises(ValueError, match='"logistic" or "ridge"'):
        probes.LinearProbe("svm")


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
@pytest.mark.parametrize("kind", ["logistic", "ridge"])
def test_numbers_that_are_none_are_counted_and_refused(kind, odd, generator):
    x = torch.randn(20, 4, generator=generator)
    labels = torch.arange(20) % 2
    probe = probes.LinearProbe(kind).fit(x, labels)
    x[3, 1] = odd
    for ask in (probe.fit, probe.score):
        with pytest.raises(ValueError, match="1 of the 80 numbers in activations are NaN or inf"):
            ask(x, labels)
    values = labels.float()
    values[:2] = odd
    with pytest.raises(ValueError, match="2 of the 20 numbers in labels are NaN or inf"):
        probes.LinearProbe("ridge").fit(x.nan_to_num(0.0, 0.0), values)


def test_a_probe_reads_what_is_as_wide_as_what_it_was_fitted_on(generator):
    x = torch.randn(20, 4, generator=generator)
    probe = probes.LinearProbe().fit(x, torch.arange(20) % 2)
    for ask in (probe.predict, lambda x: probe.score(x, torch.arange(20) % 2)):
        with pytest.raises(ValueError, match=r"activations \[\.\.\., 4\], got \[20, 3\]"):
            ask(x[:, :3])


def test_a_class_that_is_only_held_out_is_said_to_be_rare(generator):
    x, labels = torch.randn(20, 4, generator=generator), torch.zeros(20).long()
    held = torch.randperm(20, generator=torch.Generator().manual_seed(0))[:4]
    labels[held] = 1
    with pytest.raises(ValueError, match="16 labels that are fitted.*all 0: a class is too rare"):
        probes.LinearProbe().fit(x, labels, generator=torch.Generator().manual_seed(0))
