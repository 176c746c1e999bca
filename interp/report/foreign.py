"""A report's subject where there is a model but no run: it is shown what it says itself."""

from pathlib import Path

import torch

from interp.interop import Hints, format_of, open_model
from interp.metrics import next_token_targets
from interp.model import Transformer
from interp.probes.induction import room_of
from interp.probes.sequences import SHORTEST
from interp.report.subject import SEED, SEQUENCES, Subject, repeats_of_random_tokens
from interp.tasks import Batch

LONGEST = 64
MOST = 0.5  # of the samples


def subject_of_file(path: str | Path, hints: Hints | None = None) -> Subject:
    """The model of any file or folder that `interp.interop.open_model` opens.

    There is no task, so it is looked at on sequences sampled from the model itself. Where these
    only repeat one token, on blocks of random tokens, repeated.

    Raises:
        FileNotFoundError: There is nothing there.
        ValueError: It is of no format that is read, or broken; or it predicts no next token.
    """
    path, hints = Path(path), Hints() if hints is None else hints
    kind, model = format_of(path, hints), open_model(path, hints)
    _check_predicts(path, kind, model)
    draw = torch.Generator().manual_seed(SEED)
    room = room_of(model)
    periods = room.default_periods() if room.longest > SHORTEST else ()
    batch, reference = shown_to(model, draw), shown_to(model, draw)
    shown = "its own samples"
    if says_one_token(batch) or says_one_token(reference):
        batch, reference = (_random(model, periods, draw) for _ in range(2))
        shown = "repeated random tokens" if periods else "random tokens"
    return Subject(
        name=path.stem,
        run=None,
        model=model,
        batch=batch,
        reference=reference,
        repeats=repeats_of_random_tokens(model, periods, draw) if periods else None,
        repeats_reference=repeats_of_random_tokens(model, periods, draw) if periods else None,
        periods=periods,
        withheld=False,
        labels=labels_of(model),
        metrics=[],
        described={"model": model.config.to_dict(), "format": kind},
        step=None,
        shown=shown,
    )


def _check_predicts(path: Path, kind: str, model: Transformer) -> None:
    """Refuse a model of which no next token can be asked, so that no cut has a loss."""
    config = model.config
    kinds = {config.attention_of(layer)[0] for layer in range(config.n_layers)}
    if config.vocab_out == config.d_vocab and "full" not in kinds:
        return
    what = "a program of tracr" if kind == "tracr" else "this model"
    why = (
        f"gives {config.vocab_out} labels for {config.d_vocab} tokens"
        if config.vocab_out != config.d_vocab
        else "sees ahead"
    )
    raise ValueError(
        f"{path}: {what} {why} and predicts no next token, so there is no loss to analyze; open it "
        "with interp.interop.open_model, and ask interp.probes.head_statistics(model, tokens), or "
        "interp.ablation.sweep(model, batch) with targets of your own"
    )


def shown_to(model: Transformer, draw: torch.Generator) -> Batch:
    """Sequences that a model is looked at on, for want of others."""
    config = model.config
    length = min(config.n_ctx, LONGEST)
    start = torch.randint(0, config.d_vocab, (SEQUENCES, 1), generator=draw)
    if config.bos_token is not None:
        start.fill_(config.bos_token)
    tokens = model.generate(start, length - 1, temperature=1.0, generator=draw)
    real = torch.ones_like(tokens, dtype=torch.bool)
    return Batch(tokens, real, next_token_targets(tokens))


def says_one_token(batch: Batch) -> bool:
    """Whether most sequences are one token over and over behind the first: they test no head."""
    said = batch.tokens[:, 1:]
    return bool(((said == said[:, :1]).all(1).double().mean() > MOST).item())


def _random(model: Transformer, periods: tuple[int, ...], draw: torch.Generator) -> Batch:
    """Blocks of random tokens, repeated; tokens that are just random where blocks don't fit."""
    if periods:
        return repeats_of_random_tokens(model, periods, draw)
    size = (SEQUENCES, min(model.config.n_ctx, LONGEST))
    tokens = torch.randint(0, model.config.d_vocab, size, generator=draw)
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), next_token_targets(tokens))


def labels_of(model: Transformer) -> tuple[str, ...]:
    """The text of each token, or its number."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        return tuple(str(token) for token in range(model.config.d_vocab))
    return tuple(tokenizer.decode([token]) for token in range(model.config.d_vocab))
