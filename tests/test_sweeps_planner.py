"""The planner: what it runs, how much of it at once, and that it can be stopped."""

from contextlib import contextmanager

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from interp import TransformerConfig, ablation, patching, wrap
from interp.attention import kernels
from interp.metrics import loss
from interp.sweeps import Edit, Intervention, Plan, examples_of, run
from interp.sweeps.entries import Entry, entry_of
from interp.sweeps.memory import budget_of
from interp.tasks import Batch
from tests.hugging_face_models import make
from tests.scrambled import scrambled


def model_of(**options):
    sizes = {"n_layers": 4, "n_heads": 4, "d_model": 32, "d_vocab": 16, "n_ctx": 20, "d_mlp": 128}
    return scrambled(TransformerConfig(**(sizes | options)))


@pytest.fixture(scope="module")
def model():
    return model_of()


@pytest.fixture
def tokens(generator):
    return torch.randint(16, (6, 12), generator=generator)


def zero(x, slots):
    return torch.zeros_like(x)


@pytest.mark.parametrize(
    ("edits", "entry"),
    [
        ([("z", 1)], Entry(1, "behind")),
        ([("z", 1), ("z", 3)], Entry(1, "behind")),
        ([("z", 1), ("mlp_out", 1)], Entry(1, "before")),
        ([("v", 2)], Entry(2, "before")),
        ([("resid", 0)], Entry(0, "before")),
        ([("final", 3)], Entry(4, "end")),
        ([("final", 3), ("z", 3)], Entry(3, "behind")),
        ([], Entry(4, "end")),
    ],
)
def test_a_run_starts_as_late_as_its_lowest_edit_allows(model, tokens, edits, entry):
    made = tuple(Edit(site, layer, 1 if site in "zv" else None, zero) for site, layer in edits)
    assert entry_of(Intervention(made), model.config) == entry
    # and says what the same edits say from the start
    asked = examples_of(tokens)
    outcome = run(model, asked, [Intervention(made)])
    with torch.no_grad():
        hooks = [(e.name, _as_hook(e)) for e in made]
        alone = loss(model(tokens, hooks=hooks), asked)
    torch.testing.assert_close(outcome.changed[0], alone, atol=1e-5, rtol=0)


def _as_hook(edit):
    def hook(x, _):
        if edit.head is None:
            return torch.zeros_like(x)
        x[:, :, edit.head] = 0
        return x

    return hook


def _flops(action):
    with FlopCounterMode(display=False) as counter:
        action()
    return counter.get_total_flops()


def test_layers_below_a_head_never_run_again(model, tokens):
    """Against L·H whole runs: clean once, then MLP and what is above, for each head."""
    asked = examples_of(tokens)
    once = _flops(lambda: model(tokens))
    swept = _flops(lambda: ablation.sweep(model, asked))
    layers, heads = 4, 4
    # half the layers on average, less the attention that each run starts behind
    assert swept < (1 / 16 + (layers + 1) / (2 * layers)) * layers * heads * once


def test_position_patching_runs_the_layers_above_and_the_tokens_behind_alone(model, tokens):
    """Both ends and all patches together stay under (L+1)/2L of the layers' work."""
    other, runs, layers = tokens.flip(0), 4 * 12, 4
    once = _flops(lambda: model(tokens))
    unembed = _flops(lambda: model(model(tokens, stop_at_layer=3), start_at_layer=4))
    with _counted(model) as done:
        patched = _flops(lambda: patching.activation_patching(model, tokens, other, site="resid"))
    above = (layers + 1) / (2 * layers)
    ends = 3 * layers  # the run that is patched, once for its end and once to start from
    behind = sum(range(2, 13, 2)) / 72  # runs start at positions 0, 2, … 10 of 12
    assert sum(done) == (ends + runs * layers * above * behind) * tokens.numel()
    assert sum(done) < 0.75 * runs * layers * above * tokens.numel()
    assert patched < runs * (above * (once - unembed) + unembed)


