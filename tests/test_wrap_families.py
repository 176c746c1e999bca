"""Architectures beyond those that we load: wrapped as they are, or refused by name."""

import pytest
import torch

from interp import wrap
from tests.hugging_face_models import GPT2, GROUPED
from tests.scrambled import scramble

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5]])
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
OTHERS = {
    "Gemma3": ("Gemma3TextConfig", GROUPED | MIXED | {"head_dim": 16}),
    "GPTJ": ("GPTJConfig", GPT2 | {"rotary_dim": 4}),
    "Llama4": (  # attention in chunks: a mask that is no rule of ours
        "Llama4TextConfig",
        GROUPED
        | {"head_dim": 16, "num_local_experts": 2, "intermediate_size_mlp": 48}
        | {"attention_chunk_size": 4, "pad_token_id": 0},
    ),
    "Mixtral": ("MixtralConfig", GROUPED | {"num_local_experts": 4}),
    "Olmo2": ("Olmo2Config", GROUPED),
    "StableLm": ("StableLmConfig", GROUPED),
}


def build(name, config, fields):
    """A scrambled model of this class, with eager attention to compare with."""
    import transformers

    made = getattr(transformers, config)(**fields, attn_implementation="eager")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return scramble(getattr(transformers, f"{name}ForCausalLM")(made), 0.1)


@pytest.mark.parametrize("name", OTHERS)
@torch.no_grad()
def test_logits_and_patterns_are_the_models_own(name):
    hf = build(name, *OTHERS[name])
    theirs = hf(TOKENS, output_attentions=True)
    logits, cache = wrap(hf).run_with_cache(TOKENS)
    torch.testing.assert_close(logits, theirs.logits, atol=1e-5, rtol=0)
    for layer, pattern in enumerate(theirs.attentions):
        torch.testing.assert_close(cache["pattern", layer], pattern, atol=1e-6, rtol=0)


def test_learned_sinks_are_refused_by_name():
    fields = GROUPED | {"head_dim": 16, "num_local_experts": 4, "rope_parameters": None}
    hf = build("GptOss", "GptOssConfig", fields)
    with pytest.raises(ValueError, match="GptOssAttention passes 's_aux'"):
        wrap(hf)
