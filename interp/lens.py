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
        ValueError: The shapes differ, or nothing is asked.

    Source: Elhage et al. 2021; "direct logit attribution" in Wang et al. 2022.
    """
    asked = answer >= 0
    if answer.shape != tokens.shape or not bool(asked.any()):
        raise ValueError(
            f"answer must be [batch pos] like the tokens {list(tokens.shape)}, with a token of at "
            f"least 0 somewhere; got {list(answer.shape)}"
        )
    _, cache = model.run_with_cache(tokens, mask=mask, hooks=hooks)
    direction, offset = _direction(model, answer.clamp(min=0))
    if wrong is not None:
        other, other_offset = _direction(model, wrong.clamp(min=0))
        direction, offset = direction - other, offset - other_offset
    each, names = _written(model, cache, direction)
    each = torch.cat([each, offset[None]]).masked_fill(~asked, torch.nan)
    effect = each.nanmean((1, 2))
    return LogitAttribution(effect, each, (*names, "end"), effect.sum().item())


def _written(
    model: Transformer, cache: ActivationCache, direction: Float[Tensor, "batch pos d_model"]
) -> tuple[Float[Tensor, "component batch pos"], list[str]]:
    parts, names = cache.decompose_resid(heads=True, apply_ln=True)
    gain = model.ln_final.weight
    return torch.einsum("cbtd,btd->cbt", parts if gain is None else parts * gain, direction), names


def _direction(
    model: Transformer, token: Int[Tensor, "batch pos"]
) -> tuple[Float[Tensor, "batch pos d_model"], Float[Tensor, "batch pos"]]:
    """The unembedding of each token, and what reaches its logit whatever was written."""
    direction, offset = model.W_U.T[token], model.b_U[token]
    if model.ln_final.bias is not None:
        offset = offset + direction @ model.ln_final.bias
    return direction, offset
