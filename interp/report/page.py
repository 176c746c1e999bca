"""The report as one HTML page."""

from interp.plots import Section, report_page
from interp.report import figures
from interp.report.findings import Findings
from interp.report.roles import roles_of
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
INDUCTION = (
    "A head is called an induction head if it attends to what followed earlier occurrences at "
    "every period tried, beats its own control (the same rows and distances with other content) "
    "by 0.4, and raises the logit of what it attends to. What it stands on is chosen by what "
    "cutting the earlier heads does to its score, not by their own scores."
)


def page(findings: Findings) -> str:
    """The whole page; it needs no network.

    Raises:
        ValueError: Something can't be drawn.
    """
    subject = findings.subject
    sections = [_training(findings), _heads(findings), _induction(findings), _spread(findings)]
    sections += [_need(findings), _numbers(findings)]
    return report_page(
        f"{subject.name}: which heads do what",
        "\n\n".join(verdict(findings)),
        sections=[section for section in sections if section is not None],
        footer=_footer(findings),
    )


def _training(findings: Findings) -> Section | None:
    shown = [*figures.loss_figure(findings), *figures.formation_figure(findings)]
    shown += figures.trajectory_figures(findings)
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


def _numbers(findings: Findings) -> Section:
    return Section("All heads", tables={"Every head": head_table(findings)})


def _footer(findings: Findings) -> str:
    subject = findings.subject
    versions = ", ".join(f"{k} {v}" for k, v in subject.described.get("versions", {}).items())
    shown = f"Step {subject.step}; {len(subject.batch)} held-out sequences."
    if subject.run is None:
        shown = f"{len(subject.batch)} sequences, sampled from the model itself where it can."
    return f"{shown} Every number is in report.json beside this page. {versions}"
