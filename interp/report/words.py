"""The verdict: findings in sentences that are true of groups as well as of heads."""

from interp.ablation import Group
from interp.ablation.outcomes import head_name
from interp.report.connections import circuit_said, pairs_said
from interp.report.findings import Findings, Induction
from interp.report.phrases import listed, names, nats
from interp.report.roles import Role, roles_of

COSTS = 0.05  # nats; less than this is said to be nothing
NEEDED = 0.02  # nats; the lower end of an effect that is called a need
BACKED_UP = 0.25  # a single cut that costs less than this share of all together


def verdict(findings: Findings) -> list[str]:
    """What was found, a sentence or two each: induction, its circuit, spread, needs, pairs."""
    said = [_induction(findings), *circuit_said(findings), *_formation(findings)]
    return [*said, *_spread(findings), _most_needed(findings), *pairs_said(findings)]


# --- induction ------------------------------------------------------------------------------


def _induction(findings: Findings) -> str:
    about = findings.induction
    if about is None:
        return "Induction was not looked for: two blocks of distinct tokens don't fit this model."
    if not about.found:
        return _no_induction(findings, about)
    return f"{_who(findings, about)}; {_cost(about)}."


def _who(findings: Findings, about: Induction) -> str:
    heads, evidence = sorted(about.found), about.found.evidence
    scores = [float(evidence.score[head].mean()) for head in heads]
    control = max(float(evidence.control[head].mean()) for head in heads)
    span = f"{max(scores):.2f}"
    if f"{min(scores):.2f}" != span:
        span = f"{min(scores):.2f} to {span}"
    noun = "is an induction head" if len(heads) == 1 else "are induction heads"
    return f"{names(heads)} {noun}: {span} {_where(findings)}, {control:.2f} on the control"


def _where(findings: Findings) -> str:
    listed_periods = listed([str(period) for period in findings.subject.periods])
    kind = "periods withheld from training" if findings.subject.withheld else "periods"
    return f"at {kind} ({listed_periods})"


def _cost(about: Induction) -> str:
    loss, accuracy = about.loss, about.accuracy
    assert loss is not None
    assert accuracy is not None
    together, clean = float(loss.together), float(accuracy.clean)
    left = clean + float(accuracy.together)
    falls = f"accuracy there goes from {clean:.3f} to {left:.3f}"
    if len(loss.heads) == 1:
        if together < COSTS:
            return f"without it the loss on repeats changes by only {nats(together)}"
        return f"without it the loss on repeats rises by {nats(together)}, and {falls}"
    if together < COSTS:
        return f"without all of them the loss on repeats changes by only {nats(together)}"
    return f"{_backing(loss)}, without all {_count(len(loss.heads))} {nats(together)}, and {falls}"


def _backing(loss: Group) -> str:
    most, together = float(loss.each.max()), float(loss.together)
    if most < BACKED_UP * together:
        return (
            f"they back each other up: without any one the loss on repeats rises by at most "
            f"{nats(most)}"
        )
    worst = loss.heads[int(loss.each.argmax())]
    return f"without {worst} alone the loss on repeats rises by {nats(most)}"


def _count(n: int) -> str:
    words = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    return words[n] if n < len(words) else str(n)


def _no_induction(findings: Findings, about: Induction) -> str:
    evidence = about.found.evidence
    mean = evidence.score.mean(-1)
    best = divmod(int(mean.argmax()), mean.shape[1])
    said = (
        f"No head does induction: the best score {_where(findings)} is "
        f"{float(mean[best]):.2f} ({head_name(best)}), {float(evidence.control[best].mean()):.2f} "
        "on the control."
    )
    if about.found.positional:
        said += f" {names(about.found.positional)} only looks back by a distance that fits."
    if about.found.anti:
        said += f" {names(about.found.anti)} attends so, but lowers what it attends to."
    return said


def _formation(findings: Findings) -> list[str]:
    formed = findings.formation
    if formed is None or not (findings.induction and findings.induction.found):
        return []
    return [
        f"Induction formed between steps {formed.low:.0f} and {formed.high:.0f}, and was half "
        f"there at step {formed.step:.0f}."
    ]


# --- spread and need ------------------------------------------------------------------------


def _spread(findings: Findings) -> list[str]:
    n = findings.statistics.entropy.numel()
    near = [role for role in roles_of(findings) if role.near_uniform]
    if not near:
        return [f"No head of the {n} is near-uniform."] if n > 1 else []
    if findings.subject.step == 0:
        return [f"{len(near)} of {n} heads are near-uniform, as untrained heads are."]
    return [_about_spread(role, findings.statistics.min_keys) for role in near]


def _about_spread(role: Role, min_keys: int) -> str:
    return (
        f"{head_name(role.head)} is near-uniform (normalised entropy {role.entropy:.3f} over rows "
        f"of {min_keys} keys or more) and {role.word}: without it the loss changes by "
        f"{nats(role.effect)}, with its pattern made exactly uniform by {nats(role.flattened)}."
    )


def _most_needed(findings: Findings) -> str:
    effect = findings.cut.effect
    worst = divmod(int(effect.argmax()), effect.shape[1])
    low = float(findings.cut.interval().low[worst])
    kind = findings.subject.shown
    if not low > NEEDED:
        return (
            f"No single cut costs more than {nats(max(0.0, float(effect[worst])))} on {kind}, "
            f"of {float(findings.cut.clean):.3f}."
        )
    return (
        f"On {kind} the single cut that costs most is {head_name(worst)}: "
        f"{nats(float(effect[worst]))} on {float(findings.cut.clean):.3f}."
    )