@contextmanager
def _counted(model):
    """Tokens that each block runs, examples × positions."""
    done, blocks = [], list(model.blocks)
    runs = [block.forward for block in blocks]

    def watched(run):
        return lambda resid, tap, where: (
            done.append(resid[..., 0].numel()) or run(resid, tap, where)
        )

    for block, run_block in zip(blocks, runs, strict=True):
        block.forward = watched(run_block)
    try:
        yield done
    finally:
        for block in blocks:
            del block.forward


@pytest.mark.parametrize("site", ["resid", "k", "z", "mlp_out"])
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"positional": "rotary", "n_kv_heads": 2},
        {"positional": "alibi", "attention": "window", "attention_options": {"window": 5}},
        {"positional": "shortformer"},  # these three run all tokens
        {"attention": "full"},
        {"smeared_keys": True},
    ],
)
def test_the_tokens_behind_alone_say_what_whole_runs_say(shape, site, tokens):
    model, other = model_of(**shape), tokens.flip(0)
    real = torch.ones_like(tokens, dtype=torch.bool)
    asked = {"site": site, "by": "position"}
    some = patching.activation_patching(model, tokens, other, **asked)
    longer = [torch.cat([x, x[:, :1]], 1) for x in (tokens, other)]  # a pad: whole runs
    batch = Batch(longer[0], torch.cat([real, ~real[:, :1]], 1), _targets(tokens))
    corrupted = Batch(longer[1], batch.mask, batch.targets)
    whole = patching.activation_patching(model, batch, corrupted, **asked)
    torch.testing.assert_close(some.per_example, whole.per_example, atol=2e-5, rtol=1e-5)
    assert some.effect.abs().max() > 1e-3


def _targets(tokens):
    return torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :2], -100)], 1)


@pytest.mark.parametrize("memory", [1, 20_000, 100_000, 1 << 28])
def test_a_bound_on_memory_changes_no_number(model, tokens, memory):
    wanted = ablation.sweep(model, tokens, kind="mean", reference=tokens)
    got = ablation.sweep(model, tokens, kind="mean", reference=tokens, memory=memory)
    torch.testing.assert_close(got.per_example, wanted.per_example, atol=2e-5, rtol=0)


def test_a_bound_divides_examples_and_interventions(model, tokens):
    asked = examples_of(tokens)
    one = 4 * 12 * (2 * 128 + 4 * 32)
    kept = 4 * 12 * (2 * 4 * 32 + 16)
    assert budget_of(model, asked, 1).examples == 1
    assert budget_of(model, asked, 2 * (one + kept)).examples == 2
    whole = budget_of(model, asked, 6 * (3 * one + kept))
    assert (whole.examples, whole.interventions) == (6, 3)
    assert budget_of(model, asked, 1, splits=False).examples == 6
    n_by_n = 3 * 4 * 4 * 12**2
    with_patterns = budget_of(model, asked, 6 * (2 * (one + n_by_n) + kept), patterns=True)
    assert (with_patterns.examples, with_patterns.interventions) == (6, 2)


def test_no_batch_is_larger_than_its_bound(model, tokens):
    rows = []
    one = 4 * 12 * (2 * 128 + 4 * 32)
    kept = 4 * 12 * (2 * 4 * 32 + 16)
    run_layer = model.blocks[3].forward

    def watched(resid, tap, where):
        rows.append(len(resid))
        return run_layer(resid, tap, where)

    model.blocks[3].forward = watched
    try:
        ablation.sweep(model, tokens, memory=6 * (2 * one + kept))
    finally:
        del model.blocks[3].forward
    assert max(rows) == 12  # two interventions on six examples


