"""On third-party weights, statistics equal those of independently computed patterns."""

import json

import numpy as np
import pytest
import torch

from interp import probes, wrap
from tests import fixture_models
from tests.llmviz import load_llmviz


def arrays(shared, fixture: str, name: str) -> dict[str, torch.Tensor]:
    path = shared / "fixtures" / fixture / f"{name}.npz"
    return {key: torch.from_numpy(x) for key, x in np.load(path).items()}


def test_gbmi_logits_and_patterns(shared):
    model, ref = fixture_models.gbmi_indhead(shared), arrays(shared, "gbmi_indhead", "ref")
    logits, cache = model.run_with_cache(ref["tokens"].long())
    torch.testing.assert_close(logits.double(), ref["logits_f64"].double(), atol=1e-3, rtol=1e-4)
    for layer in range(2):
        want = ref[f"pattern_L{layer}"].float()
        torch.testing.assert_close(cache["pattern", layer], want, atol=1e-4, rtol=0)


def test_gbmi_scores_are_the_expected_ones(shared):
    model, data = fixture_models.gbmi_indhead(shared), arrays(shared, "gbmi_indhead", "eval")
    expected = json.loads((shared / "fixtures/gbmi_indhead/expected.json").read_text())
    tokens = data["tokens"].long()
    accuracy = (model(tokens)[:, -1].argmax(-1) == data["target"]).float().mean()
    assert accuracy == pytest.approx(expected["acc"], abs=0.002)
    heads = probes.head_statistics(model, tokens)
    last = torch.zeros_like(tokens, dtype=torch.bool)
    last[:, -1] = True
    asked = probes.head_statistics(model, tokens, rows=last)  # where the task asks
    for layer in range(2):
        want = expected["heads"][f"L{layer}H0"]
        got = heads.normalized_entropy[layer, 0]
        assert got == pytest.approx(want["norm_entropy"], abs=0.002)
        assert heads.previous_token[layer, 0] == pytest.approx(want["prev_token"], abs=0.002)
        assert asked.induction[layer, 0] == pytest.approx(want["prefix_match"], abs=0.002)


def test_the_gbmi_induction_head_is_found(shared):
    found = probes.find_induction_heads(fixture_models.gbmi_indhead(shared))
    assert found == [(1, 0)]
    assert found.positional == []


@pytest.mark.parametrize("program", ["length", "hist", "frac_prevs", "reverse"])
def test_tracr_statistics_equal_those_of_its_scores(shared, program):
    model = fixture_models.tracr(shared, program)
    ref = arrays(shared, f"tracr_{program}", "ref")
    for n in range(sum(key.endswith("_tokens") for key in ref)):
        tokens = ref[f"in{n}_tokens"].long()[None]
        heads = probes.head_statistics(model, tokens, rows=torch.ones_like(tokens).bool())
        for layer in range(model.config.n_layers):
            pattern = ref[f"in{n}_L{layer}_attnlogits"].double().softmax(-1)[None]
            want = probes.entropy(pattern, causal=False)[0].float()
            torch.testing.assert_close(heads.normalized_entropy[layer], want, atol=1e-4, rtol=0)
        resid = ref[f"in{n}_L{2 * model.config.n_layers - 1}_resid"].float()
        torch.testing.assert_close(model(tokens)[0], resid, atol=1e-4, rtol=1e-4)


def test_the_tracr_length_head_is_exactly_uniform(shared):
    """In all rows but that of BOS, which looks at itself alone and is left out."""
    model = fixture_models.tracr(shared, "length")
    for n in (2, 4, 7):
        tokens = torch.tensor([[0, *([1, 2, 3] * 3)[: n - 1]]])
        heads = probes.head_statistics(model, tokens, min_keys=2)
        torch.testing.assert_close(heads.normalized_entropy, torch.ones(1, 1))
        assert heads.near_uniform(0.999) == [(0, 0)]


def test_llmviz_statistics_equal_those_of_its_patterns(shared):
    ref = arrays(shared, "llmviz_gpt_nano_sort", "ref")
    tokens = ref["tokens"].long()
    heads = probes.head_statistics(load_llmviz(shared), tokens)
    for layer in range(3):
        pattern = ref[f"pattern_L{layer}"]
        want = probes.entropy(pattern).mean(0)
        torch.testing.assert_close(heads.normalized_entropy[layer], want.float(), atol=1e-4, rtol=0)
        for name, score in (
            ("induction", probes.induction_score),
            ("previous_token", probes.previous_token_score),
            ("duplicate_token", probes.duplicate_token_score),
            ("sink", probes.sink_score),
        ):
            want = score(pattern, tokens).float()
            torch.testing.assert_close(getattr(heads, name)[layer], want, atol=1e-4, rtol=0)


def test_llmviz_entropies_are_the_recorded_ones(shared):
    folder = shared / "fixtures" / "llmviz_gpt_nano_sort"
    expected = json.loads((folder / "head_ablation.json").read_text())
    letters = torch.cartesian_prod(*[torch.arange(3)] * 6)
    tokens = torch.cat([letters, letters.sort(-1).values[:, :5]], 1)
    heads = probes.head_statistics(load_llmviz(shared), tokens, batch_size=243)
    want = [[expected[f"L{layer}H{head}"]["ent"] for head in range(3)] for layer in range(3)]
    torch.testing.assert_close(heads.normalized_entropy, torch.tensor(want), atol=2e-3, rtol=0)


def test_stories_wrapped_statistics_equal_those_of_its_patterns(shared):
    transformers = pytest.importorskip("transformers")
    folder = shared / "fixtures" / "stories260K"
    hf = transformers.AutoModelForCausalLM.from_pretrained(folder / "hf").eval()
    ref = arrays(shared, "stories260K", "ref")
    tokens, model = ref["tokens"].long(), wrap(hf)
    rows = tokens != model.config.bos_token
    heads = probes.head_statistics(model, tokens)
    assert heads.n_rows == 200
    for layer in range(model.config.n_layers):
        pattern = ref[f"pattern_L{layer}"].float()  # written in half precision: 2e-3 at worst
        want = probes.entropy(pattern, rows=rows)[0]
        torch.testing.assert_close(heads.normalized_entropy[layer], want, atol=2e-3, rtol=0)
        for name, score in (
            ("induction", probes.induction_score),
            ("previous_token", probes.previous_token_score),
            ("sink", probes.sink_score),
        ):
            want = score(pattern, tokens, rows=rows)
            torch.testing.assert_close(getattr(heads, name)[layer], want, atol=2e-3, rtol=0)
