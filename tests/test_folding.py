import pytest
import torch
from torch.testing import assert_close

import interp
from interp import folding
from interp.checkpoint import WEIGHTS, load_model
from tests.tiny import KINDS, some_tokens, tiny

FOLDS = {
    "fold_layer_norm": folding.fold_layer_norm,
    "center_writing_weights": folding.center_writing_weights,
    "center_unembed": folding.center_unembed,
    "fold_value_biases": folding.fold_value_biases,
}
MORE = {
    "tied": {"tied_embeddings": True, "d_mlp": 64},
    "tied_rms": {"tied_embeddings": True, "normalization": "rms_norm", "bias": False},
    "few_biases": {"bias": ("qkv", "norm"), "d_mlp": 64, "gated_mlp": True, "n_kv_heads": 2},
    "sandwich": {"post_normalization": "rms_norm", "normalization": "rms_norm", "d_mlp": 64},
}


def refused(fold, model):
    config = model.config
    return (
        (fold == "fold_layer_norm" and config.positional == "shortformer")
        or (fold == "center_unembed" and config.logit_soft_cap is not None)
        or (
            fold == "center_writing_weights"
            and not (
                config.normalization.startswith("layer") and config.post_normalization == "none"
            )
        )
    )


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("kind", [*KINDS, *MORE])
def test_a_fold_keeps_what_is_computed_or_names_what_forbids_it(fold, kind):
    changes = {"normalization": "layer_norm", **MORE[kind]} if kind in MORE else {}
    model = tiny("bare" if kind in MORE else kind, **changes)
    tokens = some_tokens()
    mask = torch.ones(3, 12, dtype=torch.bool)
    mask[0, :3], mask[1, 9:] = False, False
    before = {name: x.clone() for name, x in model.state_dict().items()}
    if refused(fold, model):
        with pytest.raises(ValueError, match=r"positional|normalization|logit_soft_cap"):
            FOLDS[fold](model)
        return
    folded = FOLDS[fold](model)
    assert_close(
        folded(tokens, mask=mask).log_softmax(-1)[mask],
        model(tokens, mask=mask).log_softmax(-1)[mask],
        atol=1e-5,
        rtol=1e-5,
    )
    assert all(torch.equal(before[name], x) for name, x in model.state_dict().items())
    stored = {x.data_ptr() for x in model.parameters()}
    assert not stored & {x.data_ptr() for x in folded.parameters()}


def test_after_folding_the_norms_have_no_gain_and_matrices_read_no_mean():
    folded = folding.fold_layer_norm(tiny("mlp"))
    assert not [name for name, _ in folded.named_parameters() if ".ln" in name]
    assert folded.W_Q.mean(2).abs().max() < 1e-6
    assert folded.W_U.mean(0).abs().max() < 1e-6


def test_after_centring_the_stream_has_no_mean():
    _, cache = folding.center_writing_weights(tiny("mlp")).run_with_cache(some_tokens())
    assert cache["resid_post", -1].mean(-1).abs().max() < 1e-6


def test_after_folding_values_there_is_no_value_bias():
    folded = folding.fold_value_biases(tiny("mlp"))
    assert (folded.b_V == 0).all()
    assert (folded.b_O != 0).any()


def test_a_tied_embedding_is_not_edited():
    model = tiny("mlp", tied_embeddings=True)
    for fold in FOLDS.values():
        folded = fold(model)
        same_embedding = fold is not folding.center_writing_weights
        assert torch.equal(folded.W_E, model.W_E) == same_embedding


def test_a_folded_model_survives_a_round_trip(tmp_path):
    folded = folding.fold_layer_norm(tiny("mlp", tied_embeddings=True))
    folder = interp.save(folded, tmp_path / "folded")
    loaded = load_model(folded.config, folder / WEIGHTS)
    assert torch.equal(loaded(some_tokens()), folded(some_tokens()))
