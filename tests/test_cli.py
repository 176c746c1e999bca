"""The command line: what it prints, and that bad input is one line and exit code 2."""

import json
import os
import signal
from pathlib import Path

import pytest

import interp
from interp.attention import MASKS, WHEN, options_of
from interp.cli import dashboard, settings
from interp.cli import run as cli

TINY = [
    *("--layers", "1", "--heads", "2", "--d-model", "16", "--steps", "3", "--batch-size", "2"),
    *("--set", "task.vocab=16", "--set", "task.length=16", "--set", "task.max_period=6"),
    *("--set", "training.evaluation_size=4", "--set", "training.checkpoints_per_octave=1"),
    *("--device", "cpu", "--no-progress"),
]


def test_version_is_printed(capsys):
    assert cli(["--version"]) == 0
    assert capsys.readouterr().out.strip() == interp.__version__


@pytest.mark.parametrize("command", ["demo", "train", "analyze", "dashboard", "tasks"])
def test_each_command_explains_itself(command, capsys):
    assert cli([command, "--help"]) == 0
    assert "Usage: interp" in capsys.readouterr().out


def test_help_and_readme_say_of_each_kind_of_attention_when_to_choose_it(capsys):
    assert set(WHEN) == set(MASKS)
    cli(["train", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    for kind, when in WHEN.items():
        assert f"{kind} ({', '.join(options_of(kind)) or '–'}): {when}" in said
        row = next(line for line in readme.splitlines() if line.startswith(f"| `{kind}` |"))
        _, _, options, chosen, _ = (cell.strip() for cell in row.split("|"))
        assert {x.strip(" `") for x in options.split(",")} - {""} == set(options_of(kind))
        assert chosen == when


def test_a_kind_of_attention_is_a_flag_and_its_options_a_setting(tmp_path, capsys):
    given = ["train", "--out", str(tmp_path / "run"), *TINY, "--attention", "window"]
    assert cli(given) == 2
    assert "'window' needs window" in capsys.readouterr().err
    assert cli([*given, "--set", 'model.attention_options={"window": 9}']) == 0
    assert interp.load(tmp_path / "run").config.rule(0) == MASKS["window"](9)


# --- bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["analyse"], "No such command"),
        (["analyze"], "Missing"),
        (["analyze", "no/such/run"], "wanted a folder with config.json"),
        (["train"], "Missing"),
        (["train", "--out", "{}", "--task", "repeated_token"], "did you mean repeated_tokens"),
        (["train", "--out", "{}", "--steps", "many"], "--steps"),
        (["train", "--out", "{}", "--set", "model.n_layer=3"], "did you mean 'n_layers'"),
        (["train", "--out", "{}", "--set", "seed=3"], "--set wants model.NAME=VALUE"),
        (["train", "--out", "{}", "--set", "training.betas=3"], "betas"),
        (["train", "--out", "{}", "--config", "no.toml"], "no.toml"),
        (["train", "--out", "{}", "--device", "abacus"], "abacus"),
        (["train", "--out", "{}", "--device", "cuda:99", "--no-progress"], "no device 'cuda:99'"),
        (["train", "--out", ""], "out is the run folder; got ''"),
        (["train", "--out", __file__], "is a file: choose another name"),
        (["train", "--out", "{}", "--config", "/"], "/ is a folder: wanted a TOML or JSON file"),
        (["train", "--out", "{}", "--set", "training.steer=[{{a=1}}]"], "JSON (not TOML), got"),
        (["sweep", "/"], "/ is a folder: wanted a TOML or JSON file"),
        (["tasks", "sorting"], "there is no task"),
        (["dashboard", "no/such/run"], "there is no folder"),
        (["dashboard", __file__], "wanted runs, folders of runs or models (.safetensors, .pt"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(command, said, tmp_path, capsys):
    assert cli([part.format(tmp_path / "a") for part in command]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    assert said in error
    assert "Traceback" not in error


def test_a_file_that_is_no_utf_8_is_said(tmp_path, capsys):
    (tmp_path / "a.toml").write_bytes(b"# \xff")
    assert cli(["train", "--out", str(tmp_path / "a"), "--config", str(tmp_path / "a.toml")]) == 2
    assert "a.toml: wanted a text file in UTF-8" in capsys.readouterr().err


def test_traceback_is_there_for_who_asks(monkeypatch, tmp_path):
    monkeypatch.setenv("INTERP_TRACEBACK", "1")
    with pytest.raises(FileNotFoundError):
        cli(["analyze", str(tmp_path / "none")])


# --- train ---------------------------------------------------------------------------------


def test_train_writes_a_run_and_says_what_to_type_next(tmp_path, capsys):
    assert cli(["train", "--out", str(tmp_path / "a"), *TINY]) == 0
    said = capsys.readouterr().out
    assert "step 3: held-out loss" in said
    assert f"next: interp analyze {tmp_path / 'a'}" in said
    config = interp.load(tmp_path / "a").config
    assert (config.n_layers, config.d_model, config.d_vocab, config.bos_token) == (1, 16, 17, 16)


def test_train_prints_json_for_programs(tmp_path, capsys):
    assert cli(["train", "--out", str(tmp_path / "a"), *TINY, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["step"] == 3
    assert said["path"] == str(tmp_path / "a")


def test_resuming_needs_no_settings_and_refuses_other_ones(tmp_path, capsys):
    out = ["train", "--out", str(tmp_path / "a"), "--no-progress", "--device", "cpu"]
    assert cli([*out, *TINY]) == 0
    assert cli(out) == 2
    assert "is in use" in capsys.readouterr().err
    assert cli([*out, "--resume"]) == 0
    assert cli([*out, "--resume", "--steps", "4"]) == 2
    assert "training.steps = 3, not 4" in capsys.readouterr().err


def test_seed_is_that_of_weights_and_data(tmp_path):
    assert cli(["train", "--out", str(tmp_path / "a"), *TINY, "--seed", "7"]) == 0
    described = interp.Run(tmp_path / "a").described
    assert described["model"]["init_seed"] == described["training"]["seed"] == 7


def test_file_gives_settings_and_flags_win_over_it(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        '[model]\nn_layers = 1\nd_model = 8\n[task]\nname = "sort"\nvocab = 5\nlength = 8\n'
        "[training]\nsteps = 9\nbetas = [0.9, 0.99]\n"
    )
    layers = (settings.default_sections(), settings.sections_of_file(file))
    flags = settings.sections_of_pairs(["training.steps=2", "model.positional=learned"])
    config, task, options = settings.built(settings.merged(*layers, flags))
    assert (config.n_layers, config.d_model, config.positional) == (1, 8, "learned")
    assert (task.name, task.options["vocab"], config.d_vocab) == ("sort", 5, 7)
    assert (options["steps"], options["betas"]) == (2, [0.9, 0.99])


def test_another_task_does_not_inherit_the_options_of_the_first():
    first = {"task": {"name": "repeated_tokens", "max_period": 6}}
    assert settings.merged(first, {"task": {"name": "sort"}})["task"] == {"name": "sort"}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_stops_with_its_exit_code_and_a_line(number, code, tmp_path, capsys, monkeypatch):
    import interp.training.loop as loop

    measured = loop.held_out_scores

    def measured_and_stopped(*args):
        monkeypatch.setattr(loop, "held_out_scores", measured)
        os.kill(os.getpid(), number)
        return measured(*args)

    monkeypatch.setattr(loop, "held_out_scores", measured_and_stopped)
    assert cli(["train", "--out", str(tmp_path / "a"), *TINY]) == code
    assert "interp train: stopped at step 1 of 3" in capsys.readouterr().err


# --- tasks, dashboard ----------------------------------------------------------------------


def test_tasks_are_listed_with_a_line_and_an_example(capsys):
    assert cli(["tasks"]) == 0
    said = capsys.readouterr().out
    for name in interp.tasks.TASKS:
        assert name in said
    assert cli(["tasks", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {each["name"] for each in listed} == set(interp.tasks.TASKS)
    assert all(each["example"] and each["description"] for each in listed)


def test_dashboard_runs_streamlit_on_the_installed_pages_and_nothing_leaves(tmp_path):
    script = tmp_path / "dashboard.py"
    script.touch()
    command = dashboard.command_line([tmp_path], script=script, port=9, browser=False)
    assert command[1:5] == ["-m", "apps.serve", "run", str(script)]
    assert command[-2:] == ["--", str(tmp_path)]
    assert "--browser.gatherUsageStats=false" in command
    assert "--server.address=127.0.0.1" in command
    assert "--server.headless=true" in command


def test_missing_streamlit_is_one_clear_line(monkeypatch):
    monkeypatch.setattr(dashboard, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"pip install \"interp\[dashboard\]\""):
        dashboard.pages()
