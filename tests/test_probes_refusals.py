"""What head statistics can't take is refused in words; what they say of sinks is so."""

from dataclasses import fields

import pytest
import torch

from interp import Transformer, TransformerConfig, probes

SIZES = {"n_layers": 1, "n_heads": 2, "d_model": 8, "d_vocab": 12, "n_ctx": 12}
TOKENS = torch.randint(12, (2, 10), generator=torch.Generator().manual_seed(0))


def model(**options):
    return Transformer(TransformerConfig(**SIZES, **options)).eval()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": [[True] * 10] * 2}, "mask must be a tensor of bools.*got list"),
        ({"rows": [1, 2]}, "rows must be a tensor of bools.*got list"),
        ({"rows": torch.ones(1, 10, dtype=torch.bool)}, "the tokens' shape"),
        ({"also": 3}, "`also` is a list of .*got 3"),
        ({"also": None}, "`also` is a list of .*got None"),
        ({"also": "renyi"}, "`also` is a list of .*got 'renyi'"),
        ({"also": [["renyi"]]}, "`also` is a list of"),
        ({"min_keys": "a"}, "whole number; got min_keys='a'"),
        ({"min_keys": 2.5}, "whole number; got min_keys=2.5"),
    ],
)
def test_head_statistics_say_what_they_take(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        probes.head_statistics(model(), TOKENS, **options)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16])
def test_tokens_that_no_embedding_takes_are_refused(dtype):
    with pytest.raises(TypeError, match=r"tokens.long\(\)"):
        probes.head_statistics(model(), TOKENS.to(dtype))


@pytest.mark.parametrize("threshold", ["a", float("nan"), 2, -0.1, True, None])
def test_a_threshold_of_entropy_is_a_share(threshold):
    found = probes.head_statistics(model(), TOKENS)
    with pytest.raises(ValueError, match="a share from 0 to 1"):
        found.near_uniform(threshold)


@pytest.mark.parametrize("attention", ["linear", "performer"])
def test_attention_by_features_has_the_statistics_of_its_weights(attention):
    found = probes.head_statistics(model(attention=attention), TOKENS)
    assert found.entropy.isfinite().all()


@pytest.mark.parametrize("hooks", [[], [("blocks.0.attn.hook_pattern", lambda p, hook: p)]])
def test_beside_a_sink_logit_entropies_are_of_the_keys_and_weights_as_they_flow(hooks):
    with_sink = model(sink_logits=True)
    with torch.no_grad():
        with_sink.blocks[0].attn.sink.fill_(3.0)
    asked = {"also": ["max_weight", "renyi"], "hooks": hooks}
    found = probes.head_statistics(with_sink, TOKENS, **asked)
    p = with_sink.run_with_cache(TOKENS)[1]["blocks.0.attn.hook_pattern"].detach().double()
    assert float(p.sum(-1).max()) < 0.9
    keys = p / p.sum(-1, keepdim=True)
    entropy = -(keys * keys.clamp(min=1e-30).log()).sum(-1).mean((0, 2))
    renyi = -keys.pow(2).sum(-1).log().mean((0, 2))
    for ours, theirs in (
        (found.entropy, entropy),
        (found.effective_keys, entropy.exp()),
        (found.renyi_entropy, renyi),
        (found.max_weight, p.amax(-1).mean((0, 2))),
        (found.sink, p[:, :, 1:, 0].mean((0, 2))),
    ):
        torch.testing.assert_close(ours[0].double(), theirs, atol=1e-5, rtol=1e-5)


def test_every_field_is_documented():
    said = probes.HeadStatistics.__doc__
    for name in (field.name for field in fields(probes.HeadStatistics)):
        assert f"\n        {name}: " in said, name
