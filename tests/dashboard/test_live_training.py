"""A run that is started from the page: a process of its own, watched, stopped, explained."""

import os
import shutil
import time

from apps import sources, state
from interp.runs import METRICS, Run, checkpoint_path
from tests.dashboard.conftest import app, healthy, words


def fill(at, **settings):
    names = {"Name": "name", "Steps": "steps", "Batch size": "batch", "d_model": "width"}
    for part in (*at.text_input, *at.number_input):
        if (value := settings.get(names.get(part.label, ""))) is not None:
            part.set_value(value)
    next(button for button in at.button if button.label == "Start").click()
    return at.run()


def wait_for_end(job, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while job.running and time.monotonic() < until:
        time.sleep(0.1)
    assert not job.running


def test_a_run_is_started_watched_and_listed(tmp_path):
    at = healthy(app("training", run="majority"))
    fill(at, name="from-the-page", steps=3, batch=2, width=8)
    job = state.jobs().latest()
    assert job is not None
    assert job.folder == tmp_path / "runs" / "from-the-page"
    wait_for_end(job)
    assert job.complaint == ""
    at = healthy(app("training", run="from-the-page"))
    assert "from-the-page: step 3, ended" in words(at)
    assert at.selectbox(key="run").value == "from-the-page"


def test_a_stopped_run_is_saved_and_a_taken_name_is_refused(tmp_path):
    at = healthy(app("training", run="majority"))
    fill(at, name="long", steps=100_000, batch=2, width=8)
    job = state.jobs().latest()
    assert job is not None
    metrics = tmp_path / "runs" / "long" / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text()) and job.running:
        time.sleep(0.1)
    assert "Training now" in words(healthy(app("training", run="majority")))
    job.stop()
    wait_for_end(job)
    assert job.complaint == ""
    assert Run(job.folder).load(Run(job.folder).steps[-1]).config.d_model == 8
    at = fill(healthy(app("training", run="majority")), name="long")
    assert "there is a run long already" in words(at)
    assert "is no name for a folder" in words(fill(at, name="../elsewhere"))


def test_why_training_failed_is_said():
    at = healthy(app("training", run="majority"))
    fill(at, name="impossible", steps=3, batch=2, width=9)  # 4 heads do not share 9
    job = state.jobs().latest()
    assert job is not None
    wait_for_end(job)
    at = healthy(app("training", run="majority"))
    assert "Training ended with an error" in words(at)
    assert "heads" in words(at)


def test_scores_over_training_are_kept_while_a_run_goes_on_until_a_checkpoint_is_another(tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(sources.BUNDLED / "majority", folder)
    steps = Run(folder).steps
    before = sources.signature_of_all(folder, steps)
    with (folder / METRICS).open("a") as metrics:
        metrics.write("{}\n")
    os.utime(folder / METRICS, ns=(2**62, 2**62))
    assert sources.signature_of_all(folder, steps) == before
    os.utime(checkpoint_path(folder, steps[1]), ns=(0, 0))  # the newest is as new as it was
    assert sources.signature_of_all(folder, steps) != before
