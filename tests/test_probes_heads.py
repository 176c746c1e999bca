"""Head statistics without the pattern equal those of the pattern, as the model runs."""

import pytest
import torch

from interp import Transformer, TransformerConfig, probes
from interp.attention import AttentionView
from interp.probes.heads import NAMES

ALSO = ("renyi", "max_weight", "top_keys")


def small(**changes) -> Transformer:
    sizes = {"n_layers": 2, "n_heads": 4, "d_model": 32, "d_vocab": 12, "n_ctx": 64}
    model = Transformer(TransformerConfig(**(sizes | {"init_scale": 3.0} | changes))).eval()
    return model.requires_grad_(False)


def asks_for_patterns(x, hook):
    """A hook that changes nothing, and has every layer materialised."""


def both_ways(model, tokens, also=(*ALSO, "per_position"), **how):
    hooks = [("blocks.*.attn.hook_pattern", asks_for_patterns)]
    return (
        probes.head_statistics(model, tokens, also=also, **how),
        probes.head_statistics(model, tokens, also=also, hooks=hooks, **how),
    )


def same(a: probes.HeadStatistics, b: probes.HeadStatistics) -> None:
    for name in NAMES:
        for x, y in ((a, b), (a.per_position, b.per_position)):
            got, want = getattr(x, name), getattr(y, name)
            if got is None and want is None:
                continue
            torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4, equal_nan=True, msg=name)


