"""The pictures of a report, each from its findings."""

import torch
from torch import Tensor

from interp import plots
from interp.ablation import Group
from interp.ablation.outcomes import head_name
from interp.plots import Figure
from interp.report.findings import Findings, Induction
from interp.report.phrases import names

MOST_PATTERNS = 4
SCORES = {  # statistic: words, question, formula
    "previous_token": (
        "previous-token score",
        "Which heads look one token back?",
        "attention on the token before",
    ),
    "duplicate_token": (
        "duplicate-token score",
        "Which heads look at the same token?",
        "attention on earlier occurrences of the token at hand",
    ),
    "sink": (
        "attention on the first token",
        "Which heads park on the first token?",
        "attention on the first token, in all rows but its own",
    ),
}


def loss_figure(findings: Findings) -> list[Figure]:
    """The loss over training, with the steps between which induction formed."""
    metrics = findings.subject.metrics
    if len(metrics) < 2:
        return []
    how = {"window": _window(findings), "window_means": "induction forms"}
    return [plots.loss_curve(metrics, **how)]


def _window(findings: Findings) -> tuple[float, float] | None:
    formed = findings.formation
    if formed is None or formed.low is None or formed.high is None:
        return None
    return formed.low, formed.high


def formation_figure(findings: Findings) -> list[Figure]:
    """The best head of each layer over training, for each score."""
    rows = [row for row in findings.subject.metrics if row.get("max_induction")]
    if len(rows) < 2:
        return []
    kinds = {"induction": "induction", "previous_token": "previous token", "sink": "first token"}
    lines = {
        f"{words}, L{layer}": [_number(row[f"max_{kind}"][layer]) for row in rows]
        for kind, words in kinds.items()
        for layer in range(len(rows[0]["max_induction"]))
    }
    steps = [row["step"] for row in rows]
    title = "When does the best head of each layer form?"
    return [
        plots.scores_by_step(
            steps,
            lines,
            name="best score",
            window=_window(findings),
            window_means="induction forms",
            title=title,
        )
    ]


def in_context_figure(findings: Findings) -> list[Figure]:
    """How much context helps, against the best prefix matching and previous-token head.

    The score is drawn as a share of its last value, so that all rise from 0 towards 1. Nothing
    where the task asks for nothing early in its sequences, or context does not help.
    """
    rows = [row for row in findings.subject.metrics if row.get("max_induction")]
    scores = [_number(row.get("in_context_score")) for row in rows]
    if len(rows) < 2 or not scores[-1] < 0:
        return []
    best = {"prefix matching (best head)": "induction", "previous token": "previous_token"}
    lines = {
        words: [max(map(_number, row[f"max_{kind}"])) for row in rows]
        for words, kind in best.items()
    }
    lines[f"in-context score, of {scores[-1]:.2f} nats"] = [score / scores[-1] for score in scores]
    return [
        plots.scores_by_step(
            [row["step"] for row in rows],
            lines,
            name="score, or share of its last value",
            window=_window(findings),
            window_means="induction forms",
            title="Does context begin to help as the heads form?",
        )
    ]


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def trajectory_figures(findings: Findings) -> list[Figure]:
    """Each head over the checkpoints."""
    trajectory = findings.trajectory
    if trajectory is None:
        return []
    kinds = {
        "induction score": trajectory.induction,
        "previous-token score": trajectory.previous_token,
    }
    return [
        plots.heads_by_step(
            values, trajectory.steps, name=name, title=f"How does each head's {name} grow?"
        )
        for name, values in kinds.items()
        if values is not None
    ]


def score_figures(findings: Findings) -> list[Figure]:
    """A map of all heads for each score, and for what they write."""
    statistics, about = findings.statistics, findings.induction
    figures = []
    if about is not None:
        evidence = about.found.evidence
        rings = torch.zeros(evidence.copying.shape, dtype=torch.bool)
        for head in about.found:
            rings[head] = True
        figures.append(
            plots.head_heatmap(
                evidence.score.mean(-1),
                name="induction score",
                title="Which heads attend to what followed the last time?",
                ring=rings,
                formula="attention on the tokens after earlier occurrences, mean over periods",
            )
        )
    for field, (name, title, formula) in SCORES.items():
        values = getattr(statistics, field)
        figures.append(plots.head_heatmap(values, name=name, title=title, formula=formula))
    return figures


def entropy_figure(findings: Findings) -> Figure:
    """How evenly each head spreads its attention; near-uniform ones are ringed."""
    return plots.head_heatmap(
        findings.statistics.broad_entropy,
        kind="entropy",
        formula="entropy / log(keys that the row may see), over rows that may see "
        f"{findings.statistics.min_keys} or more",
    )


