"""What an experiment can't take is refused in words, and nothing is rounded to what it can."""

import pytest
import torch

import interp
from interp import Transformer, TransformerConfig, ablation, circuits, patching
from interp.training.chosen import chosen_heads
from tests.hugging_face_models import make

SIZES = {"n_layers": 2, "n_heads": 2, "d_model": 8, "d_vocab": 12, "n_ctx": 8}


@pytest.fixture(scope="module")
def model():
    return Transformer(TransformerConfig(**SIZES)).eval()


@pytest.fixture(scope="module")
def ends():
    clean = torch.randint(12, (2, 6), generator=torch.Generator().manual_seed(0))
    corrupted = clean.clone()
    corrupted[:, 2] = (corrupted[:, 2] + 5) % 12
    return clean, corrupted


NAMED = {
    "ablate": lambda m, a, b, heads: ablation.ablate(m, a, heads=heads),
    "sweep": lambda m, a, b, heads: ablation.sweep(m, a, heads=heads),
    "group": lambda m, a, b, heads: ablation.group(m, a, heads=heads),
    "conditional": lambda m, a, b, heads: ablation.conditional(m, a, given=heads),
    "pairwise": lambda m, a, b, heads: ablation.pairwise(m, a, heads=heads),
    "receivers": lambda m, a, b, heads: patching.path_patching(m, a, b, receivers=heads),
    "senders": lambda m, a, b, heads: patching.path_patching(m, a, b, senders=heads),
}


@pytest.mark.parametrize("experiment", NAMED)
@pytest.mark.parametrize("pair", [(1, 0.5), (1, True), (1.0, 0), (1, "0"), (1, torch.tensor(True))])
def test_a_head_that_is_no_whole_number_is_not_rounded(model, ends, experiment, pair):
    with pytest.raises(TypeError, match="layer and head are whole numbers"):
        NAMED[experiment](model, *ends, [(1, 1), pair])


@pytest.mark.parametrize("experiment", NAMED)
def test_heads_that_are_no_list_of_pairs_are_refused(model, ends, experiment):
    with pytest.raises(TypeError, match="a list of pairs"):
        NAMED[experiment](model, *ends, 3)
    with pytest.raises(ValueError, match="wanted pairs"):
        NAMED[experiment](model, *ends, [(0, 0, 1)])


def test_whole_numbers_of_other_kinds_are_heads(model, ends):
    heads = [(torch.tensor(0), torch.tensor(1)), [1, 0]]
    found = ablation.sweep(model, ends[0], heads=heads).effect
    assert found.isnan().tolist() == [[True, False], [False, True]]


def test_a_layer_that_is_no_whole_number_is_refused(model, ends):
    with pytest.raises(TypeError, match="whole numbers"):
        ablation.ablate(model, ends[0], site="resid", layers=[0.5])
    with pytest.raises(TypeError, match="layers are a list"):
        ablation.ablate(model, ends[0], site="resid", layers=1)


@pytest.mark.parametrize("pair", [(1, 1.0), (1, True), (True, 1)])
def test_a_clamp_holds_whole_numbers_alone(pair):
    with pytest.raises(ValueError, match="heads are pairs"):
        chosen_heads(TransformerConfig(**SIZES), layers=None, heads=(pair,))
    assert chosen_heads(TransformerConfig(**SIZES), layers=None, heads=((1, 1),)) == [(1, 1)]


def test_kl_has_no_gradient_where_both_runs_are_the_same(model, ends):
    with pytest.raises(ValueError, match="vanishes where the two runs are the same.*steps=5"):
        patching.edge_attribution(model, *ends, metric="kl")
    with pytest.raises(
        ValueError, match="vanishes where the two runs are the same.*at='corrupted'"
    ):
        patching.attribution_patching(model, *ends, metric="kl", at="clean")
    with pytest.raises(ValueError, match="no head would have any importance"):
        ablation.importance(model, ends[0], metric="kl")


def test_kl_has_a_gradient_elsewhere(model, ends):
    assert patching.edge_attribution(model, *ends, metric="kl", steps=2).scores.nan_to_num().any()
    found = patching.attribution_patching(model, *ends, metric="kl", at="corrupted")
    assert found.effect.abs().max() > 1e-6


