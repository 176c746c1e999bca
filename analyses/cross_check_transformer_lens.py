"""Do TransformerLens 4 and interp find the same in the same model?

Question: A model trained here, exported to TransformerLens 4: do its cache, ablation, activation
    patching and FactoredMatrix say what ours say? Does it open HookedTransformer checkpoints
    rightly? And does a model that it booted from Hugging Face look the same through `wrap`?
Method: `interp.to_bridge` of a trained induction model (the one that ships with the dashboard);
    every activation that both name alike; each head cut at z; each head's z patched from clean
    into corrupted sequences, as a difference of logits; eigenvalues of each head's OV matrix.
    Checkpoints of scrambled models, as `save_transformer_lens` writes them, converted by its own
    `convert_tl_checkpoint` (without tables of rotations, which it refuses) and loaded strictly
    into `boot_native`. A small scrambled Llama through `boot_transformers` and `wrap`.
Finding: On a model that both can express they agree: logits to 2e-5, patterns to 3e-6, z to 7e-6,
    ablations to 3e-5, patching to 3e-6, eigenvalues exactly. Its conversion of old checkpoints
    loads strictly, without a word, and computes something else: logits are 6.2 apart with local
    attention, 4.3 with rotation by halves, 4.1 with parallel blocks, 0.8 with scores divided by
    the layer's number. interp opens the same files to the logits that were written. A booted
    Llama through `wrap` has its logits to 7e-7, its patterns to 9e-8.
Run: python analyses/cross_check_transformer_lens.py OUT [--run RUN]
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

import interp
from interp import ablation, patching
from interp.interop.transformer_lens_save import legacy_config, legacy_state
from interp.results import plain, write_atomic

SHIPPED = Path(__file__).parents[1] / "apps" / "models" / "induction"

OLD = {
    "plain": {},
    "local attention": {"attention": "window", "attention_options": {"window": 3}},
    "parallel blocks": {"parallel": True},
    "rotation by halves": {"positional": "rotary"},
    "rotation by neighbours": {"positional": "rotary", "rotary_interleaved": True},
    "scores / layer": {"attention_scale": (0.4, 0.2)},
}
"""What HookedTransformer checkpoints may do beyond the plain case."""


def main(out: Annotated[Path, typer.Argument(file_okay=False)], run: Path = SHIPPED) -> None:
    """Write cross_check_transformer_lens.json and .html to a folder."""
    model = interp.load(run)
    bridge = interp.to_bridge(model)
    tokens = repeats(model)
    numbers: dict[str, Any] = {
        "run": run.name,
        "same model": {
            **activations(model, bridge, tokens),
            "ablation": ablations(model, bridge, tokens),
            "patching": patchings(model, bridge, tokens),
            "OV eigenvalues": eigenvalues(model, bridge),
        },
        "their conversion of old checkpoints, logits apart": old_checkpoints(theirs_of_old),
        "ours of the same checkpoints, logits apart": old_checkpoints(ours_of_old),
        "a Llama of boot_transformers through wrap": booted_and_wrapped(),
    }
    write_atomic(
        out / "cross_check_transformer_lens.json", json.dumps(plain(numbers), indent=1) + "\n"
    )
    write_atomic(out / "cross_check_transformer_lens.html", interp.plots.to_html(figure(numbers)))


def repeats(model: interp.Transformer, n: int = 8) -> Tensor:
    """Sequences whose second half repeats the first, behind BOS where there is one."""
    draw, half = torch.Generator().manual_seed(0), (model.config.n_ctx - 1) // 2
    block = torch.randint(0, model.config.d_vocab - 1, (n, half), generator=draw)
    start = torch.full((n, 1), model.config.bos_token or 0)
    return torch.cat([start, block, block], 1)


def apart(a: Tensor, b: Tensor) -> float:
    """The largest difference, of what is finite."""
    return float((a - b).nan_to_num(0.0, 0.0, 0.0).abs().max())


@torch.no_grad()
def activations(model: interp.Transformer, bridge: Any, tokens: Tensor) -> dict[str, float]:
    """The largest difference of each kind of activation that both name alike."""
    logits, cache = model.run_with_cache(tokens)
    theirs, their_cache = bridge.run_with_cache(tokens)
    found = {"logits": apart(logits, theirs)}
    moved = model.config.positional == "rotary"  # q and k stand in another order there
    skipped = {"hook_q", "hook_k", "hook_rot_q", "hook_rot_k"} if moved else set()
    skipped |= {"hook_attn_scores"}  # theirs shows the pattern in its place
    for name in cache:
        last = name.rpartition(".")[2]
        if last in skipped or name not in their_cache:
            continue
        kind = last.removeprefix("hook_")
        found[kind] = max(found.get(kind, 0.0), apart(cache[name], their_cache[name]))
    return found


@torch.no_grad()
def ablations(model: interp.Transformer, bridge: Any, tokens: Tensor) -> float:
    """Each head cut at z, in both: the largest difference of logits."""
    worst = 0.0
    for layer in range(model.config.n_layers):
        for head in range(model.config.n_heads):

            def cut(z: Tensor, hook: Any, head: int = head) -> Tensor:
                z[:, :, head] = 0
                return z

            theirs = bridge.run_with_hooks(tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", cut)])
            ours = ablation.ablate(model, tokens, heads=[(layer, head)], kind="zero")
            worst = max(worst, apart(ours, theirs))
    return worst


@torch.no_grad()
def patchings(model: interp.Transformer, bridge: Any, tokens: Tensor) -> float:
    """Each head's z from clean into corrupted, by both: the largest difference of the effect."""
    from transformer_lens.patching import get_act_patch_attn_head_out_all_pos

    corrupted = tokens.clone()
    at = (tokens.shape[1] - 1) // 2
    corrupted[:, 1 : at + 1] = corrupted[:, 1 : at + 1].roll(1, 0)  # the first half of another
    answer, wrong = tokens[:, at + 2], corrupted[:, 2]

    def difference(logits: Tensor, batch: Any = None) -> Tensor:
        row = logits[:, at + 1]
        return (row.gather(1, answer[:, None]) - row.gather(1, wrong[:, None]))[:, 0]

    ours = patching.activation_patching(model, tokens, corrupted, site="z", metric=difference)
    _, clean = bridge.run_with_cache(tokens)
    theirs = get_act_patch_attn_head_out_all_pos(
        bridge, corrupted, clean, lambda logits: difference(logits).mean()
    )
    return apart(ours.effect, theirs - difference(bridge(corrupted)).mean())


