import json

import pytest
import torch
from torch.linalg import matrix_norm as norm
from torch.testing import assert_close

from interp import circuits
from interp.circuits import FactoredMatrix
from interp.circuits.paths import without_edges
from interp.circuits.weights import composition_of_pairs, readable
from tests.fixture_models import gbmi_indhead
from tests.tiny import KINDS, some_tokens, tiny


def test_a_factored_matrix_is_read_without_being_formed(generator):
    a, b = (torch.randn(s, generator=generator) for s in ((3, 10, 4), (3, 4, 10)))
    product = FactoredMatrix(a, b)
    dense = a @ b
    u, s, v = product.svd
    assert_close(u @ torch.diag_embed(s) @ v.mT, dense, atol=1e-4, rtol=1e-4)
    assert_close(s, torch.linalg.svdvals(dense)[:, :4], atol=1e-4, rtol=1e-4)
    assert_close(product.norm, torch.linalg.matrix_norm(dense))
    own = torch.linalg.eigvals(dense).abs().sort(descending=True).values[:, :4]
    assert_close(product.eigenvalues.abs().sort(descending=True).values, own, atol=1e-3, rtol=1e-3)
    assert_close((product @ product).AB, dense @ dense, atol=1e-3, rtol=1e-4)
    assert_close(product.T.AB, dense.mT)
    assert product.shape == dense.shape
    with pytest.raises(ValueError, match="must share r"):
        FactoredMatrix(a, a)
    with pytest.raises(ValueError, match="square"):
        _ = FactoredMatrix(a, b[..., :5]).eigenvalues


def composition_by_hand(model, kind):
    folded = readable(model)
    n_layers, n_heads = folded.config.n_layers, folded.config.n_heads
    out = torch.full((n_layers, n_heads, n_layers, n_heads), torch.nan)
    for l1 in range(n_layers):
        for l2 in range(l1 + 1, n_layers):
            for h1 in range(n_heads):
                for h2 in range(n_heads):
                    first = folded.W_V[l1, h1] @ folded.W_O[l1, h1]
                    qk = folded.W_Q[l2, h2] @ folded.W_K[l2, h2].T
                    second = {"Q": qk, "K": qk.T, "V": folded.W_V[l2, h2] @ folded.W_O[l2, h2]}
                    product, each = norm(first @ second[kind]), norm(first) * norm(second[kind])
                    out[l1, h1, l2, h2] = product / each
    return out


@pytest.mark.parametrize("kind", ["Q", "K", "V"])
@pytest.mark.parametrize("of", ["mlp", "llama"])
def test_composition_is_the_formula(kind, of):
    model = tiny(of, n_layers=3)
    scores, wanted = circuits.composition_scores(model, kind), composition_by_hand(model, kind)
    assert_close(scores, wanted, equal_nan=True, atol=1e-5, rtol=1e-4)


def test_composition_of_random_matrices_is_the_baseline():
    model = tiny("bare", d_model=64, d_vocab=5)
    scores = circuits.composition_scores(model, "K", subtract_baseline=True)
    assert scores[0, :, 1].mean().abs() < 0.01


def planted(kind):
    """Head L0H1 writes direction 5, and head L1H2 reads it through one of its inputs."""
    model = tiny("bare")
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.01)
    first, second = model.blocks[0].attn, model.blocks[1].attn
    first.W_V[1, 3, 0], first.W_O[1, 0, 5] = 1.0, 1.0
    second.W_Q[2, 5 if kind == "Q" else 9, 0] = 1.0
    second.W_K[2, 5 if kind == "K" else 10, 0] = 1.0
    second.W_V[2, 5 if kind == "V" else 11, 0] = 1.0
    second.W_O[2, 0, 13] = 1.0
    return model


@pytest.mark.parametrize("kind", ["Q", "K", "V"])
def test_a_planted_edge_is_found_in_its_own_order_and_input(kind):
    model = planted(kind)
    scores = {k: circuits.composition_scores(model, k)[0, :, 1] for k in ("Q", "K", "V")}
    assert scores[kind][1, 2] > 0.9
    for k, found in scores.items():
        found[1, 2] = 0 if k == kind else found[1, 2]
        assert found.max() < 0.5
    percentile = circuits.composition_percentiles(model, kind, draws=20)
    assert percentile[0, 1, 1, 2] == 1
    assert percentile[1].isnan().all()


