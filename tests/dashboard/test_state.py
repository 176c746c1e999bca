"""Cases D8, D10, D11, and sessions: nothing stale, nothing shared, nothing broken for others."""

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import interp
from apps import sources, state
from apps.answers import cutting, growth, heads, wiring
from apps.answers.instead import Instead
from interp import ablation, plots, probes
from interp.plots.export import array_of
from interp.report.circuit_figures import circuit_figures
from interp.runs import Run
from tests.dashboard.conftest import FOREIGN, app, charts, healthy, words

BUNDLED = sources.BUNDLED


def values_of(at):
    return [
        array_of(trace["z"]).tobytes()
        for chart in charts(at)
        for trace in json.loads(chart.spec)["data"]
        if trace["type"] == "heatmap"
    ]


@pytest.mark.parametrize("page", ["heads", "attention", "predictions"])
def test_nothing_is_stale_after_prompt_checkpoint_or_run_changed(page: str):
    at = healthy(app(page, over="this prompt"))
    seen = [values_of(at)]
    at.number_input(key="sample").set_value(5).run()
    seen.append(values_of(healthy(at)))
    at.select_slider(key="step").set_value(0).run()
    seen.append(values_of(healthy(at)))
    at.selectbox(key="run").set_value("majority").run()
    seen.append(values_of(healthy(at)))
    assert len({str(values) for values in seen}) == 4
    assert all(seen)


def test_weights_written_anew_are_read_anew(tiny, tmp_path: Path):
    folder = tiny("again", init_seed=0)
    before = values_of(app("heads", runs=[folder]))
    interp.save(interp.Transformer(interp.load(folder).config.__class__(
        n_layers=2, n_heads=2, d_model=16, d_vocab=20, n_ctx=24, init_seed=1)), folder)  # fmt: skip
    assert values_of(app("heads", runs=[folder])) != before


def test_a_uniform_head_is_flagged_and_called_essential():
    at = healthy(app("start", run="majority"))
    said = words(at).replace("\\", "")
    assert "L0H0 (1.00) is near-uniform and essential" in said
    at = healthy(app("heads", run="majority", metric="uniformity"))
    assert "ringed: near-uniform, 0.9 or more (1 head)" in words(at).replace("\\", "")
    assert "This is real, not a fault" in words(at).replace("\\", "")


def test_an_export_equals_the_screen_and_states_its_filters():
    at = healthy(app("heads", run="majority", metric="uniformity"))
    shown = array_of(json.loads(charts(at)[0].spec)["data"][0]["z"])
    opened = state.opened("majority", BUNDLED / "majority", Run(BUNDLED / "majority").steps[-1])
    values = heads.values(opened, "normalized_entropy", None)
    written = plots.to_csv(plots.head_heatmap(values, kind="entropy"))
    np.testing.assert_allclose(shown, values)
    assert "0.99995" in written
    assert "ringed" in written


def test_a_run_without_checkpoints_says_so_and_others_stay_usable(tmp_path: Path):
    waiting = tmp_path / "waiting"
    waiting.mkdir()
    shutil.copyfile(BUNDLED / "induction" / "config.json", waiting / "config.json")
    at = healthy(app("heads", runs=[waiting]))
    assert "neither a model nor a checkpoint yet" in words(at)
    at.selectbox(key="run").set_value("majority").run()
    assert not healthy(at).error
    assert charts(at)


def test_broken_weights_and_folders_that_are_no_run_are_one_sentence(tmp_path: Path):
    broken, nothing = tmp_path / "broken", tmp_path / "nothing"
    shutil.copytree(BUNDLED / "majority", broken)
    newest = max((broken / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:100])
    nothing.mkdir()
    at = healthy(app("start", runs=[broken, nothing]))
    assert "not a whole safetensors file" in words(at)
    at.select_slider(key="step").set_value(0).run()
    assert not healthy(at).error
    at.selectbox(key="run").set_value("nothing").run()
    assert "nothing can't be opened" in words(healthy(at))


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("page", ["start", "attention", "interventions"])
def test_models_of_other_libraries_open(shared: Path, name: str, page: str):
    at = healthy(app(page, runs=[shared / "fixtures" / name]))
    assert not at.error
    assert at.selectbox(key="run").value == Path(name).name


