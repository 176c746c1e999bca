"""`interp analyze`: what a run's heads do, as a page, a table and a verdict."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interp.cli.terminal import print_json, print_table, progress_bar

if TYPE_CHECKING:
    from pandas import DataFrame

    from interp.report import Findings


SHORT = {  # for a terminal of 80 columns
    "induction": "induct",
    "previous token": "prev",
    "duplicate token": "dup",
    "first token": "first",
    "norm. entropy": "entropy",
}


def write_report(
    run: Annotated[Path, typer.Argument(help="A run folder, or a model of any format.")],
    step: Annotated[int | None, typer.Option(help="Of a checkpoint; else the newest.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the report goes; else RUN/report, or NAME-report.")
    ] = None,
    progress: Annotated[bool, typer.Option(help="Show a bar.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find out which heads do what and what happens without them; write a report."""
    found, page = analysed(run, step=step, out=out, progress=progress)
    if as_json:
        from interp.report import verdict

        print_json({"verdict": verdict(found), "report": page, **found.to_dict()})
        return
    show(found, page)
    if found.subject.run is not None:
        typer.echo(f"next: interp dashboard {run}")


def rows_of(table: "DataFrame") -> list[dict[str, Any]]:
    """A frame's rows as dicts."""
    return [{str(k): v for k, v in row.items()} for row in table.to_dict("records")]


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """A row for the terminal: short names, and the interval in one column."""
    shown = {SHORT.get(name, name): value for name, value in row.items()}
    shown["Δloss"] = f"{row['Δloss']:+.3f}".replace("-", "−")
    shown["95 %"] = f"{shown.pop('low'):+.3f} … {shown.pop('high'):+.3f}".replace("-", "−")
    return shown | ({"is": shown.pop("is")} if "is" in shown else {})


def analysed(
    run: Path, *, step: int | None = None, out: Path | None = None, progress: bool
) -> tuple["Findings", Path]:
    """Analyse a run and write its report; the findings, and where the page is."""
    from interp import report

    subject = report.subject_at(run, step=step)  # what is wrong is said before a bar is drawn
    with progress_bar(f"analysing {run.name}", show=progress) as told:
        found = report.findings_of(subject, progress=told)
    beside = Path(f"{subject.name}-report") if subject.run is None else run / "report"
    return found, report.write(found, out or beside)


def show(found: "Findings", page: Path) -> None:
    """The table, the verdict and where the page is."""
    from interp.report import head_table, verdict

    print_table([_short(row) for row in rows_of(head_table(found))], title=found.subject.name)
    for sentence in verdict(found):
        typer.echo(f"• {sentence}")
    typer.echo(f"\nreport: {page}")
