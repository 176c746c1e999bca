"""Induction heads are found by what they do, on models whose heads are known."""

import pytest
import torch

from interp import Transformer, TransformerConfig, probes
from interp.probes.induction import room_of
from tests import oracle
from tests.tiny import tiny


def test_the_circuit_solves_the_task():
    tokens = oracle.repeated(7)
    said = oracle.model()(tokens).argmax(-1)
    assert torch.equal(said[:, 8:-1], tokens[:, 9:])


def test_scores_of_the_circuit_are_exactly_one_and_zero():
    scores = probes.induction_scores(oracle.model())
    assert scores.tolist() == [[0, 0], [1, 0]]
    heads = probes.head_statistics(oracle.model(), oracle.repeated(7))
    assert heads.previous_token[0, 0] == 1
    assert heads.duplicate_token.tolist() == [[0, 0], [0, 1]]
    assert heads.sink[0, 1] == 1
    assert heads.normalized_entropy[0].tolist() == [0, 0]


@pytest.mark.parametrize("bos", [True, False])
def test_the_induction_head_is_found_and_nothing_else(bos):
    found = probes.find_induction_heads(oracle.model(bos=bos))
    assert found == [(1, 0)]
    assert found.anti == found.silent == found.positional == []
    evidence = found.evidence
    # Without BOS the first token has no token before it, and passes for its own. With it, weights
    # are exp(s − L) where s = 300 has float32's spacing of 3e-5.
    assert evidence.score[1, 0].min() > (1 - 1e-4 if bos else 0.8)
    assert (evidence.control[1, 0] == 0).all()
    assert evidence.copying[1, 0] > (1 - 1e-6 if bos else 0.8)


def test_a_positional_look_back_head_is_never_called_induction():
    for distance in (2, 3, 5):
        heads = (oracle.copying_look_back(distance), oracle.copying_look_back(distance))
        model = oracle.model(heads, heads)
        period = distance + 1
        found = probes.find_induction_heads(model, periods=[period])
        assert (found.evidence.score == 1).all()  # its score alone would say so
        assert (found.evidence.control == 1).all()
        assert found == []
        assert len(found.positional) == 4
        assert probes.find_induction_heads(model) == []


def test_heads_that_attend_but_do_not_copy_are_told_apart():
    first = (oracle.previous, oracle.sink, oracle.uniform)
    second = (oracle.anti_induction, oracle.induction, oracle.mute_induction)
    found = probes.find_induction_heads(oracle.model(first, second))
    assert found == [(1, 1)]
    assert found.anti == [(1, 0)]
    assert found.silent == [(1, 2)]
    assert found.evidence.copying[1].tolist() == [-1, 1, 0]


def test_there_is_none_without_the_previous_token_head():
    found = probes.find_induction_heads(oracle.model(first=(oracle.sink, oracle.uniform)))
    assert found == []
    assert found.evidence.score.max() < 0.4


def test_cutting_the_previous_token_head_is_seen_through_hooks():
    def cut(z, hook):
        z[:, :, 0] = 0

    hooks = [("blocks.0.attn.hook_z", cut)]
    assert probes.find_induction_heads(oracle.model(), hooks=hooks) == []
    assert probes.induction_scores(oracle.model(), hooks=hooks)[1, 0] < 0.1


@pytest.mark.parametrize("kind", ["llama", "gptj", "window", "capped_tied", "sinks"])
@pytest.mark.parametrize("edited", [False, True])
def test_scores_are_those_among_all_statistics(kind: str, edited: bool):
    model = tiny(**{"sink_logits": True}) if kind == "sinks" else tiny(kind)
    hooks = [("blocks.0.attn.hook_pattern", lambda x, hook: None)] if edited else []
    found = probes.induction_scores(model, periods=[5], n_sequences=3, hooks=hooks)
    generator = torch.Generator().manual_seed(0)
    room = room_of(model)
    tokens = room.repeated(5, n=3, length=room.length([5]), generator=generator)
    every = probes.head_statistics(model, tokens, hooks=hooks)
    torch.testing.assert_close(found, every.induction, atol=1e-6, rtol=1e-5, equal_nan=True)