KINDS = {
    "plain": {},
    "mlp, gqa, rotary": {"d_mlp": 48, "n_kv_heads": 2, "positional": "rotary"},
    "alibi": {"positional": "alibi"},
    "full": {"attention": "full"},
    "window": {"attention": ("causal", "window"), "attention_options": ({}, {"window": 5})},
    "soft cap": {"score_soft_cap": 3.0},
    "bigbird": {
        "attention": "bigbird",
        "attention_options": {"block": 4, "random_blocks": 1, "window": 4},
    },
    "linear": {"attention": ("causal", "linear")},
    "sink logits": {"sink_logits": True},
    "bos": {"bos_token": 0},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("padding", ["none", "left", "right"])
def test_statistics_equal_those_of_the_pattern(kind, padding, generator):
    model = small(**KINDS[kind])
    for block in model.blocks:
        if block.attn.sink is not None:
            block.attn.sink.copy_(torch.tensor([-2.0, 0.0, 1.0, 3.0]))
    tokens = torch.randint(0, 12, (3, 30), generator=generator)
    mask = torch.ones(3, 30, dtype=torch.bool)
    if padding != "none":
        mask[0, slice(0, 7) if padding == "left" else slice(23, 30)] = False
    also = ("per_position",) if kind == "linear" else (*ALSO, "per_position")
    same(*both_ways(model, tokens, also, mask=None if padding == "none" else mask))


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(side, generator):
    model = small(bos_token=0)
    tokens = torch.randint(0, 12, (2, 20), generator=generator)
    pads = torch.randint(0, 12, (2, 6), generator=generator)
    real, pad = torch.ones(2, 20, dtype=torch.bool), torch.zeros(2, 6, dtype=torch.bool)
    parts = [(pads, pad), (tokens, real)] if side == "left" else [(tokens, real), (pads, pad)]
    padded, mask = (torch.cat(x, 1) for x in zip(*parts, strict=True))
    also = ("per_position",)
    a = probes.head_statistics(model, tokens, also=also)
    b = probes.head_statistics(model, padded, mask=mask, also=also)
    same(a, b)
    assert a.n_rows == b.n_rows == int((tokens != 0).sum())


def test_batch_split_and_memory_bound_change_nothing(generator):
    model = small()
    tokens = torch.randint(0, 12, (5, 24), generator=generator)
    also = (*ALSO, "per_position")
    whole = probes.head_statistics(model, tokens, also=also)
    same(whole, probes.head_statistics(model, tokens, also=also, batch_size=2))
    same(whole, probes.head_statistics(model, tokens, also=also, memory=20_000))
    stream = probes.HeadStatisticsStream(model, also=also)
    for some in tokens.split(3):
        stream.update(some)
    same(whole, stream.result())


def test_a_stream_takes_batches_of_different_lengths(generator):
    model = small()
    parts = [torch.randint(0, 12, (2, n), generator=generator) for n in (9, 17, 4)]
    stream = probes.HeadStatisticsStream(model, also=["per_position"])
    for part in parts:
        stream.update(part)
    found = stream.result()
    assert found.per_position is not None
    assert found.per_position.entropy.shape == (2, 4, 17)
    assert found.n_rows == 2 * (9 + 17 + 4)


def test_one_repeated_token_matches_everything(generator):
    model = small()
    same(*both_ways(model, torch.full((2, 33), 5)))


@pytest.mark.parametrize("left", [0, 5])
@pytest.mark.parametrize("attention", ["causal", "full", "window"])
def test_frequent_tokens_match_everything(attention, left, generator):
    """Some tokens fill an eighth of a sequence or more; the last example has one token only.

    In float64: a weight's rounding counts once for every one of hundreds of tokens of distance.
    """
    options = {"window": {"window": 40}}.get(attention, {})
    model = small(n_ctx=600, n_heads=2, attention=attention, attention_options=options).double()
    tokens = torch.randint(0, 12, (4, 600), generator=generator)
    tokens[torch.rand(4, 600, generator=generator) < 0.45] = 3
    tokens[1][torch.rand(600, generator=generator) < 0.5] = 4
    tokens[2, 300:] = 7
    tokens[3] = 5
    mask = torch.ones(4, 600, dtype=torch.bool)
    mask[:2, :left] = False
    same(*both_ways(model, tokens, mask=mask if left else None))


def test_statistics_are_those_of_an_edited_pattern(generator):
    model = small()
    tokens = torch.randint(0, 12, (2, 16), generator=generator)

    def uniform(pattern, hook):
        seen = torch.ones_like(pattern).tril()
        pattern[:, 1] = (seen / seen.sum(-1, keepdim=True))[:, 1]

    hooks = [("blocks.0.attn.hook_pattern", uniform)]
    found = probes.head_statistics(model, tokens, hooks=hooks)
    clean = probes.head_statistics(model, tokens)
    torch.testing.assert_close(found.normalized_entropy[0, 1], torch.tensor(1.0))
    assert found.uniform_deficit[0, 1].abs() < 1e-6
    assert (0, 1) in found.near_uniform()
    others = [0, 2, 3]
    torch.testing.assert_close(found.entropy[0, others], clean.entropy[0, others])
    assert (found.entropy[1] - clean.entropy[1]).abs().max() > 1e-4  # and the layer above reads it


def test_write_norm_sees_an_ablation_of_z(generator):
    model = small()
    tokens = torch.randint(0, 12, (2, 16), generator=generator)

    def cut(z, hook):
        z[:, :, 2] = 0

    found = probes.head_statistics(model, tokens, hooks=[("blocks.1.attn.hook_z", cut)])
    assert found.write_norm[1, 2] == 0
    assert (found.write_norm[0] > 0).all()
    with model.hooks(fwd_hooks=[("blocks.1.attn.hook_z", cut)]):
        assert probes.head_statistics(model, tokens).write_norm[1, 2] == 0


def test_write_norm_is_the_norm_of_the_result(generator):
    model = small()
    tokens = torch.randint(0, 12, (2, 16), generator=generator)
    _, cache = model.run_with_cache(tokens)
    want = torch.stack([cache["result", layer].norm(dim=-1).mean((0, 1)) for layer in range(2)])
    torch.testing.assert_close(probes.head_statistics(model, tokens).write_norm, want)


def test_the_model_computes_what_it_computed(generator):
    """Statistics of layer 1 are those of its own pattern: the residual stream below was right."""
    model = small(d_mlp=64)
    tokens = torch.randint(0, 12, (2, 16), generator=generator)
    _, cache = model.run_with_cache(tokens)
    want = torch.stack([probes.entropy(cache["pattern", layer]).mean(0) for layer in range(2)])
    torch.testing.assert_close(
        probes.head_statistics(model, tokens).normalized_entropy, want, atol=1e-5, rtol=0
    )


def test_bos_rows_are_left_out_and_not_renormalised(generator):
    model = small(bos_token=0)
    tokens = torch.randint(1, 12, (2, 16), generator=generator)
    tokens[:, 0] = 0
    found = probes.head_statistics(model, tokens)
    assert found.n_rows == 30
    rows = torch.ones(2, 16, dtype=torch.bool)
    assert probes.head_statistics(model, tokens, rows=rows).n_rows == 32
    _, cache = model.run_with_cache(tokens)
    want = probes.induction_score(cache["pattern", 0], tokens, rows=tokens != 0)
    torch.testing.assert_close(found.induction[0], want)


def test_without_any_row_everything_is_nan():
    model = small()
    found = probes.head_statistics(model, torch.zeros(1, 1).long())
    assert found.normalized_entropy.isnan().all()
    assert found.induction.isnan().all()
    assert (found.entropy == 0).all()
    assert found.near_uniform() == []
    nothing = torch.zeros(1, 1, dtype=torch.bool)
    assert (
        probes.head_statistics(model, torch.zeros(1, 1).long(), mask=nothing).entropy.isnan().all()
    )


def test_near_uniform_asks_for_rows_with_enough_keys():
    model = small(init_scale=0.01, attention="full")
    few, many = torch.arange(7)[None], torch.arange(8)[None]
    assert probes.head_statistics(model, few).near_uniform() == []
    assert len(probes.head_statistics(model, many).near_uniform()) == 8
    assert len(probes.head_statistics(model, few, min_keys=7).near_uniform()) == 8


def test_progress_counts_layers_and_may_stop():
    model, told = small(), []
    tokens = torch.arange(8).view(2, 4)
    probes.head_statistics(
        model, tokens, batch_size=1, progress=lambda done, total: told.append((done, total))
    )
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]

    class StopError(Exception):
        pass

    def stop(done, total):
        raise StopError

    with pytest.raises(StopError):
        probes.head_statistics(model, tokens, progress=stop)


