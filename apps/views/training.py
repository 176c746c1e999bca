"""Training: how the loss fell, when heads formed; start a run, watch it, stop it."""

import math

import streamlit as st

from apps import lines, state
from apps.answers import growth, heads
from apps.charts import chart
from apps.jobs import Job
from apps.state import Chosen, answer
from interp import plots
from interp.tasks import TASKS


def curves(chosen: Chosen) -> None:
    """Losses and scores over the steps, with the window in which heads form."""
    opened = chosen.opened
    if not chosen.steps:
        st.info("This is a single model: it has no training to show. Choose a run on the left.")
        return
    metric = st.pills(
        "Score", list(growth.FOLLOWED), default="induction", required=True, key="grown",
        format_func=lambda key: heads.METRICS[key].label, bind="query-params",
    )  # fmt: skip
    metric, about = str(metric), heads.METRICS[str(metric)]
    with st.spinner("Scoring the heads of each checkpoint"):
        grown = answer(growth.growth, state.whole_run(opened, chosen.steps), tuple(chosen.steps))
    window = grown.window(metric)
    last = chosen.steps[-1]
    here = {"this checkpoint": opened.step} if opened.step and opened.step != last else {}
    left, right = st.columns(2, gap="large")
    grows = (opened, grown.steps, metric)
    with left:
        losses(chosen, window, here)
    with right:
        fig = plots.scores_by_step(
            grown.steps, grown.best(metric), name=about.name, window=window, marks=here,
            title=f"When does the {about.name} rise?", theme=chosen.theme,
        )  # fmt: skip
        chart(fig, "score-curve", python=lines.score_curve(*grows))
    fig = plots.heads_by_step(
        grown.scores[metric], grown.steps, kind=about.kind, name=about.name, theme=chosen.theme
    )
    chart(fig, "heads-by-step", python=lines.heads_by_step(*grows))
    st.caption("The checkpoint slider on the left sets the step for all pages.")


def losses(chosen: Chosen, window: tuple[float, float] | None, here: dict[str, int]) -> None:
    """The loss curve."""
    measured = growth.metrics_of(chosen.opened.path)
    if not measured:
        st.caption("Nothing was measured yet.")
        return
    fig = plots.loss_curve(
        measured,
        window=window,
        marks=here,
        levels={"a blind guess": math.log(chosen.opened.model.config.vocab_out)},
        theme=chosen.theme,
    )
    chart(fig, "loss-curve", python=lines.loss_curve(chosen.opened.path))


def start_form() -> None:
    """Start a run."""
    with st.form("start-run", border=True):
        st.markdown("##### Train another")
        columns = st.columns(4)
        name = columns[0].text_input("Name", "my-run", help="A folder in ./runs")
        task = columns[1].selectbox("Task", list(TASKS))
        layers = columns[2].number_input("Layers", 1, 8, 2)
        count = columns[3].number_input("Heads a layer", 1, 16, 4)
        columns = st.columns(4)
        width = columns[0].number_input("d_model", 8, 1024, 64, step=8)
        steps = columns[1].number_input("Steps", 1, 100_000, 400)
        size = columns[2].number_input("Batch size", 1, 1024, 64)
        seed = columns[3].number_input("Seed", 0, 10**6, 0)
        if not st.form_submit_button("Start", type="primary", icon=":material/play_arrow:"):
            return
    settings = {
        "--task": task, "--layers": layers, "--heads": count, "--d-model": width,
        "--steps": steps, "--batch-size": size, "--seed": seed,
    }  # fmt: skip
    try:
        state.jobs().start(name, {option: str(value) for option, value in settings.items()})
    except ValueError as error:
        st.error("The run was not started.")
        st.text(str(error))
        return
    st.rerun()


def live(theme: str) -> None:
    """The run that was started here, as it goes; redrawn each second while it trains."""
    job = state.jobs().latest()
    if job is None:
        return
    every = 1.0 if job.running else None
    st.fragment(watch, run_every=every)(job, theme, job.running)


def watch(job: Job, theme: str, was_running: bool) -> None:
    """One look at a run."""
    if was_running and not job.running:
        st.rerun()
    st.markdown("##### " + ("Training now" if job.running else "Trained here"))
    measured = growth.metrics_of(job.folder)
    at = measured[-1]["step"] if measured else 0
    st.text(f"{job.folder.name}: step {at:,}" + ("" if job.running else ", ended"))
    if job.running:
        st.button(
            "Stop", on_click=job.stop, icon=":material/stop:", help="It is saved, and can go on"
        )
    if job.complaint:
        st.error("Training ended with an error.")
        st.text(job.complaint)
    elif not job.running:
        st.caption("It is in the list of runs on the left.")
    if len(measured) > 1:
        fig = plots.loss_curve(measured, title="How does the loss fall?", theme=theme)
        chart(fig, "live-loss", python=lines.loss_curve(job.folder))


def draw() -> None:
    """The page."""
    chosen = state.chosen()
    st.title("Training")
    live(chosen.theme)
    curves(chosen)
    start_form()


draw()