@torch.no_grad()
def eigenvalues(model: interp.Transformer, bridge: Any) -> float:
    """Of each head's W_V W_O, by both FactoredMatrix classes: the largest difference in size."""
    from transformer_lens import FactoredMatrix

    worst = 0.0
    for layer, block in enumerate(bridge.blocks):
        theirs = FactoredMatrix(block.attn.W_V, block.attn.W_O).eigenvalues
        for head in range(model.config.n_heads):
            factors = model.W_V[layer, head], model.W_O[layer, head]
            ours = torch.linalg.eigvals(factors[1] @ factors[0])
            sizes = [x.abs().sort().values for x in (ours, theirs[head])]
            worst = max(worst, apart(*sizes))
    return worst


def old_checkpoints(open_old: Callable[[dict[str, Any], dict[str, Tensor]], Any]) -> dict[str, Any]:
    """For each kind: how far apart logits are from those of the model that was written."""
    sizes = {"n_layers": 2, "n_heads": 4, "d_model": 32, "d_vocab": 20, "n_ctx": 16, "d_mlp": 48}
    tokens = torch.tensor([[1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8]])
    found: dict[str, Any] = {}
    for name, fields in OLD.items():
        model = scrambled(interp.TransformerConfig(**sizes, **fields))
        old = open_old(legacy_config(model.config), legacy_state(model))
        with torch.no_grad():
            found[name] = apart(model(tokens), old(tokens))
    return found