PATCHED = [patching.activation_patching, patching.attribution_patching]


@pytest.mark.parametrize("patched", PATCHED)
def test_patching_says_what_model_metric_and_site_it_takes(model, ends, patched):
    with pytest.raises(TypeError, match=r"interp.Transformer, or .*interp.wrap.*got int"):
        patched(3, *ends)
    with pytest.raises(TypeError, match="a metric is one of .*got None"):
        patched(model, *ends, metric=None)
    with pytest.raises(ValueError, match="this model has no MLPs"):
        patched(model, *ends, site="mlp_out")


OF_PATHS = {
    "paths": patching.path_patching,
    "edges": patching.edge_patching,
    "edges to first order": patching.edge_attribution,
    "circuits": lambda m, a, b: patching.faithfulness_curve(m, a, b, scores=None),
}


@pytest.mark.parametrize("patched", OF_PATHS.values(), ids=OF_PATHS)
def test_paths_and_edges_say_what_model_they_take(model, ends, patched):
    with pytest.raises(TypeError, match=r"interp.Transformer, or .*interp.wrap.*got int"):
        patched(3, *ends)
    wrapped = interp.wrap(make("gpt2"))
    with pytest.raises(ValueError, match="which a wrapped model does not offer"):
        patched(wrapped, *ends)


def test_circuits_are_made_by_scores_of_edges(model, ends):
    with pytest.raises(TypeError, match="what edge_attribution or edge_patching give.*NoneType"):
        patching.faithfulness_curve(model, *ends, scores=None)


@pytest.mark.parametrize(
    ("memory", "error"),
    [("1GB", TypeError), (True, TypeError), (float("nan"), ValueError), (1.5, ValueError)],
)
def test_a_bound_on_memory_is_a_whole_number_of_bytes(model, ends, memory, error):
    with pytest.raises(error, match="memory is a bound in bytes"):
        patching.activation_patching(model, *ends, memory=memory)
    with pytest.raises(error, match="memory is a bound in bytes"):
        ablation.sweep(model, ends[0], memory=memory)


def test_a_bound_may_be_written_as_a_float(model, ends):
    tight, wide = (ablation.sweep(model, ends[0], memory=m).effect for m in (1e3, None))
    torch.testing.assert_close(tight, wide)


@pytest.mark.parametrize("steps", [1.5, "5", None, True])
def test_steps_are_a_whole_number(model, ends, steps):
    with pytest.raises(TypeError, match="steps is a whole number"):
        patching.edge_attribution(model, *ends, steps=steps)


@pytest.mark.parametrize("option", [{"grad_drop": "yes"}, {"qk_correction": "no"}])
def test_switches_are_true_or_false(model, ends, option):
    with pytest.raises(TypeError, match="is True or False"):
        patching.attribution_patching(model, *ends, **option)


def test_gradients_are_not_taken_where_none_are_kept(model, ends):
    with torch.inference_mode():
        for patched in (patching.edge_attribution, patching.attribution_patching):
            with pytest.raises(RuntimeError, match=r"inference_mode\(\) keeps none"):
                patched(model, *ends)
        with pytest.raises(RuntimeError, match=r"inference_mode\(\) keeps none"):
            ablation.importance(model, ends[0])
    with torch.no_grad():
        assert patching.edge_attribution(model, *ends).scores.nan_to_num().any()


@pytest.mark.parametrize("share", [2, 0, float("nan"), "half"])
def test_a_share_of_the_induction_score_lies_up_to_one(model, share):
    with pytest.raises(ValueError, match="share lies above 0 and up to 1"):
        circuits.induction_circuit(model, share=share)


def test_heads_without_evidence_make_no_circuit(model):
    with pytest.raises(TypeError, match="find_induction_heads"):
        circuits.induction_circuit(model, found=[(1, 0)])


def test_a_receiver_is_not_told_twice(model, ends):
    with pytest.raises(ValueError, match=r"receiver \(1, 0\) is named twice"):
        patching.path_patching(model, *ends, receivers=[(1, 0), (1, 0)])
