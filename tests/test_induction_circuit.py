import math

import pytest
import torch

from interp.circuits import behaviour, induction_circuit
from interp.circuits.behaviour import _set
from tests import oracle
from tests.fixture_models import gbmi_indhead
from tests.tiny import tiny


def test_the_oracle_s_circuit_is_its_two_heads_and_their_k_edge():
    model = oracle.model((oracle.previous, oracle.sink), (oracle.induction, oracle.duplicate))
    circuit = induction_circuit(model, n_sequences=4)
    assert (circuit.sources, circuit.targets) == (("L0H0",), ("L1H0",))
    assert circuit.score == pytest.approx(1)
    assert circuit.score_drop[0, 0] == pytest.approx(circuit.score - circuit.score_without)
    assert circuit.score_drop[0, 0] > 0.9
    assert circuit.score_drop_q[0, 0] == 0
    assert circuit.token_match[0, 0] == 1
    assert circuit.token_match_without[0, 0] < 0.2  # chance is 1 / 19
    assert circuit.percentile[0, 0] == 1
    drops = dict(zip(circuit.candidates, circuit.candidates_drop.tolist(), strict=True))
    assert drops["L0H1"] == 0  # the decoy
    assert circuit.loss_without_previous > 0.5
    assert abs(circuit.loss_without_previous_kept_patterns) < 1e-5
    assert circuit.loss_without_induction > 0.5
    assert "L1H0 does induction (1.00), on what L0H0" in circuit.verdict


def test_two_earlier_heads_that_back_each_other_up_are_found_as_a_set():
    model = oracle.model((oracle.previous, oracle.previous), (oracle.induction, oracle.duplicate))
    circuit = induction_circuit(model, n_sequences=4)
    assert set(circuit.sources) == {"L0H0", "L0H1"}
    assert circuit.candidates_drop.abs().max() < 0.05  # either is enough alone
    assert circuit.score_without < 0.1


# What the score of a trained model's induction heads was with heads of its first layer cut. Heads
# 1, 2 and 3 look one token back; head 0 costs more alone than head 1, and is no part of the set.
SCORES = {
    "0": 0.699, "1": 0.801, "2": 0.548, "3": 0.663, "01": 0.630, "02": 0.381, "03": 0.499,
    "12": 0.381, "13": 0.549, "23": 0.194, "012": 0.297, "013": 0.456, "023": 0.146, "123": 0.079,
    "0123": 0.063,
}  # fmt: skip


@pytest.mark.parametrize(("enough", "chosen"), [(0.6, "2"), (0.2, "23"), (0.1, "123"), (0, "123")])
def test_heads_that_share_the_work_are_told_by_what_is_lost_once_others_are_gone(enough, chosen):
    order = sorted(((0, h) for h in range(4)), key=lambda head: SCORES[str(head[1])])

    def score(cut):
        return SCORES["".join(sorted(str(head) for _, head in cut))]

    found = _set(score, order, enough)
    wanted = chosen if enough else "0123"  # never low enough: all that were tried
    assert sorted(head for _, head in found) == [int(h) for h in wanted]


def test_each_set_of_heads_is_cut_once(monkeypatch):
    asked, whole = [], behaviour.Behaviour.scores

    def scores(self, hooks=()):
        asked.append([name for name, _ in hooks])
        return whole(self, hooks)

    monkeypatch.setattr(behaviour.Behaviour, "scores", scores)
    model = oracle.model((oracle.previous, oracle.sink), (oracle.induction, oracle.duplicate))
    induction_circuit(model, n_sequences=4)
    cuts = [names for names in asked if names in ([], ["blocks.0.attn.hook_z"])]
    assert len(cuts) == 4  # nothing, L0H0, L0H1, both
    assert len(asked) == 6  # and the edge through K, through Q


def test_a_later_head_s_edges_are_cut_apart_from_its_neighbours():
    twins = (oracle.induction, oracle.induction)
    model = oracle.model((oracle.previous, oracle.sink), twins)
    circuit = induction_circuit(model, n_sequences=4)
    assert circuit.score_drop.shape == (1, 2)
    assert (circuit.score_drop > 0.9).all()
    assert (circuit.score_drop_q == 0).all()


def test_the_circuit_of_a_model_that_others_trained(shared):
    circuit = induction_circuit(gbmi_indhead(shared))
    assert (circuit.sources, circuit.targets) == (("L0H0",), ("L1H0",))
    assert circuit.score_drop[0, 0] > 0.5
    assert circuit.score_drop_q[0, 0] < 0.2 * circuit.score_drop[0, 0]
    assert circuit.token_match[0, 0] > 0.9
    assert circuit.token_match_without[0, 0] == 0
    assert circuit.loss_without_previous > 3
    assert abs(circuit.loss_without_previous_kept_patterns) < 0.05


@pytest.mark.parametrize(
    "heads",
    [
        ((oracle.previous, oracle.sink), (oracle.duplicate, oracle.sink)),
        ((oracle.uniform, oracle.sink), (oracle.look_back(4), oracle.uniform)),
    ],
)
def test_a_model_without_the_circuit_has_none(heads):
    circuit = induction_circuit(oracle.model(*heads), n_sequences=4)
    assert (circuit.sources, circuit.targets) == ((), ())
    assert circuit.verdict == "No head does induction here."
    assert math.isnan(circuit.loss_without_previous)
    assert "induction" in repr(circuit).lower()


def test_an_untrained_model_has_no_circuit_and_is_left_as_it_was():
    model = tiny("llama", d_vocab=20, n_ctx=24)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    assert induction_circuit(model, n_sequences=4).targets == ()
    assert all(torch.equal(before[name], x) for name, x in model.state_dict().items())


def test_a_model_that_is_not_ours_is_refused():
    with pytest.raises(TypeError, match="wanted a Transformer"):
        induction_circuit(torch.nn.Linear(2, 2))