def test_a_loss_that_is_not_asked_for_is_one_sentence():
    at = healthy(app("heads", metric="Δloss", over="this prompt", prompt="typed", typed="1"))
    assert "nothing is asked of these tokens" in words(at)


def test_two_sessions_keep_their_own_choices():
    first, second = app("heads", run="majority"), app("heads", run="induction")
    first.pills(key="metric").set_value("entropy").run()
    second.selectbox(key="head").set_value(2).run()
    assert second.pills(key="metric").value == "induction"
    assert first.selectbox(key="head").value == 0
    assert first.selectbox(key="run").value == "majority"


def test_an_ablation_that_fails_midway_leaves_the_shared_model_as_it_was():
    steps = Run(BUNDLED / "induction").steps
    opened = state.opened("induction", BUNDLED / "induction", steps[-1])
    tokens = torch.arange(8)[None]
    before = opened.model(tokens)
    clean = values_of(app("attention", run="induction"))

    class CancelledError(Exception):
        pass

    def cancel(done: int, total: int) -> None:
        raise CancelledError

    def fail() -> None:
        with pytest.raises(CancelledError):
            heads.sweep(opened, None, Instead("zero"), progress=cancel)

    other = threading.Thread(target=fail)
    other.start()
    seen = values_of(app("attention", run="induction"))
    other.join()
    assert seen == clean
    assert torch.equal(opened.model(tokens), before)


def test_named_groups_choose_what_is_cut():
    at = healthy(app("interventions", run="induction"))
    button = next(b for b in at.button if b.label == "The induction heads")
    button.click().run()
    found = heads.induction_heads(
        state.opened("induction", BUNDLED / "induction", Run(BUNDLED / "induction").steps[-1])
    )
    assert at.multiselect(key="cut").value == [f"L{layer}H{head}" for layer, head in found]
    assert "each kept alone" in json.dumps(json.loads(charts(at)[0].spec)) or len(found) == 1
    next(b for b in at.button if b.label == "Sweep all heads").click().run()
    assert any("Δloss" in chart.alt for chart in charts(healthy(at)))


def test_optimal_constants_cost_least_and_are_fitted_once():
    majority = BUNDLED / "majority"
    at = healthy(app("interventions", run="majority", cut="L0H0", kind="more …",
                     other_kind="optimal"))  # fmt: skip
    assert "Li & Janson" in words(at)
    opened = state.opened("majority", majority, Run(majority).steps[-1])
    table = state.known(cutting.fitted, opened, None)
    assert table is not None
    kinds = [Instead("optimal", table), Instead("mean"), Instead("zero")]
    cost = [cutting.group(opened, None, ((0, 0),), kind).effects[0] for kind in kinds]
    assert f"{cost[0]:+.2f} nats together" in words(at)
    assert cost[0] <= min(cost[1:]) + 1e-5  # float32; it starts from the better of the two


def test_a_copied_link_holds_the_comparison():
    says = {"run": "induction", "step": "0", "more": "true", "run_b": "induction", "step_b": "279"}
    at = healthy(app("heads", **says, show="difference"))
    assert at.select_slider(key="step_b").value == 279
    assert "induction, step 0" in charts(at)[-1].alt + words(at)
    assert "step 279" in charts(at)[-1].alt + words(at)
    at.selectbox(key="run_b").set_value("majority").run()  # which has no step 279
    assert healthy(at).select_slider(key="step_b").value == Run(BUNDLED / "majority").steps[-1]
    assert "only models of one shape can be compared" in words(at)


def test_a_session_that_fails_in_the_middle_of_a_sweep_disturbs_no_other(monkeypatch):
    class PulledPlugError(Exception):
        pass

    whole = heads.ablation.sweep

    def half(model, batch, **options):
        def pull(done: int, total: int) -> None:
            if 2 * done >= total:
                raise PulledPlugError

        return whole(model, batch, **options | {"progress": pull})

    first = app("interventions", run="majority", cut="L0H0", kind="mean")
    second = app("attention", run="majority", pin="3")
    before = values_of(second)
    with monkeypatch.context() as broken:
        broken.setattr(heads.ablation, "sweep", half)
        next(b for b in first.button if b.label == "Sweep all heads").click().run()
        assert "PulledPlugError" in first.exception[0].value + first.exception[0].message + str(
            first.exception[0].proto.type
        )
        assert values_of(healthy(second.run())) == before
    assert second.number_input(key="pin").value == 3
    assert "cut" not in second.session_state
    first.run()  # what it was asked for goes on where nothing is broken
    assert any("Δloss" in chart.alt for chart in charts(healthy(first)))


