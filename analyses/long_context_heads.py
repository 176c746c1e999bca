"""Do heads that were trained on short sequences keep their jobs in long ones?

Question: What do the scores of all heads become as the sequence grows to 32,768 tokens, and what
    does it take, in time and memory, to know them exactly?
Method: A rotary model's weights do not depend on its context, so the run's model is given a longer
    one. It reads blocks of random tokens, repeated at a period that training withheld.
    `probes.head_statistics` takes every score in one forward pass, in a process of its own for
    each length, whose time and peak memory stand beside the scores.
Finding: They do not, and the scores say how. On the model that the dashboard ships (trained at 64
    tokens) the best induction head falls from 0.86 at 64 tokens to 0.30 at 512 and to chance, 0.05
    (one key in 22), from 8,192 on; the previous-token heads it stands on from 0.43 to 0.10 and
    then 0. Nothing replaces the jobs: no sink forms (0.00), attention spreads. Normalised entropy
    hides that (0.26 to 0.61 for the best head); in effective keys it is 2 to 317. All scores
    at 32,768 tokens took 0.40 GB and 81 s on two busy cores, where patterns alone take 34 GB.
Run: python analyses/long_context_heads.py OUT --run runs/demo
"""

import json
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import plotly.graph_objects as go
import torch
import typer
from plotly.subplots import make_subplots

from interp import Transformer, load, plots, probes
from interp.plots.figure import Figure, finish
from interp.probes.sequences import Room
from interp.results import plain, write_atomic

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768)
SCORES = ("induction", "previous_token", "duplicate_token", "sink", "normalized_entropy")


def main(
    out: Annotated[Path, typer.Argument(file_okay=False)],
    run: Path = Path("runs/demo"),
    period: int = 22,
    longest: int = 32_768,
) -> None:
    """Write long_context_heads.json and long_context_heads.html to a folder."""
    lengths = [n for n in LENGTHS if n <= longest]
    measured = [in_own_process(run, n, period) for n in lengths]
    numbers = {"run": run, "period": period, "lengths": lengths, "measured": measured}
    write_atomic(out / "long_context_heads.json", json.dumps(plain(numbers), indent=1) + "\n")
    write_atomic(out / "long_context_heads.html", plots.to_html(figure(lengths, measured)))


def in_own_process(run: Path, length: int, period: int) -> dict[str, Any]:
    """What `measure` finds; a process's peak never falls again, so each length has its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        return fresh.submit(measure, run, length, period).result()


def measure(run: Path, length: int, period: int) -> dict[str, Any]:
    """All scores [L][H] at one length, seconds, and bytes held at most."""
    model = stretched(load(run).requires_grad_(False).eval(), length)
    config = model.config
    room = Room(length, config.d_vocab, config.bos_token)
    tokens = room.repeated(period, n=1, length=length, generator=torch.Generator().manual_seed(0))
    start = time.perf_counter()
    heads = probes.head_statistics(model, tokens)
    seconds = time.perf_counter() - start
    scores = {name: getattr(heads, name).tolist() for name in (*SCORES, "effective_keys")}
    patterns = config.n_layers * config.n_heads * length**2 * 4
    return {
        "scores": scores,
        "seconds": seconds,
        "bytes": own_peak(),
        "bytes_of_patterns": patterns,
    }


def own_peak() -> int:
    """The most bytes that this process held; Linux's `ru_maxrss` would count its parent's too."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def stretched(model: Transformer, n_ctx: int) -> Transformer:
    """The same rotary model with room for `n_ctx` tokens.

    Raises:
        ValueError: Its positions are learned, or end with its context.
    """
    if model.config.positional not in ("rotary", "alibi", "none"):
        raise ValueError(f"{model.config.positional} positions end at {model.config.n_ctx} tokens")
    longer = Transformer(replace(model.config, n_ctx=max(n_ctx, model.config.n_ctx)))
    longer.load_state_dict(model.state_dict())
    return longer.eval().requires_grad_(False)


def figure(lengths: list[int], measured: list[dict[str, Any]]) -> Figure:
    """Scores of all heads over the length, and below them what they cost."""
    titles = [name.replace("_", " ") for name in SCORES] + ["seconds, and gigabytes at most"]
    fig = make_subplots(rows=2, cols=3, subplot_titles=titles, shared_xaxes=True)
    dashes = ["solid", "dash", "dot", "dashdot", "longdash"]
    for at, name in enumerate(SCORES):
        layers = torch.tensor([m["scores"][name] for m in measured])
        for layer in range(layers.shape[1]):
            for head in range(layers.shape[2]):
                line = {"dash": dashes[layer % 5], "color": plots.theme.OKABE_ITO[head % 8]}
                fig.add_trace(
                    go.Scatter(
                        x=lengths, y=layers[:, layer, head].tolist(), line=line,
                        name=f"L{layer}H{head}", legendgroup=f"{layer}.{head}", showlegend=at == 0,
                    ),
                    row=at // 3 + 1, col=at % 3 + 1,
                )  # fmt: skip
    costs = {
        "seconds": [m["seconds"] for m in measured],
        "peak, GB": [m["bytes"] / 1e9 for m in measured],
        "what patterns would take, GB": [m["bytes_of_patterns"] / 1e9 for m in measured],
    }
    for n, (name, values) in enumerate(costs.items()):
        line = {"color": plots.theme.OKABE_ITO[n + 4], "dash": dashes[n]}
        fig.add_trace(go.Scatter(x=lengths, y=values, name=name, line=line), row=2, col=3)
    fig.update_xaxes(type="log", tickvals=lengths, ticktext=[f"{n:,}" for n in lengths])
    fig.update_xaxes(title_text="tokens", row=2)
    fig.update_yaxes(type="log", row=2, col=3)
    last = measured[-1]
    alt = (
        f"At {lengths[-1]:,} tokens all scores took {last['seconds']:.0f} seconds and "
        f"{last['bytes'] / 1e9:.2f} GB; the patterns alone would take "
        f"{last['bytes_of_patterns'] / 1e9:.0f} GB."
    )
    question = "Do heads keep their jobs in long sequences?"
    return finish(Figure(fig), question=question, alt=alt, notes=[alt], height=560)


if __name__ == "__main__":
    typer.run(main)