def test_an_edited_pattern_is_what_is_judged():
    def blurred(pattern, hook):
        seen = torch.ones_like(pattern).tril()
        pattern[:] = seen / seen.sum(-1, keepdim=True)

    hooks = [("blocks.1.attn.hook_pattern", blurred)]
    found = probes.find_induction_heads(oracle.model(), hooks=hooks)
    assert found == []
    assert found.evidence.score[1].max() < 0.3


@pytest.mark.parametrize("positional", ["learned", "rotary"])
def test_untrained_models_have_none(positional):
    config = TransformerConfig(
        n_layers=2, n_heads=4, d_model=32, d_vocab=20, n_ctx=40, positional=positional, bos_token=0
    )
    found = probes.find_induction_heads(Transformer(config).eval())
    assert found == []
    assert found.positional == []


def test_a_uniform_head_has_entropy_one_at_any_length_and_padding():
    model = oracle.model((oracle.uniform, oracle.sink), (oracle.uniform, oracle.uniform))
    for n, pads in ((2, 0), (9, 0), (9, 5), (40, 0)):
        tokens = torch.arange(n)[None] % 19
        padded = torch.cat([torch.zeros(1, pads).long(), tokens], 1)
        mask = torch.cat([torch.zeros(1, pads).bool(), torch.ones(1, n).bool()], 1)
        heads = probes.head_statistics(model, padded, mask=mask)
        torch.testing.assert_close(heads.normalized_entropy[0, 0], torch.tensor(1.0))
        assert heads.normalized_entropy[0, 1] == 0
        assert ((0, 0) in heads.near_uniform()) == (n >= 8)


def test_the_same_seed_gives_the_same_evidence_and_leaves_global_randomness_alone():
    model = oracle.model((oracle.uniform, oracle.sink), (oracle.induction, oracle.uniform))
    before = torch.get_rng_state()
    first = probes.induction_scores(model)
    assert torch.equal(first, probes.induction_scores(model))
    other = probes.induction_scores(model, generator=torch.Generator().manual_seed(1))
    assert first.shape == other.shape
    assert torch.equal(torch.get_rng_state(), before)


def test_evidence_is_a_table_and_a_file(tmp_path):
    told = []
    found = probes.find_induction_heads(
        oracle.model(), periods=[4, 6], progress=lambda done, total: told.append((done, total))
    )
    assert told == [(1, 2), (2, 2)]
    assert set(found.frame().period) == {4, 6}
    assert found.evidence.save(tmp_path / "evidence.json").exists()
    assert "Induction heads: [(1, 0)]" in found._repr_html_()


def test_what_cannot_be_tried_is_refused():
    model = oracle.model()
    with pytest.raises(ValueError, match="period of 2 is too short"):
        probes.induction_scores(model, periods=[2])
    with pytest.raises(ValueError, match="do not fit"):
        probes.find_induction_heads(model, periods=[20])
    with pytest.raises(ValueError, match="2 sequences or more"):
        probes.find_induction_heads(model, n_sequences=1)
    with pytest.raises(ValueError, match="two do not fit"):
        probes.find_induction_heads(oracle.model(n_ctx=6))
    with pytest.raises(ValueError, match="got none"):
        probes.induction_scores(model, periods=[])
    with pytest.raises(TypeError, match="a list of whole numbers, got 5"):
        probes.induction_scores(model, periods=5)
    for margin in (-3, 1.0, float("nan"), "0.4"):
        with pytest.raises(ValueError, match=r"control by, in \[0, 1\); got"):
            probes.find_induction_heads(model, margin=margin)


@pytest.mark.parametrize("bos_token", [None, 0])
def test_a_vocabulary_too_small_for_a_control_is_refused(bos_token):
    bos = bos_token is not None
    sizes = {"n_layers": 1, "n_heads": 1, "d_model": 4, "n_ctx": 20, "bos_token": bos_token}
    small, large = (Transformer(TransformerConfig(d_vocab=n + bos, **sizes)).eval() for n in (3, 4))
    with pytest.raises(ValueError, match=rf"takes {4 + bos} tokens.*this model has {3 + bos} "):
        probes.find_induction_heads(small)
    assert probes.induction_scores(small).isfinite().all()  # without a control it can be asked
    assert probes.find_induction_heads(large) == []
