"""Detectors of one's own, profiles by distance, divergences between models."""

import pytest
import torch

from interp import Transformer, TransformerConfig, probes
from tests import oracle


def before(tokens):
    return torch.arange(tokens.shape[1]).expand_as(tokens) - 1


def small(**changes) -> Transformer:
    sizes = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_vocab": 12, "n_ctx": 32}
    model = Transformer(TransformerConfig(**(sizes | {"init_scale": 3.0} | changes))).eval()
    return model.requires_grad_(False)


def noop(x, hook):
    """Asks for the pattern, and leaves it alone."""


PATTERNS = [("blocks.*.attn.hook_pattern", noop)]


@pytest.mark.parametrize("hooks", [[], PATTERNS])
def test_a_detector_is_a_line(hooks):
    scores = probes.head_score(oracle.model(), oracle.repeated(7), before, hooks=hooks)
    assert scores[0, 0] == 1
    assert scores[1, 0] < 0.1


def test_own_detector_equals_the_built_in_score(generator):
    model = small(bos_token=0)
    tokens = torch.randint(0, 12, (3, 20), generator=generator)
    mine = probes.head_score(model, tokens, before)
    torch.testing.assert_close(mine, probes.head_statistics(model, tokens).previous_token)
    nothing = probes.head_score(model, tokens, lambda t: torch.full_like(t, -1))
    assert nothing.isnan().all()
    future = probes.head_score(model, tokens, lambda t: torch.full_like(t, 19), rows=tokens < 99)
    assert (future < 0.1).all()  # only the last row may see it


def test_a_sink_logit_takes_its_share_of_what_is_scored(generator):
    model, tokens = small(sink_logits=True), torch.randint(0, 12, (2, 20), generator=generator)
    whole = probes.head_score(model, tokens, before)
    model.blocks[0].attn.sink.copy_(torch.tensor([50.0, -50.0]))
    found = probes.head_score(model, tokens, before)
    assert found[0, 0] < 1e-3
    assert found[0, 1] > whole[0, 1]
    dense = probes.head_score(model, tokens, before, hooks=PATTERNS)
    torch.testing.assert_close(found, dense, atol=1e-5, rtol=1e-4)


def test_targets_that_are_no_slots_are_refused():
    model, tokens = small(), torch.zeros(1, 5).long()
    with pytest.raises(ValueError, match="key ind"):
        probes.head_score(model, tokens, lambda t: t[:, :3])
    with pytest.raises(ValueError, match="slots from 0 to 4"):
        probes.head_score(model, tokens, lambda t: torch.full_like(t, 5))


@pytest.mark.parametrize("hooks", [[], PATTERNS])
def test_profiles_have_their_peak_where_a_head_looks(hooks):
    heads = (oracle.look_back(1), oracle.look_back(4), oracle.uniform)
    tokens = oracle.repeated(7)
    profile = probes.offset_profile(
        oracle.model(heads, heads), tokens, max_distance=6, hooks=hooks, rows=before(tokens) >= 3
    )
    assert profile.weight.shape == (2, 3, 7)
    assert profile.weight[0, 0].tolist() == [0, 1, 0, 0, 0, 0, 0]
    assert profile.weight[0, 1].tolist() == [0, 0, 0, 0, 1, 0, 0]
    assert profile.n_rows[0] == 4 * 18
    assert (profile.weight[0, 2] > 0).all()


def test_profiles_of_windows_and_paddings(generator):
    model = small(attention="window", attention_options={"window": 3})
    tokens = torch.randint(0, 12, (2, 10), generator=generator)
    profile = probes.offset_profile(model, tokens, max_distance=5)
    torch.testing.assert_close(profile.weight[:, :, 0].isnan().any(), torch.tensor(False))
    assert profile.weight[:, :, 3:].isnan().all()
    assert profile.n_rows.tolist() == [20, 18, 16, 0, 0, 0]
    pads = torch.zeros(2, 4).long()
    mask = torch.cat([pads.bool(), torch.ones(2, 10).bool()], 1)
    padded = probes.offset_profile(model, torch.cat([pads, tokens], 1), max_distance=5, mask=mask)
    torch.testing.assert_close(padded.weight, profile.weight, equal_nan=True)
    with pytest.raises(ValueError, match="from 0 on"):
        probes.offset_profile(model, tokens, max_distance=-1)


def test_divergence_of_models_is_that_of_their_patterns(generator):
    a, b = small(), small(init_seed=1)
    tokens = torch.randint(0, 12, (2, 16), generator=generator)
    found = probes.pattern_divergence(a, b, tokens)
    p, r = (m.run_with_cache(tokens)[1] for m in (a, b))
    for layer in range(2):
        x, y = p["pattern", layer].double(), r["pattern", layer].double()
        want = torch.where(x > 0, x * (x / y).log(), 0.0).sum(-1).mean((0, 2))
        torch.testing.assert_close(found[layer].double(), want, atol=1e-4, rtol=1e-4)
    assert probes.pattern_divergence(a, a, tokens).abs().max() < 1e-4
    dense = probes.pattern_divergence(a, b, tokens, hooks=PATTERNS, hooks_b=PATTERNS)
    torch.testing.assert_close(dense, found, atol=1e-4, rtol=1e-4)


def test_divergence_under_an_intervention_starts_at_the_layer_above(generator):
    model = small()
    tokens = torch.randint(0, 12, (2, 16), generator=generator)
    hooks = [("blocks.0.attn.hook_z", lambda z, hook: z * 0)]
    told = []
    found = probes.pattern_divergence(
        model, model, tokens, hooks=hooks, progress=lambda done, total: told.append((done, total))
    )
    assert (found[0] < 1e-4).all()
    assert (found[1] > 1e-3).all()
    assert told == [(1, 2), (2, 2)]
    with pytest.raises(ValueError, match="head by head"):
        probes.pattern_divergence(model, small(n_layers=1), tokens)