def test_a_few_pairs_compose_as_they_do_among_all():
    model = planted("K")
    sources, targets = [(0, 1), (0, 0)], [(1, 2), (1, 0), (1, 1)]
    found, places = composition_of_pairs(
        readable(model), "K", sources=sources, targets=targets, draws=20,
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    scores = circuits.composition_scores(model, "K")
    percentile = circuits.composition_percentiles(model, "K", draws=20)
    for i, source in enumerate(sources):
        for j, target in enumerate(targets):
            assert found[i, j] == pytest.approx(float(scores[(*source, *target)]), abs=1e-6)
            assert places[i, j] == percentile[(*source, *target)]


def test_composition_on_gbmi_is_that_on_record(shared):
    path = shared / "fixtures" / "gbmi_indhead" / "expected.json"
    recorded = json.loads(path.read_text())["composition"]["L0H0->L1H0"]
    model = gbmi_indhead(shared)
    for kind, wanted in recorded.items():
        assert abs(float(circuits.composition_scores(model, kind)[0, 0, 1, 0]) - wanted) < 0.002
    percentile = circuits.composition_percentiles(model, "K", draws=20)
    assert percentile[0, 0, 1, 0] == 1


def test_copying_score_is_one_for_a_head_that_copies_and_minus_one_for_its_opposite():
    model = tiny("bare", d_model=32, d_head=20, d_vocab=20)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    model.W_E[:, :20] = torch.eye(20)
    model.W_U[:20] = torch.eye(20)
    for head, sign in ((0, 1.0), (1, -1.0)):
        model.blocks[0].attn.W_V[head, :20] = torch.eye(20)
        model.blocks[0].attn.W_O[head, :, :20] = sign * torch.eye(20)
    scores = circuits.copying_score(model)
    assert_close(scores[0, :2], torch.tensor([1.0, -1.0]), atol=1e-4, rtol=0)


def test_circuits_are_those_of_the_folded_model():
    model = tiny("llama")
    folded = readable(model)
    assert_close(circuits.ov(model, 1, 3).AB, folded.W_V[1, 3] @ folded.W_O[1, 3])
    assert_close(circuits.qk(model, 0, 2).AB, folded.W_Q[0, 2] @ folded.W_K[0, 2].T)


def test_a_rotary_circuit_depends_on_distance():
    model, tokens = tiny("llama"), some_tokens(1)
    _, cache = model.run_with_cache(tokens)
    stream = cache["normalized", 0, "ln1"][0]
    scores = cache["attn_scores", 0][0]
    for query, key in ((9, 9), (9, 4), (11, 0)):
        circuit = circuits.qk(model, 0, 1, distance=query - key).AB
        score = stream[query] @ circuit @ stream[key] * model.config.scale
        assert_close(score, scores[1, query, key], atol=1e-5, rtol=1e-4)
    with pytest.raises(ValueError, match="rotary"):
        circuits.qk(tiny(), 0, 1, distance=2)
    with pytest.raises(ValueError, match="no head L0H9"):
        circuits.ov(model, 0, 9)


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("shortformer", "capped_tied")])
def test_a_score_is_the_sum_of_its_sources(kind):
    model, tokens = tiny(kind), some_tokens(1)
    _, cache = model.run_with_cache(tokens)
    got = circuits.score_attribution(model, tokens, 1, 3, 9, 8)
    wanted = cache["attn_scores", 1][0, 3, 9, 8]
    if model.config.positional == "alibi":
        bias = model.blocks[1].attn.position_bias(torch.tensor([[9]]), torch.tensor([[8]]))
        wanted = wanted - bias[0, 3, 0, 0]
    assert_close(torch.tensor(got.score), wanted, atol=1e-4, rtol=1e-4)
    assert {"embed", "L0H2", "bias"} <= set(got.sources)
    assert len(got.frame()) == len(got.sources) ** 2


def test_a_score_that_cannot_be_split_is_refused():
    tokens = some_tokens(1)
    with pytest.raises(ValueError, match="shortformer"):
        circuits.score_attribution(tiny("shortformer"), tokens, 1, 0, 3, 2)
    with pytest.raises(ValueError, match="query must lie"):
        circuits.score_attribution(tiny(), tokens, 1, 0, 12, 2)
    with pytest.raises(ValueError, match="one sequence"):
        circuits.score_attribution(tiny(), some_tokens(2), 1, 0, 3, 2)


@pytest.mark.parametrize("head", [True, 0.5, "0"])
def test_a_head_that_is_no_whole_number_is_refused(head):
    for read in (circuits.ov, circuits.qk, circuits.skip_trigrams):
        with pytest.raises(TypeError, match="layer and head are whole numbers"):
            read(tiny(), 0, head)


def test_percentiles_say_what_they_take():
    with pytest.raises(ValueError, match="composition is through 'Q', 'K' or 'V', got 'X'"):
        circuits.composition_percentiles(tiny(), "X")
    with pytest.raises(ValueError, match="1 draw or more, got 0"):
        circuits.composition_percentiles(tiny(), "K", draws=0)


@pytest.mark.parametrize("kind", ["mlp", "llama"])
def test_a_score_of_smeared_keys_is_no_sum_over_one_position(kind):
    with pytest.raises(ValueError, match="smeared_keys"):
        circuits.score_attribution(tiny(kind, smeared_keys=True), some_tokens(1), 1, 2, 7, 4)
    with pytest.raises(TypeError, match="query is a position, a whole number; got True"):
        circuits.score_attribution(tiny(kind), some_tokens(1), 1, 2, True, 0)


@pytest.mark.parametrize("after", ["none", "rms_norm", "layer_norm", "layer_norm_pre"])
def test_edges_take_off_what_all_heads_add_to_the_stream(after):
    model, tokens, seen = tiny("attention_only", post_normalization=after), some_tokens(), []
    heads = range(model.config.n_heads)
    cuts = [without_edges(model, (0, head), [(1, h) for h in heads], "k") for head in heads]
    look = ("blocks.1.hook_k_input", lambda x, hook: seen.append(x.detach().clone()))
    model(tokens, hooks=[*(pair for cut in cuts for pair in cut), look])
    _, cache = model.run_with_cache(tokens)
    block = model.blocks[0]
    rest = block.attn.o.bias  # what no head wrote
    if after != "none":
        rest = block.ln1_post.of_part(rest, cache["blocks.0.ln1_post.hook_scale"])
        shift = block.ln1_post.bias
        rest = rest if shift is None else rest + shift
    expected = cache["blocks.0.hook_resid_pre"] + rest
    for head in heads:
        assert_close(seen[0][:, :, head], expected, atol=1e-5, rtol=1e-5)