def test_a_model_without_a_loss_says_so_and_the_rest_is_drawn(shared: Path):
    runs = [shared / "fixtures" / "tracr_reverse"]
    start = healthy(app("start", runs=runs))
    assert [metric.value for metric in start.metric][:3] == ["–", "–", "–"]
    assert "there is no loss to speak of" in words(start)
    at = healthy(app("interventions", runs=runs, cut="L0H0"))
    assert "nothing is asked of these tokens" in words(at)
    assert "What carries the answer?" in words(at)
    assert not at.get("progress")


def test_a_folder_may_be_called_whatever_it_likes(tmp_path: Path):
    (tmp_path / "nothing").mkdir()
    at = healthy(app("heads", runs=[BUNDLED / "majority", tmp_path / "nothing"]))
    assert "can't be opened" not in words(at)


def test_many_heads_stand_below_each_other_and_few_edges_are_drawn(tiny):
    folder = tiny(n_layers=4, n_heads=12, d_model=48)
    at = healthy(app("circuit", runs=[folder]))
    assert not at.get("column")[2:]  # the sidebar's two
    drawn = next(part.value for part in at.caption if part.value.startswith("showing"))
    assert int(drawn.split()[1]) <= 45  # 40, and what rounding lets in


def counted(monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> list[int]:
    """A list that grows with each call of a function."""
    calls, whole = [], getattr(place, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return whole(*args, **kwargs)

    monkeypatch.setattr(place, name, call)
    return calls


def test_all_statistics_of_the_heads_come_from_one_run_of_the_model(tiny, monkeypatch):
    calls = counted(monkeypatch, probes, "head_statistics")
    at = healthy(app("heads", runs=[tiny("once")], metric="uniformity"))
    at.pills(key="metric").set_value("write_norm").run()
    assert not healthy(at).error
    assert len(calls) == 1


def test_scores_over_training_are_worked_out_once_for_all_checkpoints(tmp_path, monkeypatch):
    shutil.copytree(BUNDLED / "majority", tmp_path / "copy")
    calls = counted(monkeypatch, growth, "statistics_of")
    at = healthy(app("training", runs=[tmp_path / "copy"]))
    steps = Run(tmp_path / "copy").steps
    assert len(calls) == len(steps)
    at.select_slider(key="step").set_value(steps[1]).run()
    assert "this checkpoint" in json.dumps(json.loads(charts(healthy(at))[0].spec))
    assert len(calls) == len(steps)


@pytest.mark.parametrize(("context", "least"), [(12, 2), (24, 8)])
def test_near_uniform_of_short_contexts_rests_on_all_rows(tiny, context: int, least: int):
    at = healthy(app("heads", runs=[tiny(n_ctx=context)], metric="uniformity"))
    assert f"over rows that see {least} keys or more" in words(at).replace("\\", "")
    start = healthy(app("start", runs=[tiny(n_ctx=context)]))
    assert f"over rows that see {least} keys or more" in start.metric[3].help


def test_an_edge_says_on_the_page_what_the_report_says_of_it():
    opened = state.opened("induction", BUNDLED / "induction", Run(BUNDLED / "induction").steps[-1])
    found = wiring.induction(opened, heads.induction_heads(opened))
    reported = circuit_figures(found.found)[0]
    drawn = [trace.meta["row"]["evidence"] for trace in reported.data if trace.meta]
    assert [edge.evidence for edge in found.edges] == drawn
    assert all("without the source" in evidence for evidence in drawn)


def test_means_are_taken_once_and_what_is_lost_is_what_the_library_says(monkeypatch):
    majority = BUNDLED / "majority"
    opened = state.opened("majority", majority, Run(majority).steps[-1])
    calls = counted(monkeypatch, ablation, "reference_mean")
    at = healthy(app("interventions", run="majority", cut="L0H0", kind="mean"))
    batch = heads.batch_for(opened, None)
    lost = ablation.group(opened.model, batch, heads=[(0, 0)], kind="mean", reference=batch)
    assert f"{float(lost.together):+.2f} nats together" in words(at).replace("−", "-")
    at.number_input(key="pin").set_value(3).run()
    assert not healthy(at).error
    assert len(calls) <= 1  # none if another test has asked for them