def test_progress_is_told_and_may_cancel(model, tokens):
    told = []
    ablation.sweep(model, tokens, memory=1, progress=lambda *at: told.append(at))
    assert told[-1] == (16, 16)
    assert [done for done, _ in told] == sorted(done for done, _ in told)

    def cancel(done, total):
        if done >= 4:
            raise TimeoutError

    before = model(tokens)
    with pytest.raises(TimeoutError):
        ablation.sweep(model, tokens, progress=cancel)
    assert torch.equal(model(tokens), before)


def test_progress_of_pairs_counts_pairs(model, tokens):
    told = []
    ablation.pairwise(model, tokens, progress=lambda *at: told.append(at))
    assert told[-1] == (16 + 120, 16 + 120)


@pytest.mark.parametrize("kind", ["zero", "uniform", "pattern_preserving", "direct"])
def test_fused_attention_stays_on(model, tokens, kind, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a pattern was materialised")

    monkeypatch.setattr(kernels, "pattern_of", refuse)
    ablation.sweep(model, tokens, kind=kind)
    ablation.pairwise(model, tokens, kind=kind)


def test_only_the_layer_whose_pattern_is_edited_is_materialised(tokens, monkeypatch):
    layers, whole = [], kernels.materialised

    def watched(call, tap):
        layers.append(call.layer)
        return whole(call, tap)

    monkeypatch.setattr(kernels, "materialised", watched)
    ablation.ablate(model_of(positional="alibi"), tokens, heads=[(2, 1)], kind="uniform")
    assert layers == [2]


def test_a_metric_of_ones_own_sees_each_intervention_as_a_batch(model, tokens):
    seen = []

    def last_logit(logits, batch):
        seen.append((tuple(logits.shape), batch.tokens.shape))
        return logits[:, -1, 0]

    swept = ablation.sweep(model, tokens, metric=last_logit, memory=1)
    assert set(seen) == {((6, 12, 16), (6, 12))}
    cut = ablation.ablate(model, tokens, heads=[(2, 3)])
    wanted = (cut - model(tokens))[:, -1, 0]
    torch.testing.assert_close(swept.per_example[2, 3], wanted, atol=2e-5, rtol=0)


def test_a_metric_that_is_no_number_an_example_is_refused(model, tokens):
    with pytest.raises(ValueError, match="one number an example"):
        ablation.sweep(model, tokens, metric=lambda logits, batch: logits.mean())
    with pytest.raises(ValueError, match="no metric"):
        ablation.sweep(model, tokens, metric="los")


def test_kl_is_zero_where_nothing_changes(model, tokens):
    swept = ablation.sweep(model, tokens, metric="kl")
    assert swept.clean == 0
    assert (swept.effect > 0).all()
    outcome = run(model, examples_of(tokens), [Intervention()], Plan("kl"))
    assert outcome.changed.abs().max() < 1e-6


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("kind", ["zero", "mean", "uniform", "pattern_preserving"])
def test_a_wrapped_model_is_swept_from_the_start(family, kind):
    hf = make(family)
    model, tokens = wrap(hf), torch.randint(12, (3, 8), generator=torch.Generator().manual_seed(2))
    hf.train()
    given = {"reference": tokens.flip(1)} if kind == "mean" else {}
    swept = ablation.sweep(model, tokens, kind=kind, **given)
    assert hf.training
    hf.eval()
    cut = ablation.ablate(model, tokens, heads=[(1, 1)], kind=kind, **given)
    asked = examples_of(tokens)
    with torch.no_grad():
        wanted = loss(cut, asked) - loss(hf(tokens).logits, asked)
    torch.testing.assert_close(swept.per_example[1, 1], wanted, atol=1e-5, rtol=0)
    assert wanted.abs().max() > 1e-5


def test_what_a_wrapped_model_does_not_offer_is_refused():
    model, tokens = wrap(make("gpt2")), torch.arange(8)[None]
    with pytest.raises(ValueError, match="wrapped"):
        ablation.sweep(model, tokens, kind="direct")
    with pytest.raises(ValueError, match="wrapped"):
        patching.path_patching(model, tokens, tokens)
