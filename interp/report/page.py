"""The report as one HTML page."""

from interp.plots import Section, report_page
from interp.report import circuit_figures, figures
from interp.report.claims import claims_of, claims_table
from interp.report.findings import Findings
from interp.report.roles import roles_of
from interp.report.said import said_table
from interp.report.table import head_table
from interp.report.words import verdict

CAUSES = (
    "A cut head gives its mean at each position over training sequences. Effects are ablated "
    "minus clean, means over scored tokens, with 95 % bootstrap intervals over sequences. Heads "
    "back each other up: what one costs alone is no measure of what it does."
)
SPREAD = (
    "Near-uniform is not useless. A head is idle if it is near-uniform or a sink, writes little, "
    "and costs nothing when cut; look at all three."
)
SAID = (
    "Common claims. Those that ask for a stopwatch or for training were not measured for this "
    "report: analyses/attention_claims.py did, on the machine and the day that stand above each "
    "table. ● holds, ◐ holds with a condition, ○ does not hold."
)
INDUCTION = (
    "A head is called an induction head if it attends to what followed earlier occurrences at "
    "every period tried, beats its own control (the same rows and distances with other content) "
    "by 0.4, and raises the logit of what it attends to."
)
CIRCUIT = (
    "An induction head finds the earlier occurrence by a key that holds the token before. So "
    "earlier heads must look one token back and write what they see where the induction heads "
    "read their keys. Which ones do is told by what cutting them, one after the other, does to the "
    "induction score, not by their own scores. Each edge is then cut alone: what this one head "
    "writes is taken off the keys of that one head, and nothing else. Beside it stands what the "
    "weights say; a low composition score is no proof that an edge does nothing.\n\n"
    "Cut with all attention patterns held as they were, a head can only matter by what is passed "
    "on through values. Heads that cost much when cut, and next to nothing so, matter by telling "
    "others where to look."
)
PAIRS = (
    "Two heads cut at once, less what each costs alone. Positive: they back each other up, each "
    "hides what the other does. Negative: they are parts of one circuit, and with one gone the "
    "other has nothing left to lose. Pairs don't see three heads that stand in for each other: "
    "that takes cutting the group."
)


def page(findings: Findings) -> str:
    """The whole page; it needs no network.

    Raises:
        ValueError: Something can't be drawn.
    """
    subject = findings.subject
    sections = [_training(findings), _heads(findings), _induction(findings), _circuit(findings)]
    sections += [_spread(findings), _need(findings), _pairs(findings), _said(findings)]
    sections.append(_numbers(findings))
    return report_page(
        f"{subject.name}: which heads do what",
        "\n\n".join(verdict(findings)),
        sections=[section for section in sections if section is not None],
        footer=_footer(findings),
    )


def _training(findings: Findings) -> Section | None:
    shown = [*figures.loss_figure(findings), *figures.formation_figure(findings)]
    shown += [*figures.in_context_figure(findings), *figures.trajectory_figures(findings)]
    return Section("How did it learn?", figures=shown) if shown else None


def _heads(findings: Findings) -> Section:
    return Section("Which heads do what?", figures=figures.score_figures(findings))


def _induction(findings: Findings) -> Section | None:
    about = findings.induction
    if about is None:
        return None
    shown = figures.pattern_figures(findings, about)
    if about.loss is not None:
        shown.append(figures.group_figure(about.loss))
    evidence = about.found.evidence.frame()
    tables = {"Evidence: score and control at each period": evidence}
    return Section("Induction", INDUCTION, shown, tables)


def _circuit(findings: Findings) -> Section | None:
    circuit = findings.induction.circuit if findings.induction else None
    if circuit is None or not circuit.sources:
        return None
    tables = {"Evidence on each edge": circuit_figures.edge_table(circuit)}
    return Section(
        "The induction circuit", CIRCUIT, circuit_figures.circuit_figures(circuit), tables
    )


def _spread(findings: Findings) -> Section:
    import pandas

    shown = [figures.entropy_figure(findings), figures.write_figure(findings)]
    shown += figures.near_uniform_patterns(findings)
    roles = roles_of(findings)
    tables = {}
    if roles:
        tables["Heads that are near-uniform or sinks"] = pandas.DataFrame(
            {
                "head": [f"L{role.head[0]}H{role.head[1]}" for role in roles],
                "normalised entropy": [role.entropy for role in roles],
                "on the first token": [role.sink for role in roles],
                "write / median": [role.write for role in roles],
                "Δloss when cut": [role.effect for role in roles],
                "Δloss with a uniform pattern": [role.flattened for role in roles],
                "so it is": [role.word for role in roles],
            }
        )
    return Section("How evenly do heads attend?", SPREAD, shown, tables)


def _need(findings: Findings) -> Section:
    return Section("What happens without them?", CAUSES, figures.cut_figures(findings))


def _pairs(findings: Findings) -> Section | None:
    pairs = findings.pairs
    if pairs is None:
        return None
    tables = {"The strongest pairs": circuit_figures.pair_table(pairs)}
    return Section(
        "Do heads back each other up?", PAIRS, [circuit_figures.pair_figure(pairs)], tables
    )


def _said(findings: Findings) -> Section:
    tables = {"Asked of this model": said_table(findings)}
    for subject in claims_of(findings.subject.folder):
        caption = f"Measured {subject.when}: {subject.machine}"
        tables[f"{subject.subject.capitalize()}. {caption}"] = claims_table(subject)
    return Section("What is said about attention", SAID, tables=tables)


def _numbers(findings: Findings) -> Section:
    return Section("All heads", tables={"Every head": head_table(findings)})


def _footer(findings: Findings) -> str:
    subject = findings.subject
    versions = ", ".join(f"{k} {v}" for k, v in subject.described.get("versions", {}).items())
    shown = f"Step {subject.step}; {len(subject.batch)} held-out sequences."
    if subject.run is None:
        sampled = subject.shown == "its own samples"
        shown = "sampled from the model itself" if sampled else f"of {subject.shown}"
        shown = f"{len(subject.batch)} sequences, {shown}."
    if subject.described.get("training", {}).get("clamps"):
        shown += " It was trained under clamps (see config.json); here it is measured without them."
    return f"{shown} Every number is in report.json beside this page. {versions}"
