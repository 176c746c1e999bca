"""What is commonly said about attention, put to the test on this machine.

Question: Which of the field's claims about attention's numbers, speed, cost and heads hold?
Method: One measurement a claim, with the code that ran named beside it: by hand where it is
    arithmetic, the least of interleaved rounds where it is time, small models trained alike where
    it is quality.
Finding: Most hold with a condition that is seldom told. −inf gives NaN only in rows that see
    nothing, where −1e9 attends to everything instead (and float16 has no −1e9). In half precision
    fused and materialised attention differ by 2e-3 (float16) and 2e-2 (bfloat16), and by 0.2 where
    scores are 16 times larger, since the materialised route rounds them before the softmax. Of
    three claims about speed (einsum, a merged projection, a fast path) none held on this processor.
    The fused kernel gains more with the length than is said, 2–3 times below 1,000 tokens and 10
    and more above, and takes no memory for it. A window of 8 in two layers fails where 24 tokens
    must be spanned, one of 32 does not. Multi-query attention learns the same at a quarter of the
    cache. StreamingLLM holds for a model that parks attention on BOS (0.56): without BOS it loses
    0.57 nats beyond the window, sinks restore that, and positions of the cache do better still;
    one that parks nowhere (0.06) gains nothing. Performers are 0.6 nats from softmax with 256
    features. All 8 heads are near-uniform before training and none after. One layer forms no
    induction head, and modular addition groks in one.
Run: python analyses/attention_claims.py OUT
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Annotated

import torch
import typer
from claims import cost, kernels, models, numbers
from claims.pictures import pictures

from interp.report.claims import CLAIMS, MARKS, Claim, Measured, read_claims
from interp.results import plain, write_atomic

SUBJECTS = ("numbers", "kernels", "cost", "models", "induction")


def main(
    out: Annotated[Path, typer.Argument(file_okay=False)], steps: int = 400, only: str = ""
) -> None:
    """Write attention_claims.json and attention_claims.html to a folder.

    Args:
        out: The folder. Subjects that its JSON has already and that are not measured now stay.
        steps: Of training, where a claim is about trained models.
        only: One of `SUBJECTS`; empty for all.
    """
    if only and only not in SUBJECTS:
        raise typer.BadParameter(f"only is one of {', '.join(SUBJECTS)}; got {only!r}")
    path = out / CLAIMS
    done = {s.subject: s for s in (read_claims(path) if path.exists() else [])}
    for name in [only] if only else SUBJECTS:
        when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        done[name] = Measured(name, when, _machine(), ())
        for claim in _measured(name, steps):
            print(f"{MARKS[claim.verdict]} {claim.verdict}: {claim.claim}\n    {claim.because}")
            done[name] = replace(done[name], claims=(*done[name].claims, claim))
            _write([done[name] for name in SUBJECTS if name in done], path)


def _measured(subject: str, steps: int) -> Iterator[Claim]:
    generator = torch.Generator().manual_seed(0)
    if subject == "models":
        return models.measure(generator, steps=steps)
    if subject == "induction":
        return iter([models.induction(steps)])
    plainly = {"numbers": numbers.measure, "kernels": kernels.measure, "cost": cost.measure}
    return plainly[subject](generator)


def _machine() -> str:
    """Processor, cores, threads, PyTorch, and how busy it is."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "?")
    threads, cores = torch.get_num_threads(), os.cpu_count()
    load = os.getloadavg()[0]
    versions = f"PyTorch {torch.__version__}"
    return f"{cpu}, {cores} cores, {threads} thread(s), {versions}, load {load:.1f} at the start"


def _write(done: list[Measured], path: Path) -> None:
    text = json.dumps(plain({"subjects": [asdict(s) for s in done]}), indent=1, ensure_ascii=False)
    write_atomic(path, text + "\n")
    write_atomic(path.with_suffix(".html"), page(done))


def page(done: list[Measured]) -> str:
    """Claims, verdicts, numbers and pictures; it needs no network."""
    from plotly.offline import get_plotlyjs

    parts = []
    for subject in done:
        rows = "".join(_row(claim) for claim in subject.claims)
        parts.append(
            f"<h2>{escape(subject.subject)}</h2><p>{escape(subject.when)}, "
            f"{escape(subject.machine)}</p><table><tr><th>Claim</th><th>Verdict</th>"
            f"<th>Because</th></tr>{rows}</table>"
        )
    style = (
        "body{font:15px/1.5 sans-serif;max-width:75em;margin:2em auto}"
        "td{vertical-align:top;padding:.6em;border-top:1px solid #ccc}pre{font-size:12px}"
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Attention: claims and '
        f"measurements</title><style>{style}</style><script>{get_plotlyjs()}</script>"
        "<h1>What is said about attention, and what was measured here</h1>"
        f"{''.join(parts)}</html>\n"
    )


def _row(claim: Claim) -> str:
    numbers_ = json.dumps(plain(dict(claim.measured)), indent=1, ensure_ascii=False)
    drawn = "".join(
        str(figure.to_html(full_html=False, include_plotlyjs=False)) for figure in pictures(claim)
    )
    return (
        f"<tr><td>{escape(claim.claim)}</td><td>{MARKS[claim.verdict]} {claim.verdict}</td>"
        f"<td>{escape(claim.because)}{drawn}<details><summary>numbers</summary>"
        f"<pre>{escape(numbers_)}</pre></details><code>{escape(claim.path)}</code></td></tr>"
    )


if __name__ == "__main__":
    typer.run(main)
