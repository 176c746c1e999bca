"""A wrapped model computes what it computed, is observed, and is left as it was."""

import threading

import pytest
import torch

from interp import wrap
from interp.attention import Causal, Window, materialised
from interp.attention.view import AttentionView
from interp.interop.attention_interface import rule_of
from tests.hugging_face_models import FAMILIES, make, of_class

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5]])


@pytest.fixture(scope="module")
def llama():
    return make("llama")


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_logits_and_patterns_are_the_models_own(family):
    hf = make(family, attn_implementation="eager")
    theirs = hf(TOKENS, output_attentions=True)
    logits, cache = wrap(hf).run_with_cache(TOKENS)
    # Fused against materialised attention in float32: 1e-6 measured.
    torch.testing.assert_close(logits, theirs.logits, atol=1e-5, rtol=0)
    for layer, pattern in enumerate(theirs.attentions):
        torch.testing.assert_close(cache["pattern", layer], pattern, atol=1e-6, rtol=0)
    assert hf.config._attn_implementation == "eager"


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_left_padding_changes_nothing(family):
    model = wrap(make(family))
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[0, :4] = False
    padded = model(TOKENS, mask=mask)[0, 4:]
    torch.testing.assert_close(padded, model(TOKENS[:1, 4:])[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2"])
@torch.no_grad()
def test_masks_are_rules_of_position_so_that_nothing_is_spelled_out(family):
    calls = []

    def note(call, tap):
        calls.append(call)
        return materialised(call, tap)

    wrap(make(family))(TOKENS, kernel=note)
    assert [call.layer for call in calls] == [0, 1]
    assert all(call.visible.extra is None for call in calls)
    windows = {"llama": [0, 0], "mistral": [4, 4], "gemma2": [4, 0]}[family]
    wanted = [Window(w) if w else Causal() for w in windows]
    assert [call.visible.rule for call in calls] == wanted
    assert calls[0].soft_cap == (50.0 if family == "gemma2" else None)


@torch.no_grad()
def test_a_kernel_sees_what_gives_the_entropies_of_the_patterns(llama):
    found = []

    def look(call, tap):
        found.append(AttentionView.of(call).entropy())
        return materialised(call, tap)

    model = wrap(llama)
    model(TOKENS, kernel=look)
    _, cache = model.run_with_cache(TOKENS)
    for layer, entropy in enumerate(found):
        pattern = cache["pattern", layer]
        wanted = torch.special.entr(pattern).sum(-1)
        torch.testing.assert_close(entropy, wanted, atol=1e-5, rtol=0)


@torch.no_grad()
def test_head_statistics_run_on_it(llama):
    from interp import probes

    model = wrap(llama)
    heads = probes.head_statistics(model, TOKENS, rows=torch.ones_like(TOKENS, dtype=torch.bool))
    assert heads.entropy.shape == (2, 4)
    _, cache = model.run_with_cache(TOKENS)
    entropy = torch.special.entr(cache["pattern", 1]).sum(-1).mean((0, 2))
    torch.testing.assert_close(heads.entropy[1].float(), entropy, atol=1e-5, rtol=0)
    written = torch.einsum("bthe,hed->bthd", cache["z", 1], model.blocks[1].attn.W_O)
    norm = written.norm(dim=-1).mean((0, 1))
    torch.testing.assert_close(heads.write_norm[1].float(), norm, atol=1e-4, rtol=0)


@torch.no_grad()
def test_editing_z_and_pattern_acts_and_leaves_nothing(llama):
    model = wrap(llama)
    before = model(TOKENS)

    def cut(z, hook):
        z[:, :, 2] = 0

    cut_z = model(TOKENS, hooks=[("blocks.1.attn.hook_z", cut)])
    by_hand = llama.model.layers[1].self_attn.o_proj.weight.clone()
    llama.model.layers[1].self_attn.o_proj.weight[:, 16:24] = 0  # head 2 writes nothing
    torch.testing.assert_close(cut_z, llama(TOKENS).logits, atol=1e-5, rtol=0)
    llama.model.layers[1].self_attn.o_proj.weight.copy_(by_hand)
    uniform = [("*.hook_pattern", lambda p, hook: (p > 0) / (p > 0).sum(-1, keepdim=True))]
    assert (model.run_with_hooks(TOKENS, uniform) - before).abs().max() > 1e-3
    with model.hooks(uniform):
        assert (model(TOKENS) - before).abs().max() > 1e-3
    assert torch.equal(model(TOKENS), before)


def test_queries_before_rotation_are_refused_by_name(llama):
    with pytest.raises(LookupError, match="hook_rot_q"):
        wrap(llama)(TOKENS, hooks=[("blocks.0.attn.hook_q", lambda x, hook: x)])
    gpt2 = wrap(make("gpt2"))
    assert "blocks.0.attn.hook_q" in gpt2.hook_names()
    with pytest.raises(LookupError, match="hook_resid_pre"):
        gpt2.run_with_cache(TOKENS, "blocks.0.hook_resid_pre")


def test_gradients_flow_through(llama):
    model = wrap(llama)
    seen = {}
    hooks = [("*.hook_v", lambda g, hook: seen.__setitem__(hook.name, g.clone()))]
    model.run_with_hooks(TOKENS, bwd_hooks=hooks, return_type="loss").backward()
    assert set(seen) == {f"blocks.{layer}.attn.hook_v" for layer in range(2)}
    assert all(g.abs().max() > 0 for g in seen.values())
    llama.zero_grad()


@torch.no_grad()
def test_the_model_is_left_as_it_was_after_an_exception(llama):
    before, implementation = llama(TOKENS).logits, llama.config._attn_implementation

    def boom(x, hook):
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        wrap(llama)(TOKENS, hooks=[("*.hook_z", boom)])
    assert llama.config._attn_implementation == implementation
    assert torch.equal(llama(TOKENS).logits, before)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@torch.no_grad()
def test_other_threads_and_models_do_not_notice(implementation):
    hf, other = make("llama", attn_implementation=implementation), make("gpt2")
    alone, others = hf(TOKENS).logits, other(TOKENS).logits
    inside, go_on = threading.Event(), threading.Event()
    mine = []

    def wait(z, hook):
        inside.set()
        assert go_on.wait(60)
        z.zero_()

    def edit():
        with torch.no_grad():
            mine.append(wrap(hf)(TOKENS, hooks=[("blocks.0.attn.hook_z", wait)]))

    thread = threading.Thread(target=edit)
    thread.start()
    assert inside.wait(60)
    during = hf(TOKENS).logits  # used directly, while it is wrapped elsewhere
    wrapped_too, wrapped_other = wrap(hf)(TOKENS), wrap(other)(TOKENS)
    go_on.set()
    thread.join()
    assert torch.equal(during, alone)
    torch.testing.assert_close(wrapped_too, alone, atol=1e-5, rtol=0)
    torch.testing.assert_close(wrapped_other, others, atol=1e-5, rtol=0)
    assert (mine[0] - alone).abs().max() > 1e-3
    assert hf.config._attn_implementation == implementation


@torch.no_grad()
def test_hooks_of_one_wrapped_model_do_not_reach_another():
    one, other = wrap(make("llama")), wrap(make("llama"))
    before = other(TOKENS)
    with one.hooks([("*.hook_z", lambda z, hook: z * 0)]):
        assert torch.equal(other(TOKENS), before)


BYPASSING = {
    "GPTNeo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "num_heads": 4},
    "Bloom": {"n_layer": 2, "n_head": 4},
    "Mpt": {"n_layers": 2, "n_heads": 4, "d_model": 32},
    "Falcon": {"num_hidden_layers": 2, "num_attention_heads": 4},
}


@pytest.mark.parametrize("name", BYPASSING)
def test_architectures_that_bypass_the_interface_are_refused_by_name(name):
    hf = of_class(name, vocab_size=40, hidden_size=32, bos_token_id=0, **BYPASSING[name])
    with pytest.raises(TypeError, match=f"{name}ForCausalLM"):
        wrap(hf)
    assert hf.config._attn_implementation != "interp"


def test_what_is_no_language_model_is_refused():
    with pytest.raises(TypeError, match="Linear"):
        wrap(torch.nn.Linear(2, 2))


def test_attention_dropout_in_training_is_refused():
    hf = make("llama", attention_dropout=0.1)
    model = wrap(hf)
    hf.train()
    with pytest.raises(ValueError, match=r"model\.eval"):
        model(TOKENS)


def test_only_known_mask_functions_become_rules():
    from transformers.masking_utils import (
        and_masks,
        causal_mask_function,
        sliding_window_causal_mask_function,
    )

    assert rule_of(causal_mask_function, None) == Causal()
    assert rule_of(sliding_window_causal_mask_function(3), 3) == Window(3)
    assert rule_of(sliding_window_causal_mask_function(3), 4) is None
    assert rule_of(and_masks(causal_mask_function, lambda b, h, q, k: k > 2), 3) is None


@torch.no_grad()
def test_a_mask_that_is_no_rule_is_spelled_out():
    """A window with pads between real tokens counts slots, so positions can't tell."""
    hf = make("mistral", attn_implementation="eager")
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[:, 5:7] = False
    positions = (mask.long().cumsum(-1) - 1).clamp(min=0)
    theirs = hf(TOKENS, attention_mask=mask.long(), position_ids=positions).logits
    ours = wrap(hf)(TOKENS, mask=mask)
    torch.testing.assert_close(ours[:, 7:], theirs[:, 7:], atol=1e-5, rtol=0)


def test_last_norm_is_known_by_what_it_does():
    for family, kind in (("llama", "rms_norm"), ("gpt2", "layer_norm"), ("gemma2", "rms_norm")):
        hf = make(family)
        found = wrap(hf).ln_final
        norm = hf.transformer.ln_f if family == "gpt2" else hf.model.norm
        gain = norm.weight + 1 if family == "gemma2" else norm.weight
        assert found.kind == kind
        torch.testing.assert_close(found.weight, gain.detach(), atol=1e-3, rtol=1e-3)


# --- third-party weights, and experiments --------------------------------------------------------


@torch.no_grad()
def test_stories_through_wrap_have_the_statistics_of_the_recorded_patterns(shared):
    import numpy as np
    from transformers import AutoModelForCausalLM

    from interp import probes

    folder = shared / "fixtures" / "stories260K"
    reference = np.load(folder / "ref.npz")
    tokens = torch.from_numpy(reference["tokens"])
    model = wrap(AutoModelForCausalLM.from_pretrained(folder / "hf").eval())
    heads = probes.head_statistics(model, tokens, rows=torch.ones_like(tokens, dtype=torch.bool))
    for layer in range(5):
        pattern = torch.from_numpy(reference[f"pattern_L{layer}"]).float()
        entropy = torch.special.entr(pattern).sum(-1).mean((0, 2))
        previous = pattern.diagonal(-1, dim1=2, dim2=3).mean((0, 2))
        # The patterns were recorded in float16: entropies of 200 keys carry 1e-3 of that.
        torch.testing.assert_close(heads.entropy[layer].float(), entropy, atol=3e-3, rtol=0)
        torch.testing.assert_close(heads.previous_token[layer].float(), previous, atol=1e-3, rtol=0)


@torch.no_grad()
def test_experiments_on_a_wrapped_model_equal_those_on_the_loaded_one(llama):
    from interp import ablation, load_hugging_face, patching

    wrapped, loaded = wrap(llama), load_hugging_face(llama)
    sweeps = [ablation.sweep(m, TOKENS, kind="mean", reference=TOKENS) for m in (wrapped, loaded)]
    torch.testing.assert_close(sweeps[0].effect, sweeps[1].effect, atol=1e-5, rtol=1e-4)
    corrupted = TOKENS.flip(0)
    patches = [
        patching.activation_patching(m, TOKENS, corrupted, site="z", metric="loss")
        for m in (wrapped, loaded)
    ]
    torch.testing.assert_close(patches[0].effect, patches[1].effect, atol=1e-5, rtol=1e-4)
    cut = [ablation.ablate(m, TOKENS, heads=[(0, 1), (1, 2)]) for m in (wrapped, loaded)]
    torch.testing.assert_close(cut[0], cut[1], atol=1e-5, rtol=1e-4)
