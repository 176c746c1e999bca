"""What the demo shows: its claims, from the run that everybody gets, and its reports."""

import json
import re
from pathlib import Path

import pytest
import torch

import interp
from analyses import head_ablation, head_entropy, induction_heads
from interp import probes, report
from interp.cli import run as cli
from interp.metrics import accuracy, scored_counts, weighted_mean
from interp.report.roles import word_for
from interp.report.subject import periods_of
from interp.tasks import make
from tests.demonstration import trained_demo


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base  # workers share a parent
    return trained_demo(shared / "demo-runs")


@pytest.fixture(scope="session")
def found(runs):
    return report.analyze(runs / "demo")


@pytest.fixture(scope="session")
def counted(runs):
    return report.analyze(runs / "demo-majority")


# --- induction -----------------------------------------------------------------------------


def test_induction_heads_hold_at_periods_that_training_never_saw(found):
    evidence = found.induction.found.evidence
    assert found.subject.withheld
    assert evidence.periods == (12, 17, 22, 27)
    group = found.induction.found
    assert max(float(evidence.score[head].min()) for head in group) >= 0.8
    assert all(float(evidence.control[head].max()) < 0.1 for head in group)


def test_model_is_right_on_repeats_and_wrong_without_the_group(found):
    right = found.induction.accuracy
    assert right.clean >= 0.98
    assert right.clean + right.together < 0.1


def test_accuracy_is_that_of_rows_with_an_earlier_occurrence(found, runs):
    task = make("repeated_tokens", vocab=64, length=64, min_period=8, max_period=32)
    batch = task.batch(64, torch.Generator().manual_seed(9), split="held_out")
    seen = (batch.tokens[:, :, None] == batch.tokens[:, None]).tril(-1).any(-1)
    assert torch.equal(batch.targets != -100, seen & (torch.arange(64) < 63))
    with torch.no_grad():
        logits = found.subject.model(batch.tokens)
    assert weighted_mean(accuracy(logits, batch), scored_counts(batch.targets)) >= 0.98


def test_group_stands_on_earlier_heads_chosen_by_what_cutting_them_does(found):
    circuit = found.induction.circuit
    assert circuit.sources
    assert all(layer == 0 for layer, _ in circuit.source_heads)
    assert circuit.score_without < 0.2 * circuit.score
    drops = dict(zip(circuit.candidates, circuit.candidates_drop.tolist(), strict=True))
    assert all(name.startswith("L0") for name in drops)  # heads that are not earlier are not asked
    alone = [drops[name] for name in circuit.sources]
    assert alone == sorted(alone, reverse=True)


def test_earlier_heads_say_where_to_look_and_not_what_to_say(found):
    circuit = found.induction.circuit
    assert circuit.loss_without_previous > 4
    assert abs(circuit.loss_without_previous_kept_patterns) <= 0.05
    assert circuit.score_drop.max() > 0.2  # each edge cut alone, through keys …
    assert circuit.score_drop_q.abs().max() < 0.5 * circuit.score_drop.max()  # … and queries
    assert "where to look, not what to say" in report.verdict(found)[1]


def test_pairs_of_the_first_layer_back_each_other_up_and_the_report_says_so(found):
    a, b, value, low, high = found.pairs.strongest(1)[0]
    assert a.startswith("L0")
    assert b.startswith("L0")
    assert 1 < low < value < high
    assert found.pairs.all_heads
    assert f"{a} and {b} back each other up: without both" in report.verdict(found)[-1]


def test_heads_form_in_the_middle_of_training(found):
    formed = found.formation
    assert 50 < formed.low < formed.step < formed.high < 600
    trajectory = found.trajectory
    early, late = (trajectory.steps.index(at) for at in (0, 600))
    assert trajectory.induction[early].max() < 0.1
    assert trajectory.induction[late, 1].max() > 0.8


def test_verdict_speaks_of_the_group(found):
    first, second, *_ = report.verdict(found)
    assert re.match(r"(L1H\d, )*L1H\d and L1H\d are induction heads: 0\.\d\d", first)
    assert "they back each other up: without any one" in first
    assert "at periods withheld from training (12, 17, 22 and 27)" in first
    assert second.startswith("They stand on L0H")


# --- where there is none -------------------------------------------------------------------


def test_untrained_model_has_no_induction_and_its_entropy_means_nothing(runs):
    said = report.verdict(report.analyze(runs / "demo", step=0))
    assert said[0].startswith("No head does induction: the best score at periods withheld")
    assert "as untrained heads are" in " ".join(said)
    assert not any("stand on" in sentence for sentence in said)


def test_one_layer_model_has_no_induction(tmp_path):
    task = make("repeated_tokens", vocab=32, length=32, max_period=12, max_prefix=4)
    config = interp.TransformerConfig(
        n_layers=1, n_heads=2, d_model=32, d_vocab=33, n_ctx=32, positional="rotary", bos_token=32
    )
    interp.train(
        config, task, out=tmp_path / "one", steps=60, progress=False, checkpoints_per_octave=1
    )
    found = report.analyze(tmp_path / "one")
    assert found.induction.circuit is None
    assert report.verdict(found)[0].startswith("No head does induction")
    assert report.write(found, tmp_path / "report").is_file()


