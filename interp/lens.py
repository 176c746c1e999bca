"""What the residual stream already says, and who wrote it."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.cache import ActivationCache
from interp.hooks import Hooks
from interp.model import Transformer
from interp.results import Result
from interp.weights import check_own


@torch.no_grad()
def logit_lens(
    model: Transformer,
    tokens: Int[Tensor, "batch pos"],
    *,
    mask: Bool[Tensor, "batch pos"] | None = None,
    hooks: Hooks = (),
) -> Float[Tensor, "depth batch pos d_vocab"]:
    """Logits read from the residual stream before each layer, and at the end: L + 1 of them.

    Each is normalised by its own scale through the final norm, then unembedded; the last one is the
    model's output.

    Source: nostalgebraist 2020, "interpreting GPT: the logit lens".
    """
    check_own(model)
    names = ["*.hook_resid_pre", f"blocks.{model.config.n_layers - 1}.hook_resid_post"]
    _, cache = model.run_with_cache(tokens, names, mask=mask, hooks=hooks)
    stream, _ = cache.accumulated_resid()
    last = model.config.n_layers
    return torch.stack([model(resid, mask=mask, start_at_layer=last) for resid in stream])


@dataclass(frozen=True, eq=False, repr=False)
class LogitAttribution(Result):
    """What each writer adds to a logit or a difference of logits, directly.

    Attributes:
        effect: Mean over examples and positions that count; the components sum to `logit`.
        per_position: Each position's, [component batch pos]; NaN where nothing was asked.
        components: "embed", "pos_embed", a head "L0H1", an MLP, "biases", and "end" for the final
            norm's bias and the unembedding's.
        logit: The logit, or the difference, itself (before a soft cap).
    """

    axes: ClassVar = {
        "effect": ("component",),
        "per_position": ("component", "example", "position"),
    }
    coordinates: ClassVar = {"component": "components"}

    effect: Float[Tensor, " component"]
    per_position: Float[Tensor, "component batch pos"]
    components: tuple[str, ...]
    logit: float


@torch.no_grad()
def direct_logit_attribution(
    model: Transformer,
    tokens: Int[Tensor, "batch pos"],
    answer: Int[Tensor, "batch pos"],
    wrong: Int[Tensor, "batch pos"] | None = None,
    *,
    mask: Bool[Tensor, "batch pos"] | None = None,
    hooks: Hooks = (),
) -> LogitAttribution:
    """Split the logit of `answer` (less that of `wrong`) over everything that wrote to the stream.

    The final norm's scale is held at what it was; the parts then sum to the logit. Positive raises
    the answer.

    Args:
        model: The model.
        tokens: Token ids.
        answer: The token asked about at each position, −1 or −100 where nothing is asked.
        wrong: The token whose logit is taken off; None: nothing is.
        mask: True where a token is real.
        hooks: Run during the pass.

    Raises:
        TypeError: The model is wrapped.
        ValueError: The shapes differ, nothing is asked, or of a token that there is not.

    Source: Elhage et al. 2021; "direct logit attribution" in Wang et al. 2022.
    """
    check_own(model)
    asked = _asked(model, tokens, answer, wrong)
    _, cache = model.run_with_cache(tokens, mask=mask, hooks=hooks)
    direction, offset = _direction(model, answer.clamp(min=0))
    if wrong is not None:
        other, other_offset = _direction(model, wrong.clamp(min=0))
        direction, offset = direction - other, offset - other_offset
    each, names = _written(model, cache, direction)
    each = torch.cat([each, offset[None]]).masked_fill(~asked, torch.nan)
    effect = each.nanmean((1, 2))
    return LogitAttribution(effect, each, (*names, "end"), effect.sum().item())


def _asked(
    model: Transformer, tokens: Tensor, answer: Tensor, wrong: Tensor | None
) -> Bool[Tensor, "batch pos"]:
    asked = answer >= 0
    if answer.shape != tokens.shape or not bool(asked.any()):
        raise ValueError(
            f"answer must be [batch pos] like the tokens {list(tokens.shape)}, with a token of at "
            f"least 0 somewhere; got {list(answer.shape)}"
        )
    _check_range("answer", answer[asked], model)
    if wrong is not None and wrong.shape != answer.shape:
        raise ValueError(f"wrong must be {list(answer.shape)}, got {list(wrong.shape)}")
    if wrong is not None:
        _check_range("wrong", wrong[asked], model)
    return asked


def _check_range(name: str, asked: Tensor, model: Transformer) -> None:
    least, most = (int(x) for x in asked.aminmax())
    if least < 0 or most >= model.config.vocab_out:
        raise ValueError(
            f"{name} must lie in [0, {model.config.vocab_out}) where an answer is asked for, "
            f"got {least} … {most}"
        )


def _written(
    model: Transformer, cache: ActivationCache, direction: Float[Tensor, "batch pos d_model"]
) -> tuple[Float[Tensor, "component batch pos"], list[str]]:
    parts, names = cache.decompose_resid(heads=True, apply_ln=True)
    gain = model.ln_final.weight
    gained = parts if gain is None else parts * gain
    return torch.einsum("cbtd,btd->cbt", gained.to(direction.dtype), direction), names


def _direction(
    model: Transformer, token: Int[Tensor, "batch pos"]
) -> tuple[Float[Tensor, "batch pos d_model"], Float[Tensor, "batch pos"]]:
    """The unembedding of each token, and what reaches its logit whatever was written."""
    wide = torch.promote_types(model.W_U.dtype, torch.float32)
    direction, offset = model.W_U.T[token].to(wide), model.b_U[token].to(wide)
    if model.ln_final.bias is not None:
        offset = offset + direction @ model.ln_final.bias.to(wide)
    return direction, offset
