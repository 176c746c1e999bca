"""`interp sweep`: a table of runs, whatever becomes of each."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import interp
from interp.cli import run as cli
from interp.cli.settings import check_axes
from interp.cli.terminal import print_table
from interp.training.grid import Planned, carried_out, flat, planned, row_of

FILE = """
[model]
n_layers = 1
n_heads = 2
d_model = 8
[task]
name = "sort"
vocab = 5
length = 8
[training]
steps = 2
batch_size = 2
evaluation_size = 4
checkpoints_per_octave = 0
[sweep]
seed = [0, 1]
model.d_model = [8, 9]
"""


def test_every_combination_is_a_run_of_its_own(tmp_path):
    table = flat({"seed": [0, 1], "model": {"n_layers": [1, 2]}, "task": {"vocab": [5]}})
    runs = planned(table, config=tmp_path / "base.json", out=tmp_path)
    assert [run.settings for run in runs] == [
        {"seed": seed, "model.n_layers": layers, "task.vocab": 5}
        for seed in (0, 1)
        for layers in (1, 2)
    ]
    assert len({run.folder for run in runs}) == 4
    assert runs[0].command[-6:] == [
        *("--seed", "0", "--set", "model.n_layers=1", "--set", "task.vocab=5")
    ]


def test_long_values_have_short_folders_of_their_own(tmp_path):
    values = [[{"statistic": "entropy", "weight": w, "layers": [*range(99)]}] for w in (1, 2)]
    runs = planned({"training.steer": values}, config=tmp_path / "base.json", out=tmp_path)
    assert len({run.folder for run in runs}) == 2
    assert max(len(run.folder.name) for run in runs) < 64


def test_failed_run_is_a_row_and_a_repeated_command_does_what_is_missing(tmp_path, capsys):
    (tmp_path / "some.toml").write_text(FILE)
    command = ["sweep", str(tmp_path / "some.toml"), "--out", str(tmp_path / "runs"), "--json"]
    assert cli([*command, "--no-progress", "--processes", "2"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [row["model.d_model"] for row in rows] == [8, 9, 8, 9]
    good, bad = rows[::2], rows[1::2]
    assert all(row["step"] == 2 and row["error"] is None for row in good)
    assert all(row["error"].startswith("d_model (9) must be a multiple") for row in bad)
    assert interp.Run(good[1]["run"]).described["model"]["init_seed"] == 1
    before = [interp.Run(row["run"]).metrics for row in good]
    (tmp_path / "some.toml").write_text(FILE.replace("[8, 9]", "[8]"))
    assert cli([*command, "--no-progress"]) == 0
    assert [interp.Run(row["run"]).metrics for row in good] == before
    assert json.loads((tmp_path / "runs/sweep.json").read_text())[0]["step"] == 2


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("", 'wanted a table "sweep"'),
        ("[sweep]\nd_model = [8]", "wanted seed or section.name"),
        ("[sweep]\nseed = 3", "wanted a list of values"),
        ("[sweep]\nseed = [3, 3]", "sweep.seed: 3 is named twice"),
        ("[sweep]\nseed = [0]\ntraining.seed = [1, 2]", "seed sets training.seed too"),
        ("[sweep]\nseed = [0]\nmodel.init_seed = [1]", "seed sets model.init_seed too"),
        (
            "[sweep]\ntraining.step = [3]",
            "sweep.training: there is no 'step'; did you mean 'steps'",
        ),
        ("[sweep]\ntrainin.steps = [3]", "sweep: there is no 'trainin'; did you mean 'training'"),
        (
            "[sweep]\nmodel.d_modle = [8]",
            "sweep.model: there is no 'd_modle'; did you mean 'd_model'",
        ),
        ("[sweep]\ntask.vocb = [5]", "sweep.task: there is no 'vocb'; did you mean 'vocab'"),
        ("[sweep]\ntask.name = ['sort', 'spin']", "there is no task 'spin'"),
        (
            "[sweep]\ntask.name = ['sort', 'copy']\ntask.lenght = [8]",
            "sweep.task: there is no 'lenght'; did you mean 'length'",
        ),
        (
            "[task]\nname = 'sort'\nvocb = 5\n[sweep]\nseed = [0]",
            "task: there is no 'vocb'; did you mean 'vocab'",
        ),
        (
            "[task]\nname = 'sotr'\n[sweep]\nseed = [0]",
            "there is no task 'sotr': did you mean sort",
        ),
        ("[swept]\nseed = [3]", "wanted tables"),
        ("[sweep", "broken"),
    ],
)
def test_bad_file_is_one_line(table, said, tmp_path, capsys):
    (tmp_path / "some.toml").write_text(table)
    assert cli(["sweep", str(tmp_path / "some.toml"), "--out", str(tmp_path / "runs")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_run_whose_measurements_are_broken_is_a_row_with_that_error(tmp_path):
    out = tmp_path / "one"
    out.mkdir()
    (out / "metrics.jsonl").write_text("{]\n")
    row = row_of(Planned({"seed": 0}, out, ["-c", "import sys; sys.exit('no room')"]))
    assert row["error"] == "no room"
    assert row["step"] is None
    row = row_of(Planned({"seed": 0}, out, ["-c", "pass"]))
    assert "a line is not JSON" in row["error"]


def test_what_stops_a_sweep_starts_no_further_run(tmp_path):
    runs = [
        Planned({"seed": n}, tmp_path / str(n), ["-c", f"open(r'{tmp_path}/{n}.txt', 'w').close()"])
        for n in range(9)
    ]

    def told(done, total):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        carried_out(runs, processes=1, told=told)
    assert 1 <= len(list(tmp_path.glob("*.txt"))) < 9


def test_seeds_of_weights_and_of_data_are_axes_of_their_own(tmp_path):
    table = {"training.seed": [1, 2], "model.init_seed": [3]}
    assert len(planned(table, config=tmp_path / "some.toml", out=tmp_path)) == 2


def test_an_option_that_one_of_several_tasks_has_is_an_axis():
    sections = {"task": {"name": "sort"}}
    check_axes({"task.name": ["sort", "repeated_tokens"], "task.max_period": [8]}, sections)
    with pytest.raises(ValueError, match="sweep.task: there is no 'max_period'"):
        check_axes({"task.max_period": [8]}, sections)


def test_help_names_the_table_and_axes_are_printed_as_they_were_given(capsys):
    assert cli(["sweep", "--help"]) == 0
    assert 'values in the table "sweep", and' in " ".join(capsys.readouterr().out.split())
    rows = [{"rate": rate, "loss": 0.123} for rate in (0.001, 1e30)]
    print_table(rows, given=["rate"])
    said = capsys.readouterr().out.split()
    assert {"0.001", "1e+30", "0.12"} <= set(said)


# --- on a cluster ----------------------------------------------------------------------------


def test_without_ray_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "some.toml").write_text(FILE)
    command = ["sweep", str(tmp_path / "some.toml"), "--out", str(tmp_path / "runs"), "--ray"]
    assert cli([*command, "--no-progress"]) == 2
    assert 'pip install "interp[cluster]"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [(["--ray", "--processes", "2"], "of local runs"), (["--gpus", "1"], "give --ray too")],
)
def test_flags_of_the_other_kind_are_refused(flags, said, tmp_path, capsys):
    (tmp_path / "some.toml").write_text(FILE)
    assert cli(["sweep", str(tmp_path / "some.toml"), *flags]) == 2
    assert said in capsys.readouterr().err


def test_on_ray_a_failed_run_is_a_row_and_a_repeated_command_does_what_is_missing(tmp_path):
    pytest.importorskip("ray")
    (tmp_path / "some.toml").write_text(FILE)
    command = [sys.executable, "-m", "interp", "sweep", "some.toml", "--out", "runs", "--json"]
    command += ["--no-progress", "--ray"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}

    def rows(code):
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == code, ended.stderr
        return json.loads(ended.stdout)

    first = rows(1)
    assert [row["step"] for row in first] == [2, None, 2, None]
    assert all("d_model (9) must be a multiple" in row["error"] for row in first[1::2])
    before = [interp.Run(row["run"]).metrics for row in first[::2]]
    (tmp_path / "some.toml").write_text(FILE.replace("[8, 9]", "[8, 16]"))
    second = rows(0)
    assert [row["step"] for row in second] == [2, 2, 2, 2]
    assert [interp.Run(row["run"]).metrics for row in second[::2]] == before


def test_killed_run_without_a_word_is_a_row_with_its_exit_code(tmp_path):
    run = Planned({"seed": 0}, tmp_path, ["-c", "import os; os.kill(os.getpid(), 9)"])
    assert row_of(run)["error"] == "ended with exit code -9"