# --- entropy -------------------------------------------------------------------------------


def test_majority_head_is_near_uniform_and_essential(counted):
    assert counted.statistics.near_uniform() == [(0, 0)]
    (role,) = report.roles_of(counted)
    assert role.word == "essential"
    assert role.entropy > 0.99
    assert abs(role.flattened) < 0.01
    assert any("is near-uniform" in s and "and essential" in s for s in report.verdict(counted))


@pytest.mark.parametrize(
    ("numbers", "word"),
    [
        ((3.0, 2.5, 3.5, 1.0), "essential"),
        ((0.03, 0.01, 0.05, 1.0), "of use"),
        ((-0.03, -0.05, -0.01, 1.0), "harmful"),
        ((-0.03, -0.08, 0.02, 1.0), "of unclear use"),
        ((0.03, -0.02, 0.08, 1.0), "of unclear use"),
        ((0.001, -0.002, 0.002, 0.1), "idle"),
        ((0.001, -0.002, 0.002, 1.0), "dispensable"),
    ],
)
def test_word_for_a_head_goes_by_its_interval_and_its_write(numbers, word):
    effect, low, high, write = numbers
    assert word_for(effect, low=low, high=high, write=write) == word


def test_smallest_vocabularies_are_not_asked_for_blocks_that_do_not_fit():
    sizes = {"n_layers": 1, "n_heads": 1, "d_model": 8, "n_ctx": 16}
    for d_vocab, asked in ((3, False), (4, True)):
        model = interp.Transformer(interp.TransformerConfig(d_vocab=d_vocab, **sizes))
        periods, withheld = periods_of(model, make("markov"))
        assert (bool(periods), withheld) == (asked, False)
        if asked:
            probes.find_induction_heads(model, periods=periods, n_sequences=2)


def test_induction_is_not_looked_for_where_no_repeats_fit(counted):
    assert counted.induction is None
    assert report.verdict(counted)[0].startswith("Induction was not looked for")


# --- what is written -----------------------------------------------------------------------


@pytest.mark.parametrize("which", ["found", "counted"])
def test_report_needs_no_network_and_holds_the_verdict(which, request, tmp_path):
    findings = request.getfixturevalue(which)
    page = report.write(findings, tmp_path).read_text()
    head = page.split("<script>")[0]
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", head)
    assert report.verdict(findings)[-1] in page
    numbers = json.loads((tmp_path / "report.json").read_text(), parse_constant=pytest.fail)
    assert numbers["verdict"] == report.verdict(findings)
    assert numbers["cut"]["values"]["effect"]
    alone = findings.cut.effect.numel() == 1
    assert (numbers["pairs"] is None) == alone
    assert ("<h2>Do heads back each other up?</h2>" not in page) == alone
    assert ("<h2>The induction circuit</h2>" in page) == (which == "found")


def test_demo_prints_verdict_report_and_what_to_type_next(runs, capsys):
    assert cli(["demo", "--out", str(runs / "demo"), "--no-progress"]) == 0
    said = capsys.readouterr().out
    assert "are induction heads" in said
    assert "near-uniform" in said
    assert f"report: {runs}/demo/report/index.html" in said
    assert "next: interp dashboard" in said
    assert (runs / "demo/report/index.html").is_file()


def test_analyze_prints_json_for_programs(runs, capsys, tmp_path):
    command = ["analyze", str(runs / "demo-majority"), "--json", "--no-progress"]
    assert cli([*command, "--out", str(tmp_path)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["report"] == str(tmp_path / "index.html")
    assert said["statistics"]["values"]["entropy"]


@pytest.mark.parametrize("script", [induction_heads, head_entropy, head_ablation])
def test_scripts_write_numbers_and_a_figure(script, runs, tmp_path):
    script.main(tmp_path, run=runs / "demo")
    name = script.__name__.rsplit(".", 1)[-1]
    numbers = json.loads((tmp_path / f"{name}.json").read_text(), parse_constant=pytest.fail)
    assert numbers["step"] == 600
    assert "<html" in (tmp_path / f"{name}.html").read_text()[:200]
    for part in ("Question:", "Method:", "Finding:", "Run:"):
        assert part in script.__doc__


def test_the_circuit_is_judged_under_the_same_probe_as_the_group(found):
    circuit, model = found.induction.circuit, found.subject.model
    scores = probes.induction_scores(model, periods=found.subject.periods, n_sequences=8)
    group = list(found.induction.found)
    mean = sum(float(scores[head]) for head in group) / len(group)
    assert circuit.score == pytest.approx(mean, abs=0.05)  # other sequences


def test_notebook_example_of_the_readme_runs(runs, tmp_path, monkeypatch, capsys):
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (tmp_path / "runs").symlink_to(runs)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(example, names)
    assert "torch.Size([64, 4, 64, 64])" in capsys.readouterr().out
    assert names["group"].together > 100 * names["group"].each.max()
    assert sum(bool(line.strip()) for line in example.splitlines()) <= 15
