"""Training under σReparam: plain weights are saved, and a run goes on bit by bit."""

import pytest
import torch

import interp
from interp.runs import checkpoint_steps
from interp.spectral import one_iteration, reparametrise
from interp.training import TrainingOptions
from tests.tiny_runs import Cancelled, cancel_at, same_weights, tiny_config, trained, untimed

HOW = {"sigma_reparam": True, "steps": 20, "checkpoints_per_octave": 0}


def spectral_norms(model):
    return [
        float(torch.linalg.matrix_norm(m.weight.detach(), 2))
        for block in model.blocks
        for m in (block.attn.qkv, block.attn.o)
    ]


def test_every_checkpoint_is_a_plain_model_whose_norms_are_learned(tmp_path):
    run = trained(tmp_path / "run", **HOW | {"checkpoints_per_octave": 1})
    plain = set(interp.Transformer(tiny_config()).state_dict())
    for step in checkpoint_steps(run.path):
        assert set(interp.load(run.path, step=step).state_dict()) == plain
    first, last = interp.load(run.path, step=0), interp.load(run.path)
    assert spectral_norms(first) == pytest.approx([1.0] * 4, abs=0.05)  # σ by power iteration
    assert spectral_norms(last) != pytest.approx([1.0] * 4, abs=1e-3)
    assert same_weights(last, run.model)
    assert same_weights(last, interp.load(run.path, step=20))
    assert run.metrics[-1]["train_loss"] < run.metrics[0]["held_out_loss"]


def test_a_stopped_run_goes_on_bit_by_bit(tmp_path):
    whole = trained(tmp_path / "whole", **HOW, config=tiny_config(tied_embeddings=True))
    again = {"out": tmp_path / "parts", "config": tiny_config(tied_embeddings=True), **HOW}
    with pytest.raises(Cancelled):
        trained(**again | {"progress": cancel_at(10)})
    parts = trained(**again, resume=True)
    assert same_weights(whole.model, parts.model)
    assert untimed(whole.metrics) == untimed(parts.metrics)


def test_another_setting_is_another_run_and_no_bool_is_refused(tmp_path):
    bare = HOW | {"sigma_reparam": False}
    trained(tmp_path / "run", **bare)
    with pytest.raises(ValueError, match=r"training\.sigma_reparam"):
        trained(tmp_path / "run", resume=True, **HOW)
    with pytest.raises(ValueError, match="True or False, got 1"):
        TrainingOptions(sigma_reparam=1)
    with pytest.raises(ValueError, match="leave compile_model out"):
        trained(tmp_path / "compiled", compile_model=True, **HOW)


@pytest.mark.parametrize("how", [{"checkpoint_activations": True}, {"micro_batch_size": 2}])
def test_a_step_in_parts_or_with_blocks_run_again_gives_the_same_weights(how, tmp_path):
    few = HOW | {"steps": 5, "config": tiny_config(d_mlp=8)}
    whole, parts = trained(tmp_path / "a", **few), trained(tmp_path / "b", **few, **how)
    for part, weight in zip(parts.model.parameters(), whole.model.parameters(), strict=True):
        if weight.dim() > 1:  # a key's bias has no gradient but rounding, which AdamW makes large
            torch.testing.assert_close(part, weight, atol=2e-5, rtol=1e-4)


def test_a_step_takes_one_power_iteration_as_a_pass_does():
    stepped, passed = interp.Transformer(tiny_config()), interp.Transformer(tiny_config())
    for model in (stepped, passed):
        reparametrise(model, seed=1)
    tokens = torch.zeros(2, 8, dtype=torch.long)
    passed(tokens)
    with one_iteration(stepped):
        for _ in range(3):
            stepped(tokens)
    vectors = dict(stepped.named_buffers())  # of σ, among others
    assert all(torch.equal(vectors[name], x) for name, x in passed.named_buffers())
    stepped(tokens)
    assert not all(torch.equal(vectors[name], x) for name, x in passed.named_buffers())