def write_figure(findings: Findings) -> Figure:
    """How much each head writes."""
    return plots.head_heatmap(
        findings.statistics.write_norm,
        kind="amount",
        name="norm of the write",
        title="Which heads write much to the residual stream?",
        formula="‖z W_O‖, mean over tokens",
    )


def cut_figures(findings: Findings) -> list[Figure]:
    """What each head's absence costs, and what its pattern is good for."""
    cut, flat = findings.cut, findings.flattened
    heads = [(int(a), int(b)) for a, b in torch.ones_like(cut.effect).nonzero().tolist()]
    order = sorted(heads, key=lambda at: -float(cut.effect[at]))[:24]
    interval = cut.interval()
    ends = torch.stack([torch.stack([interval.low[h], interval.high[h]]) for h in order])
    return [
        plots.head_heatmap(cut.effect, kind="effect", title="Which heads does the model need?"),
        plots.effect_bars(
            [head_name(head) for head in order],
            torch.stack([cut.effect[head] for head in order]),
            intervals=ends,
            title="What does each head's absence cost, alone?",
        ),
        plots.head_heatmap(
            flat.effect, kind="effect", title="Whose pattern is needed? (all made uniform in turn)"
        ),
    ]


def group_figure(loss: Group) -> Figure:
    """The induction group cut together, each, in order, and all but each."""
    labels, effects, ends, groups = [], [], [], []

    def add(section: str, which: str, words: list[str]) -> None:
        interval = loss.interval(which)
        values = getattr(loss, which).reshape(-1)
        labels.extend(words)
        effects.extend(values)
        ends.extend(torch.stack([x.reshape(-1) for x in interval], -1))
        groups.extend([section] * len(words))

    add("cut together", "together", ["all of them"])
    if len(loss.heads) > 1:
        add("each cut alone", "each", list(loss.heads))
        first = [f"first {n + 1}" if n else loss.heads[0] for n in range(len(loss.heads))]
        add("cut in order", "cumulative", first)
        add("all cut but one", "kept_alone", [f"only {head} kept" for head in loss.heads])
    return plots.effect_bars(
        labels,
        torch.stack(effects),
        intervals=torch.stack(ends),
        groups=groups,
        title="What does the model lose on repeats without the induction heads?",
    )


def pattern_figures(findings: Findings, about: Induction) -> list[Figure]:
    """Patterns of the named heads on one sequence, with the cells where they should look."""
    tokens = sample(findings)
    earlier = about.circuit.source_heads if about.circuit else []
    sets = {"induction": list(about.found), "previous": earlier}
    asked = {
        "induction": "Do the induction heads look after the earlier occurrence?",
        "previous": "Do the heads below them look one token back?",
    }
    figures = []
    for target, heads in sets.items():
        if heads:
            shown = heads[:MOST_PATTERNS]
            title = asked[target]
            figures.append(_patterns(findings, tokens, shown, target, title))
    return figures


def near_uniform_patterns(findings: Findings) -> list[Figure]:
    """Patterns of the near-uniform heads on a sequence of the task."""
    heads = findings.statistics.near_uniform()[:MOST_PATTERNS]
    if not heads or findings.subject.step == 0:
        return []
    tokens = findings.subject.batch.tokens[0]
    title = f"Does {names(heads)} look everywhere alike?"
    return [_patterns(findings, tokens, heads, None, title)]


def sample(findings: Findings) -> Tensor:
    """One sequence of repeats, about three blocks long."""
    subject = findings.subject
    assert subject.repeats is not None
    return subject.repeats.tokens[0]


def _patterns(
    findings: Findings, tokens: Tensor, heads: list, target: str | None, title: str
) -> Figure:
    model, labels = findings.subject.model, findings.subject.labels
    layers = sorted({layer for layer, _ in heads})
    wanted = [f"blocks.{layer}.attn.hook_pattern" for layer in layers]
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens[None], names_filter=wanted)
    patterns = torch.stack([cache["pattern", layer][0, head] for layer, head in heads])
    outline = None if target is None else plots.where_to_look(tokens, target)  # pyright: ignore[reportArgumentType]
    return plots.attention(
        patterns if len(heads) > 1 else patterns[0],
        [labels[token] for token in tokens.tolist()],
        names=[head_name(head) for head in heads] if len(heads) > 1 else None,
        outline=outline,
        title=title,
        full_range=target is not None,
    )
