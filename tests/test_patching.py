"""Patching: each patch against its run alone, estimates where they are exact, known circuits."""

import pytest
import torch

from interp import TransformerConfig, patching
from interp.metrics import METRICS, kl_divergence, logit_difference, weighted_mean
from interp.patching.activations import PATCH_SITES
from interp.sweeps import SITES, examples_of
from interp.tasks import Batch
from tests import oracle
from tests.scrambled import scrambled


def model_of(**options):
    sizes = {"n_layers": 3, "n_heads": 2, "d_model": 24, "d_vocab": 16, "n_ctx": 16, "d_mlp": 48}
    return scrambled(TransformerConfig(**(sizes | options)))


@pytest.fixture(scope="module")
def model():
    return model_of()


@pytest.fixture(scope="module")
def ends():
    g = torch.Generator().manual_seed(0)
    clean = torch.randint(16, (4, 10), generator=g)
    corrupted = clean.clone()
    corrupted[:, 3] = (corrupted[:, 3] + 5) % 16
    return clean, corrupted


def judged(logits, clean):
    return logit_difference(logits, examples_of(clean))


@pytest.mark.parametrize("direction", ["denoising", "noising"])
@pytest.mark.parametrize("site", PATCH_SITES)
@torch.no_grad()
def test_each_patch_is_its_run_alone_from_the_start(model, ends, site, direction):
    clean, corrupted = ends
    base, source = (corrupted, clean) if direction == "denoising" else (clean, corrupted)
    found = patching.activation_patching(model, clean, corrupted, site=site, direction=direction)
    name = SITES[site].format(1)
    _, cache = model.run_with_cache(source, name)
    by_head = site in ("z", "q", "k", "v", "pattern")
    where = (slice(None), 1) if site == "pattern" else (slice(None), slice(None), 1)
    where = where if by_head else (slice(None), 4)

    def carry(x, hook):
        x[where] = cache[name][where]

    alone = judged(model(base, hooks=[(name, carry)]), clean) - judged(model(base), clean)
    column = 1 if by_head else 4
    torch.testing.assert_close(found.per_example[1, column], alone, atol=2e-5, rtol=0)
    assert alone.abs().max() > 1e-4


@pytest.mark.parametrize("metric", [*METRICS, "kl", "of one's own"])
@torch.no_grad()
def test_every_metric_is_that_of_the_patched_logits(model, ends, metric):
    clean, corrupted = ends
    asked = examples_of(clean)
    own = {"kl": lambda logits, batch: kl_divergence(logits, batch, reference=model(clean))}
    own["of one's own"] = lambda logits, batch: logits[:, -1, 3]
    measure = METRICS.get(metric) or own[metric]
    given = measure if metric == "of one's own" else metric
    found = patching.activation_patching(model, clean, corrupted, metric=given)
    _, cache = model.run_with_cache(clean, "blocks.1.attn.hook_z")

    def carry(z, hook):
        z[:, :, 1] = cache["blocks.1.attn.hook_z"][:, :, 1]

    patched = model(corrupted, hooks=[("blocks.1.attn.hook_z", carry)])
    wanted = measure(patched, asked) - measure(model(corrupted), asked)
    torch.testing.assert_close(found.per_example[1, 1], wanted, atol=2e-5, rtol=0)
    if metric == "kl":
        assert (found.base_per_example > 0).all()
        assert (found.source_per_example == 0).all()


@pytest.mark.parametrize("site", PATCH_SITES)
def test_clean_into_clean_changes_exactly_nothing(model, ends, site):
    clean, _ = ends
    found = patching.activation_patching(model, clean, clean, site=site)
    assert (found.per_example == 0).all()
    with pytest.raises(ValueError, match="nothing to recover"):
        _ = found.recovery


def test_before_the_first_difference_nothing_changes_exactly(model, ends):
    found = patching.activation_patching(model, *ends, site="resid")
    assert (found.effect[:, :3] == 0).all()
    assert (found.effect[:, 3] != 0).all()


def test_all_of_the_residual_stream_recovers_all(model, ends):
    """The one position that differs, before any layer ran, is the whole difference."""
    for direction in ("denoising", "noising"):
        found = patching.activation_patching(model, *ends, site="resid", direction=direction)
        torch.testing.assert_close(found.recovery[0, 3], torch.tensor(1.0), atol=1e-4, rtol=0)