def theirs_of_old(config: dict[str, Any], state: dict[str, Tensor]) -> Any:
    """TransformerLens 4's own conversion, loaded strictly, as its `boot_tl_legacy` does."""
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge.sources.native import boot
    from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint

    theirs = TransformerBridgeConfig.from_dict(config)
    bridge = boot(theirs, device="cpu")
    known = {name: x for name, x in state.items() if ".rotary_" not in name}  # tables it refuses
    converted = convert_tl_checkpoint(known, theirs)
    converted.setdefault("unembed.bias", torch.zeros(config["d_vocab"]))
    bridge.load_state_dict(converted, strict=True)
    return bridge.eval()


def ours_of_old(config: dict[str, Any], state: dict[str, Tensor]) -> interp.Transformer:
    """Interp's."""
    return interp.load_transformer_lens(state, config)


def scrambled(config: interp.TransformerConfig) -> interp.Transformer:
    """A model without the gains of 1 and biases of 0 that hide faults; no bias on logits."""
    model, draw = interp.Transformer(config), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name != "unembed.bias":
                weight.add_(0.3 * torch.randn(weight.shape, generator=draw))
    return model.eval()


@torch.no_grad()
def booted_and_wrapped() -> dict[str, float]:
    """A scrambled Llama: its bridge, and that through `wrap`, against the model itself."""
    from tokenizers import Tokenizer, models
    from transformer_lens.model_bridge import TransformerBridge
    from transformer_lens.model_bridge.sources import transformers as source
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    assert source is not None  # importing it gives TransformerBridge its boot_transformers
    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        vocab_size=40,
        attn_implementation="eager",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        llama = LlamaForCausalLM(config).eval()
    for weight in llama.parameters():
        weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    words = Tokenizer(models.WordLevel({"<s>": 0, "<unk>": 1}, unk_token="<unk>"))
    with tempfile.TemporaryDirectory() as folder:
        llama.save_pretrained(folder)
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>")
        tokenizer.save_pretrained(folder)
        bridge = TransformerBridge.boot_transformers(folder, device="cpu")
    tokens = torch.randint(0, 40, (2, 24), generator=torch.Generator().manual_seed(2))
    theirs = llama(tokens, output_attentions=True)
    found: dict[str, float] = {"their bridge, logits": apart(bridge(tokens), theirs.logits)}
    for name, model in (("wrap of the bridge", bridge), ("wrap of the model", llama)):
        logits, cache = interp.wrap(model).run_with_cache(tokens)
        found[f"{name}, logits"] = apart(logits, theirs.logits)
        patterns = [apart(cache["pattern", n], p) for n, p in enumerate(theirs.attentions)]
        found[f"{name}, patterns"] = max(patterns)
    return found


def figure(numbers: dict[str, Any]) -> Any:
    """How far apart old checkpoints come out, by either library."""
    import plotly.graph_objects as go

    theirs = numbers["their conversion of old checkpoints, logits apart"]
    ours = numbers["ours of the same checkpoints, logits apart"]
    drawn = go.Figure()
    for name, values, color in (
        ("TransformerLens 4", theirs, "#D55E00"),
        ("interp", ours, "#0072B2"),
    ):
        floor = [max(value, 1e-8) for value in values.values()]
        drawn.add_bar(name=name, x=list(values), y=floor, marker_color=color)
    drawn.update_yaxes(type="log", title="largest difference of logits")
    wrong = [name for name, value in theirs.items() if value > 1e-3]
    return interp.plots.finish(
        drawn,
        question="Which old checkpoints compute what they computed?",
        alt=f"In TransformerLens 4's own conversion, not those with {', '.join(wrong)}.",
        notes=["Drawn at 1e-8 or above."],
    )


if __name__ == "__main__":
    typer.run(main)
