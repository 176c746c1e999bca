"""The lines of Python that make what a page shows: pasted into a notebook, they draw it again."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent

from apps.answers.cutting import Heads
from apps.answers.growth import SAMPLES
from apps.answers.heads import METRICS
from apps.prompts import MANY, Prompt, sample, task_of
from apps.sources import Opened, opening
from apps.words import NEAR_UNIFORM

IMPORTS = (
    "import interp, torch\n"
    "from interp import ablation, circuits, lens, metrics, patching, plots, probes\n"
)


def model(opened: Opened) -> str:
    """`model`."""
    return f"{IMPORTS}model = {opening(opened.path, opened.step)}\n"


def sequence(opened: Opened, prompt: Prompt) -> str:
    """`model`, and of the prompt `tokens`, `targets` and `labels`."""
    asked = prompt.read_batch.targets[0].tolist()
    return (
        f"{model(opened)}tokens = torch.tensor([{list(prompt.tokens)}])\n"
        f"targets = torch.tensor([{asked}])  # −100: nothing is asked\n"
        f"labels = {list(prompt.labels)!r}\n"
    )


def batch(opened: Opened, prompt: Prompt | None) -> str:
    """`model`, and `batch`: the prompt, or held-out samples, if there are any."""
    task = task_of(opened)
    if prompt is None and task is not None:
        options = "".join(f", {name}={value!r}" for name, value in task.options.items())
        return (
            f"{model(opened)}task = interp.tasks.make({task.name!r}{options})\n"
            f"batch = task.batch({MANY}, torch.Generator().manual_seed(0), split='held_out')\n"
        )
    prompt = sample(opened, 0) if prompt is None else prompt
    return (
        f"{model(opened)}tokens = torch.tensor([{list(prompt.tokens)}])\n"
        f"targets = torch.tensor([{list(prompt.answers)}])  # −100: nothing is asked\n"
        "batch = interp.tasks.Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), targets)\n"
    )


def mosaic(opened: Opened, prompt: Prompt | None, metric: str) -> str:
    """One number a head."""
    return f"{batch(opened, prompt)}plots.head_heatmap({METRICS[metric].python}, {_kind(metric)})"


def _kind(metric: str) -> str:
    about = METRICS[metric]
    ring = f", threshold={NEAR_UNIFORM}" if about.kind == "entropy" else ""
    return f"kind={about.kind!r}, name={about.name!r}{ring}"


def comparison(
    opened: Opened, other: Opened, prompt: Prompt | None, metric: str, difference: bool
) -> str:
    """Two models side by side, or what parts them."""
    about, names = METRICS[metric], f"names={(opened.name, other.name)!r}"
    draw = "head_difference" if difference else "head_comparison"
    kind = "" if difference else f"kind={about.kind!r}, "
    own = (
        batch(other, prompt).replace(IMPORTS, "") if prompt is None else f"model = {_open(other)}\n"
    )
    return (
        f"{batch(opened, prompt)}a = {about.python}\n{own}b = {about.python}\n"
        f"plots.{draw}(a, b, {names}, {kind}name={about.name!r})"
    )


def _open(opened: Opened) -> str:
    return opening(opened.path, opened.step)


PATTERNS = {
    "probability": 'weights = cache["pattern", {layer}][0, {head}]',
    "scores": 'weights = cache["attn_scores", {layer}][0, {head}]',
    "value-weighted": 'values = cache["v", {layer}][0]\n'
    "own = {head} * values.shape[1] // model.config.n_heads\n"
    'weights = cache["pattern", {layer}][0, {head}] * values[:, own].norm(dim=-1)',
}


def pattern(
    opened: Opened, prompt: Prompt, head: tuple[int, int], what: str, part: range, causal: bool
) -> str:
    """Where each token looks."""
    weights = PATTERNS[what].format(layer=head[0], head=head[1])
    whole = len(part) == len(prompt.tokens)
    some = "" if whole else f"part = {part!r}\nweights = weights[part][:, part]\n"
    rows = "" if whole else ", queries=part, keys=part"
    return (
        f"{sequence(opened, prompt)}_, cache = model.run_with_cache(tokens)\n{weights}\n{some}"
        f"plots.attention(weights, labels, what={what!r}, causal={causal}{rows})"
    )


def thumbnails(opened: Opened, prompt: Prompt, causal: bool) -> str:
    """All heads at a glance."""
    return (
        f"{sequence(opened, prompt)}_, cache = model.run_with_cache(tokens)\n"
        f'plots.attention_thumbnails(cache.stack("pattern")[:, 0], causal={causal})'
    )


def losses(opened: Opened, prompt: Prompt) -> str:
    """Loss of each token."""
    shift = ""
    if prompt.reads_on:
        shift = "losses = torch.cat([torch.tensor([torch.nan]), losses[:-1]])  # at what was read\n"
    return (
        f"{sequence(opened, prompt)}"
        f"losses = metrics.per_token_loss(model(tokens), targets)[0].detach()\n{shift}"
        "plots.token_loss(labels, losses)"
    )


def over_layers(opened: Opened, prompt: Prompt) -> str:
    """The logit lens."""
    return f"{sequence(opened, prompt)}" + dedent("""\
        logits = lens.logit_lens(model, tokens)[:, 0]
        asked = targets[0].clamp(min=0).expand(len(logits), -1)[..., None]
        values = logits.softmax(-1).gather(-1, asked)[..., 0]
        values = values.masked_fill(targets == -100, torch.nan)
        words = [[str(token) for token in row] for row in logits.argmax(-1).tolist()]
        plots.logit_lens(values, words, labels=labels)""")


def writers(opened: Opened, prompt: Prompt, position: int, token: int, most: int) -> str:
    """Direct logit attribution."""
    return f"{sequence(opened, prompt)}" + dedent(f"""\
        answer = torch.full_like(tokens, -1)
        answer[0, {position}] = {token}
        found = lens.direct_logit_attribution(model, tokens, answer)
        largest = found.effect.abs().topk(min({most}, len(found.effect))).indices.sort().values
        plots.logit_attribution([found.components[i] for i in largest], found.effect[largest])""")


def _instead(kind: str) -> str:
    if kind in ("mean", "grand_mean", "optimal"):
        return f"kind={kind!r}, reference=batch"
    if kind == "resample":
        drawn = "generator=torch.Generator().manual_seed(0)"
        return f"kind={kind!r}, reference=batch, {drawn}"
    return f"kind={kind!r}"


def group(opened: Opened, cut: Heads, kind: str) -> str:
    """Heads cut together, each, and each kept alone."""
    parts = ["together", "each", "kept_alone"] if len(cut) > 1 else ["together"]
    return f"{batch(opened, None)}" + dedent(f"""\
        found = ablation.group(model, batch, heads={list(cut)!r}, {_instead(kind)})
        parts = {parts!r}
        effects = torch.cat([getattr(found, part).reshape(-1) for part in parts])
        ends = torch.cat([torch.stack(found.interval(part), -1).reshape(-1, 2) for part in parts])
        labels = [" ".join(found.heads), *(found.heads * (len(parts) - 1))]
        groups = [part for part in parts for _ in getattr(found, part).reshape(-1)]
        plots.effect_bars(labels, effects, intervals=ends, groups=groups)""")


def sweep(opened: Opened, kind: str) -> str:
    """Every head cut alone."""
    return (
        f"{batch(opened, None)}"
        f"found = ablation.sweep(model, batch, {_instead(kind)})\n"
        f"plots.head_heatmap(found.effect, {_kind('effect')})"
    )


def patched(
    opened: Opened, prompt: Prompt, swap: tuple[int, int], position: int, by: str, right: int
) -> str:
    """What carries the answer."""
    site = {"head": "z", "position": "resid"}[by]
    return f"{sequence(opened, prompt)}" + dedent(f"""\
        corrupted = tokens.masked_fill(tokens == {swap[0]}, {swap[1]})
        other = int(model(corrupted)[0, {position}].argmax())
        asked = torch.full_like(tokens, -100)
        asked[0, {position}] = {right}
        clean = interp.tasks.Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), asked)
        found = patching.activation_patching(
            model, clean, corrupted, site={site!r}, by={by!r},
            metric=lambda logits, batch: metrics.logit_difference(
                logits, batch, wrong=torch.full_like(tokens, other)),
        )
        plots.patching_heatmap(found.recovery, across={by!r})""")


def circuit(opened: Opened, sequences: int) -> str:
    """The induction circuit."""
    return model(opened) + dedent(f"""\
        heads = probes.find_induction_heads(model)
        found = circuits.induction_circuit(
            model, found=heads, n_sequences={sequences}, periods=heads.evidence.periods[-1:])
        nodes = {{name: tuple(map(float, name[1:].split("H")))
                  for name in (*found.sources, *found.targets)}}
        edges = [plots.Edge(source, target, float(found.score_drop[i, j]), "K")
                 for i, source in enumerate(found.sources)
                 for j, target in enumerate(found.targets) if found.score_drop[i, j].isfinite()]
        plots.circuit(nodes, edges, title="Which earlier heads do the induction heads read?")""")


def composition(opened: Opened, kind: str, threshold: float | None) -> str:
    """Composition by the weights: the map, or with a threshold the graph."""
    draw = "composition_heatmap(scores" if threshold is None else "composition_graph(scores"
    over = "" if threshold is None else f", threshold={threshold!r}"
    return (
        f"{model(opened)}"
        f"scores = circuits.composition_scores(model, {kind!r}, subtract_baseline=True)\n"
        f"plots.{draw}, kind={kind!r}{over})"
    )


def _by_step(opened: Opened, steps: Sequence[int], metric: str) -> str:
    return f"{batch(opened, None)}" + dedent(f"""\
        run, steps, batch = interp.Run({str(opened.path)!r}), {list(steps)!r}, batch[:{SAMPLES}]
        scores = []
        for model in map(run.load, steps):
            scores.append({METRICS[metric].python})
        scores = torch.stack(scores)
        """)


def score_curve(opened: Opened, steps: Sequence[int], metric: str) -> str:
    """The best head of each layer over the steps."""
    return _by_step(opened, steps, metric) + dedent(f"""\
        best = {{f"best of L{{n}}": scores[:, n].amax(-1) for n in range(scores.shape[1])}}
        plots.scores_by_step(steps, best, name={METRICS[metric].name!r})""")


def heads_by_step(opened: Opened, steps: Sequence[int], metric: str) -> str:
    """Every head over the steps."""
    about = METRICS[metric]
    return (
        f"{_by_step(opened, steps, metric)}"
        f"plots.heads_by_step(scores, steps, kind={about.kind!r}, name={about.name!r})"
    )


def loss_curve(path: Path) -> str:
    """What a run measured."""
    return f"{IMPORTS}plots.loss_curve(interp.Run({str(path)!r}))"
