"""Small Hugging Face models of each family, scrambled; nothing is fetched."""

import torch

from tests.scrambled import scramble

IDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 40,
    "max_position_embeddings": 64,
    **IDS,
}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 40, "n_positions": 64, **IDS}
OPT = {k: v for k, v in SIZES.items() if k != "intermediate_size"} | {"ffn_dim": 48}
GROUPED = SIZES | {"num_key_value_heads": 2}
FAMILIES = {
    "gpt2": ("GPT2", GPT2),
    "neox": ("GPTNeoX", SIZES | {"rotary_pct": 0.5}),
    "opt": ("OPT", OPT | {"word_embed_proj_dim": 32, "dropout": 0.0}),
    "llama": ("Llama", GROUPED),
    "mistral": ("Mistral", GROUPED | {"sliding_window": 4}),
    "qwen2": ("Qwen2", GROUPED),
    "qwen3": ("Qwen3", GROUPED | {"head_dim": 16}),
    "gemma2": ("Gemma2", GROUPED | {"head_dim": 16, "sliding_window": 4}),
    "phi": ("Phi", SIZES | {"partial_rotary_factor": 0.5}),
}


def make(family: str, **changes):
    """A scrambled model of this family, in eval mode."""
    name, sizes = FAMILIES[family]
    return of_class(name, **sizes | changes)


def of_class(name: str, **fields):
    """A scrambled model of this class."""
    import transformers

    config = getattr(transformers, f"{name}Config")(**fields)
    model = getattr(transformers, f"{name}{'LMHeadModel' if name == 'GPT2' else 'ForCausalLM'}")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return scramble(model(config), 0.1)


def save_with_tokenizer(model, folder) -> None:
    """Write a model, and a tokenizer of words, as a checkpoint of the hub would have them."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<s>", "<unk>", "once", "upon", "a", "time", ",", "lily"]
    plain = Tokenizer(models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"bos_token": "<s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=plain, **special).save_pretrained(folder)
    model.save_pretrained(folder)
