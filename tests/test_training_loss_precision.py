"""The loss's precision: what float32 can't tell from 0, and that nothing else depends on it."""

import json
import math

import pytest
import torch

import interp
from interp.tasks import Batch
from interp.training import TrainingOptions
from interp.training.honoured import check_device
from interp.training.trainer import Trainer
from interp.training.workers import Workers
from tests.test_training_workers import TINY, ended, losses, padded, started
from tests.tiny_runs import (
    BOTH,
    Cancelled,
    cancel_at,
    same_weights,
    tiny_config,
    trained,
    untimed,
)

CPU = Workers(0, 1, torch.device("cpu"))
DOUBLE = {"loss_precision": "float64"}
SURE = 20.0  # the right logit above the 16 others, all of which are 0


def of_sure_model(precision):
    """Loss, and gradient of the logits' biases, of a model that is all but certain of token 3."""

    def draw(n, generator):
        tokens = torch.full((n, 4), 3)
        return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), tokens)

    model = interp.Transformer(tiny_config(bias=("unembed",)))
    with torch.no_grad():
        model.unembed.weight.zero_()
        model.unembed.bias.zero_()[3] = SURE
    trainer = Trainer(model, draw, TrainingOptions(loss_precision=precision), workers=CPU)
    loss, hits, _ = trainer._backward(draw(2, None))
    assert hits == 1
    return float(loss), model.unembed.bias.grad.double()


def test_float64_tells_a_loss_from_0_that_float32_does_not():
    wanted = math.log1p(16 * math.exp(-SURE))  # 3.3e-8
    assert of_sure_model("float64")[0] == pytest.approx(wanted, rel=1e-6)
    assert of_sure_model("float32")[0] == 0.0


def test_in_float32_the_right_logit_of_a_sure_model_is_no_longer_raised():
    wrong = math.exp(-SURE) / (1 + 16 * math.exp(-SURE))
    for precision, right in {"float64": -16 * wrong, "float32": 0.0}.items():
        gradient = of_sure_model(precision)[1].tolist()
        assert gradient.pop(3) == pytest.approx(right, rel=1e-6)
        assert gradient == pytest.approx([wrong] * 16, rel=1e-5)


def test_away_from_0_both_learn_alike_and_weights_stay_in_float32(tmp_path):
    single, double = trained(tmp_path / "single"), trained(tmp_path / "double", **DOUBLE)
    assert {x.dtype for x in double.model.parameters()} == {torch.float32}
    assert losses(double) == pytest.approx(losses(single), abs=1e-4)
    assert losses(double) != losses(single)


def test_it_is_saved_and_a_stopped_run_goes_on_bit_by_bit(tmp_path):
    whole = trained(tmp_path / "whole", **DOUBLE)
    with pytest.raises(Cancelled):
        trained(tmp_path / "a", progress=cancel_at(10), **DOUBLE)
    described = json.loads((tmp_path / "a/config.json").read_text())
    assert described["training"]["loss_precision"] == "float64"
    with pytest.raises(ValueError, match=r"training.loss_precision = 'float64', not 'float32'"):
        trained(tmp_path / "a", resume=True)
    resumed = trained(tmp_path / "a", resume=True, **DOUBLE)
    assert same_weights(resumed.model, whole.model)
    assert untimed(resumed.metrics) == untimed(whole.metrics)


def test_parts_of_a_batch_add_up(tmp_path):
    whole = trained(tmp_path / "whole", task=padded, **DOUBLE)
    parts = trained(tmp_path / "parts", task=padded, micro_batch_size=3, **DOUBLE)
    assert losses(parts) == pytest.approx(losses(whole), abs=1e-4)


@pytest.mark.parametrize("options", [{"precision": "bfloat16"}, {"precision": "float16"}, BOTH])
def test_it_goes_with_a_lower_precision_and_with_steering(options, tmp_path):
    single = trained(tmp_path / "single", **options)
    double = trained(tmp_path / "double", **options, **DOUBLE)
    assert losses(double) == pytest.approx(losses(single), abs=0.02)
    for line, other in zip(double.metrics[1:], single.metrics[1:], strict=True):
        assert line.get("penalty") == pytest.approx(other.get("penalty"), abs=1e-3)


def test_two_processes_learn_what_one_does(tmp_path):
    from interp.cli import run as cli

    asked = ["--steps", "6", "--set", 'training.loss_precision="float64"']
    codes, said = ended(started(tmp_path / "two", *asked, size=2))
    assert codes == [0, 0], said
    assert cli(["train", "--out", str(tmp_path / "one"), *TINY, *asked]) == 0
    one, two = (interp.Run(tmp_path / name) for name in ("one", "two"))
    assert two.described["training"]["loss_precision"] == "float64"
    assert losses(two) == pytest.approx(losses(one), abs=1e-4)


def test_a_device_without_float64_is_refused():
    mps = torch.device("mps")
    check_device(TrainingOptions(), mps)
    with pytest.raises(ValueError, match="loss_precision='float64': mps has no float64"):
        check_device(TrainingOptions(**DOUBLE), mps)