def test_positions_are_absolute_under_padding(model, ends):
    clean, corrupted = ends
    wanted = patching.activation_patching(model, clean, corrupted, site="attn_out")
    pad = torch.zeros(4, 2, dtype=torch.long)
    mask = torch.arange(12).expand(4, -1) >= 2
    padded = [torch.cat([pad, x], 1) for x in ends]
    got = patching.activation_patching(model, *padded, site="attn_out", mask=mask)
    torch.testing.assert_close(got.effect, wanted.effect, atol=2e-5, rtol=0)
    estimate = patching.attribution_patching(model, *ends, site="attn_out")
    moved = patching.attribution_patching(model, *padded, site="attn_out", mask=mask)
    torch.testing.assert_close(moved.effect, estimate.effect, atol=2e-5, rtol=0)


def test_ends_that_do_not_correspond_are_refused(model, ends):
    clean, corrupted = ends
    with pytest.raises(ValueError, match="agree in shape"):
        patching.activation_patching(model, clean, corrupted[:, :-1])
    with pytest.raises(ValueError, match="direction"):
        patching.activation_patching(model, clean, corrupted, direction="up")
    with pytest.raises(ValueError, match="no heads"):
        patching.activation_patching(model, clean, corrupted, site="resid", by="head")
    with pytest.raises(ValueError, match="to patch"):
        patching.activation_patching(model, clean, corrupted, site="final")


# --- the hand-set circuit -----------------------------------------------------------------


def induction_ends():
    """Blocks repeated twice; corrupted: the first copy is another one, so nothing matches."""
    tokens = oracle.repeated(6, blocks=2, n=4)
    other = tokens.clone()
    other[:, 1:7] = (tokens[:, 1:7] + 7) % 19
    targets = torch.full_like(tokens, -100)
    targets[:, 7:-1] = tokens[:, 8:]
    return Batch(tokens, torch.ones_like(tokens).bool(), targets), other


@pytest.mark.parametrize("direction", ["denoising", "noising"])
def test_patching_finds_the_induction_head_and_no_decoy(direction):
    model, (clean, corrupted) = oracle.model(), induction_ends()
    found = patching.activation_patching(model, clean, corrupted, direction=direction)
    assert found.recovery[1, 0] == pytest.approx(1.0)
    assert found.effect[0, 1] == 0
    assert found.effect[1, 1] == 0


def test_the_one_edge_runs_through_keys():
    """Path by path: the previous-token head tells the induction head's keys, and nobody else."""
    model, (clean, corrupted) = oracle.model(), induction_ends()
    for receiver in [(1, 0), (1, 1)]:
        for through in ("q", "k", "v"):
            found = patching.path_patching(
                model, clean, corrupted, receivers=[receiver], through=through
            )
            key_edge = receiver == (1, 0) and through == "k"
            assert (abs(found.effect[0, 0]) > 0.3) == key_edge
            assert found.effect[0, 1] == 0
            assert found.effect[1].isnan().all()
    direct = patching.path_patching(model, clean, corrupted)
    assert (direct.effect.abs() > 0.3).tolist() == [[False, False], [True, False]]


def test_live_mlps_pass_on_what_frozen_ones_do_not(model, ends):
    frozen = patching.path_patching(model, *ends)
    live = patching.path_patching(model, *ends, freeze_mlps=False)
    alone = patching.activation_patching(model, *ends, direction="noising")
    # of the last layer's heads, all that is patched reaches the logits, through the MLP or not
    torch.testing.assert_close(live.effect[2], alone.effect[2], atol=1e-5, rtol=0)
    assert (frozen.effect[2] - alone.effect[2]).abs().max() > 1e-3


def test_paths_name_what_is_not_there(model, ends):
    with pytest.raises(ValueError, match="no path"):
        patching.path_patching(model, *ends, receivers=[(0, 1)], through="q")
    with pytest.raises(ValueError, match="layers 0 … 2"):
        patching.path_patching(model, *ends, receivers=[(3, 0)], through="q")
    with pytest.raises(ValueError, match="not in this model"):
        patching.path_patching(model, *ends, senders=[(9, 9)])


def test_weighted_means_are_over_tokens(model, ends):
    clean, corrupted = ends
    targets = torch.full_like(clean, -100)
    targets[0, 4:6], targets[1, 4:9], targets[2, 9] = 1, 2, 3
    batch = Batch(clean, torch.ones_like(clean).bool(), targets)
    found = patching.activation_patching(model, batch, corrupted)
    assert found.weights.tolist() == [2, 5, 1, 0]
    assert not found.effect.isnan().any()
    assert found.per_example[..., 3].isnan().all()
    wanted = weighted_mean(found.per_example, found.weights)
    torch.testing.assert_close(found.effect, wanted)
