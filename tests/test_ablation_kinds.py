"""Each kind of ablation: truth tables, and every sweep against its runs alone from the start."""

import pytest
import torch

from interp import Transformer, TransformerConfig, ablation
from interp.ablation.heads import CUT_SITES
from interp.metrics import loss
from interp.sweeps import SITES, examples_of
from tests.scrambled import scrambled

SHAPES = {
    "standard": {},
    "attention only": {"d_mlp": None},
    "grouped, rotary": {"n_kv_heads": 1, "positional": "rotary"},
    "shortformer": {"positional": "shortformer", "normalization": "rms_norm"},
    "window, alibi": {
        "attention": "window", "attention_options": {"window": 4}, "positional": "alibi",
    },
    "parallel": {"parallel": True},
    "normalised writes": {"post_normalization": "rms_norm"},
    "linear": {"attention": "linear"},
    "smeared, sinks": {"smeared_keys": True, "sink_logits": True},
    "gated, soft caps": {"gated_mlp": True, "score_soft_cap": 2.0},
}  # fmt: skip
KINDS = [kind for kind in ablation.ABLATIONS if kind != "optimal"]  # fitted: a test of its own


def model_of(**options) -> Transformer:
    sizes = {"n_layers": 3, "n_heads": 2, "d_model": 16, "d_vocab": 20, "n_ctx": 24, "d_mlp": 32}
    return scrambled(TransformerConfig(**(sizes | options)))


@pytest.fixture
def tokens(generator):
    return torch.randint(20, (5, 12), generator=generator)


@pytest.fixture
def reference(generator):
    return torch.randint(20, (7, 14), generator=generator)


def padded_mask():
    mask = torch.ones(5, 12, dtype=torch.bool)
    mask[0, :3] = False  # on the left
    mask[2, 9:] = False  # on the right
    return mask


def options_of(kind, reference):
    """What this kind needs."""
    options = {}
    if kind in ("mean", "grand_mean", "resample"):
        options["reference"] = reference
    if kind == "resample":
        options["generator"] = torch.Generator().manual_seed(3)
    return options


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_sweep_is_every_head_cut_alone_from_the_start(shape, kind, padded, tokens, reference):
    model, mask = model_of(**SHAPES[shape]), padded_mask() if padded else None
    if kind == "direct" and shape == "normalised writes":
        pytest.skip("refused: no head has a write of its own")
    swept = ablation.sweep(model, tokens, kind=kind, mask=mask, **options_of(kind, reference))
    asked = examples_of(tokens, mask)
    clean = loss(model(tokens, mask=mask), asked)
    alone = torch.stack(
        [
            loss(
                ablation.ablate(
                    model, tokens, heads=[(layer, head)], kind=kind, mask=mask,
                    **options_of(kind, reference),
                ),
                asked,
            ) - clean
            for layer in range(3) for head in range(2)
        ]
    ).view(3, 2, -1)  # fmt: skip
    # float32, other batch shapes and another order of sums
    torch.testing.assert_close(swept.per_example, alone, atol=2e-5, rtol=0)
    assert alone.abs().max() > 1e-3


@pytest.mark.parametrize(
    "options",
    [*SHAPES.values(), {"qk_normalization": "rms_norm"}, {"qk_normalization": "layer_norm"}],
    ids=[*SHAPES, "queries normalised", "with a bias"],
)
def test_uniform_is_a_pattern_of_equal_weights_on_what_may_be_seen(options, tokens):
    model, mask = model_of(**options), padded_mask()

    def flat(scores, hook):
        scores[:, 1] = torch.where(scores[:, 1] == -torch.inf, -torch.inf, 0.0)

    got = ablation.ablate(model, tokens, heads=[(1, 1)], kind="uniform", mask=mask)
    with torch.no_grad():
        wanted = model(tokens, mask=mask, hooks=[("blocks.1.attn.hook_attn_scores", flat)])
        clean = model(tokens, mask=mask)
    torch.testing.assert_close(got[mask], wanted[mask], atol=2e-5, rtol=1e-5)
    assert (got - clean)[mask].abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["zero", "mean", "grand_mean", "resample"])
@pytest.mark.parametrize("site", CUT_SITES)
def test_every_site_is_cut_as_a_hook_from_the_start_would(site, kind, tokens, reference):
    model, asked = model_of(), examples_of(tokens)
    given = options_of(kind, reference) | {"site": site, "kind": kind}
    swept = ablation.sweep(model, tokens, **given)
    by_head = swept.effect.ndim == 2
    assert by_head == (site not in ("attn_out", "mlp_out", "resid"))
    which = {"heads": [(1, 1)]} if by_head else {"layers": [1]}
    cut = ablation.ablate(
        model, tokens, **which, **options_of(kind, reference), site=site, kind=kind
    )
    with torch.no_grad():
        clean = [("blocks.1.attn.hook_pattern", lambda p, hook: p)] if site == "pattern" else []
        wanted = loss(cut, asked) - loss(model(tokens, hooks=clean), asked)
    got = swept.per_example[1, 1] if by_head else swept.per_example[1]
    torch.testing.assert_close(got, wanted, atol=2e-5, rtol=0)
    assert got.abs().max() > 1e-4
    if kind == "zero":
        axis = 1 if site == "pattern" else 2
        rows = (slice(None),) * axis + (1,) if by_head else ()
        hooked = model(tokens, hooks=[(SITES[site].format(1), lambda x, hook: zeroed(x, rows))])
        torch.testing.assert_close(cut, hooked, atol=2e-5, rtol=0)


def zeroed(x, rows):
    x[rows] = 0.0
    return x