def test_half_precision_models_are_measured_in_single(generator):
    model = small().bfloat16()
    tokens = torch.randint(0, 12, (2, 32), generator=generator)
    _, cache = model.run_with_cache(tokens)
    q, k = (cache[n, 0].float().transpose(1, 2) for n in ("q", "k"))
    view = AttentionView(q, k)
    found = probes.head_statistics(model, tokens)
    torch.testing.assert_close(found.entropy[0], view.entropy().mean((0, 2)), atol=1e-4, rtol=0)


def test_results_have_a_table_and_a_file(tmp_path, generator):
    model = small()
    found = probes.head_statistics(model, torch.randint(0, 12, (2, 16), generator=generator))
    table = found.frame()
    assert list(table.columns[:3]) == ["layer", "head", "entropy"]
    assert len(table) == 8
    assert found.save(tmp_path / "heads.json").stat().st_size > 100
    assert "normalized_entropy" in repr(found)


def test_unknown_questions_are_refused():
    model = small()
    tokens = torch.zeros(1, 4).long()
    with pytest.raises(ValueError, match="`also` is a list"):
        probes.head_statistics(model, tokens, also=["median"])
    with pytest.raises(ValueError, match="from 2 keys on"):
        probes.head_statistics(model, tokens, min_keys=1)
    with pytest.raises(TypeError, match="token ids"):
        probes.head_statistics(model, tokens.float())
    with pytest.raises(ValueError, match="the tokens' shape"):
        probes.head_statistics(model, tokens, rows=torch.ones(1, 3, dtype=torch.bool))
