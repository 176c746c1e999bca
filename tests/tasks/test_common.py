"""What holds of every task."""

import json

import pytest
import torch

from interp import metrics
from interp.tasks import SPLITS, TASKS, UNSCORED, Batch, Task, make
from interp.tasks.splits import HELD_OUT_EVERY, belongs, draw_split

SMALL = {
    "repeated_tokens": [{"vocab": 16, "length": 16}, {"vocab": 8, "length": 12, "withheld": ()}],
    "running_majority": [{"length": 10}],
    "copy": [{"vocab": 4, "length": 10}],
    "sort": [{"vocab": 4, "length": 10}],
    "reverse": [{"vocab": 4, "length": 10}, {"vocab": 4, "length": 10, "encoder_decoder": True}],
    "associative_recall": [{"vocab": 8, "length": 8, "pairs": 2}],
    "modular_addition": [{"p": 11}],
    "markov": [{"vocab": 2, "length": 9}],
    "balanced_brackets": [{"length": 12}],
    "trigger_bigrams": [{"vocab": 6, "length": 8, "triggers": 2}, {"scored": "all"}],
    "text": [{"length": 16}],
}
CASES = [pytest.param(n, o, id=f"{n}-{i}") for n in TASKS for i, o in enumerate(SMALL[n])]


@pytest.fixture(params=SPLITS)
def split(request):
    return request.param


def rows(batch: Batch) -> set[tuple[int, ...]]:
    """The sequences, with their sources if they have any."""
    parts = [batch.tokens] if batch.source is None else [batch.source, batch.tokens]
    return {tuple(row) for row in torch.cat(parts, 1).tolist()}


@pytest.mark.parametrize(("name", "options"), CASES)
def test_batches_are_what_the_task_says_of_them(name, options, split, generator):
    task = make(name, **options)
    batch = task.batch(40, generator, split=split)
    assert len(batch) == 40
    assert batch.tokens.shape == (40, task.n_ctx)
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    assert batch.tokens.min() >= 0
    assert batch.tokens.max() < task.d_vocab
    scored = batch.targets[batch.targets != UNSCORED]
    assert len(scored) > 0
    assert scored.min() >= 0
    assert scored.max() < task.d_vocab
    assert (batch.targets[~batch.mask] == UNSCORED).all()
    if task.bos_token is not None:
        assert (batch.tokens[:, 0] == task.bos_token).all()


@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_splits_share_no_sequence(name, options, generator):
    if name == "text":
        pytest.skip("windows of two texts may be equal: its files are what is split")
    task = make(name, **options)
    train = rows(task.batch(600, generator, split="train"))
    held_out = rows(task.batch(300, generator, split="held_out"))
    assert train
    assert held_out
    assert train.isdisjoint(held_out)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_same_seed_gives_the_same_batch_and_the_global_one_is_left_alone(name, options):
    task, before = make(name, **options), torch.get_rng_state()
    one, same = (task.batch(9, torch.Generator().manual_seed(3)) for _ in range(2))
    other = task.batch(9, torch.Generator().manual_seed(4))
    assert torch.equal(one.tokens, same.tokens)
    assert torch.equal(one.targets, same.targets)
    assert rows(one) != rows(other)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_options_survive_json(name, options):
    task = make(name, **options)
    again = make(name, **json.loads(json.dumps(task.options)))
    assert again == task
    assert set(options) <= set(task.options)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_describes_itself_in_a_line_with_an_example(name):
    task = make(name)
    assert task.description.endswith((".", "?"))
    assert "\n" not in task.example()
    assert "→" in task.example()
    assert len(task.labels) == task.d_vocab == len(set(task.labels))


def test_an_unknown_task_or_option_is_refused_with_the_nearest_names():
    with pytest.raises(ValueError, match="no task 'repeat_tokens': did you mean repeated_tokens"):
        make("repeat_tokens")
    with pytest.raises(ValueError, match="no task 'xyz'; there are repeated_tokens, "):
        make("xyz")
    with pytest.raises(ValueError, match="copy has no option 'lenght': did you mean length"):
        make("copy", lenght=3)


@pytest.mark.parametrize(
    ("name", "option", "value", "wanted"),
    [
        ("copy", "length", "32", "int"),
        ("copy", "length", True, "int"),
        ("modular_addition", "fraction", "half", "float"),
        ("reverse", "encoder_decoder", 1, "bool"),
        ("repeated_tokens", "withheld", (3, "4"), "tuple"),
        ("repeated_tokens", "scored", "none", "'repeats' or 'all'"),
        ("text", "path", 5, r"str \| None"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(name, option, value, wanted):
    with pytest.raises(ValueError, match=f"{name}: {option} wants .*{wanted}.*, got"):
        make(name, **{option: value})


def test_a_whole_number_will_do_for_a_share():
    assert make("repeated_tokens", prefix_share=0).options["prefix_share"] == 0


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("repeated_tokens", {"min_period": 2}, "3 ≤ min_period ≤ max_period, got 2"),
        ("repeated_tokens", {"max_period": 70}, "distinct tokens don't fit into a vocabulary"),
        ("repeated_tokens", {"length": 40, "max_period": 39}, "don't fit into 40 positions"),
        ("repeated_tokens", {"withheld": (50,)}, r"\[50\] are not between 8 and 32"),
        ("repeated_tokens", {"prefix_share": 1.5}, "prefix_share is from 0 to 1"),
        (
            "repeated_tokens",
            {"min_period": 5, "max_period": 5, "withheld": (5,)},
            "every period from 5 to 5 is withheld",
        ),
        ("running_majority", {"length": 1}, "length of 2 or more"),
        ("copy", {"length": 7}, "even number from 4, got 7"),
        ("sort", {"vocab": 1}, "2 or more, got 1"),
        ("associative_recall", {"pairs": 20}, "4 positions a pair"),
        ("associative_recall", {"vocab": 8}, "3 keys, too few for 8"),
        ("associative_recall", {"power": 0.0}, "power is above 0"),
        ("modular_addition", {"fraction": 1.0}, "leaves training or held-out data without any"),
        ("modular_addition", {"p": 1}, "2 or more, got 1"),
        ("markov", {"vocab": 1}, "2 or more states"),
        ("balanced_brackets", {"length": 3}, "got 3"),
        ("trigger_bigrams", {"triggers": 40}, "as many other tokens"),
        ("trigger_bigrams", {"length": 2}, "3 or more, got 2"),
        ("text", {"length": 2}, "3 or more, got 2"),
    ],
)
def test_options_that_do_not_go_together_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        make(name, **options)


def test_a_batch_that_cannot_be_drawn_is_refused(generator):
    task = make("copy")
    with pytest.raises(ValueError, match="1 or more sequences, got 0"):
        task.batch(0, generator)
    with pytest.raises(ValueError, match="train and held_out, got 'test'"):
        task.batch(1, generator, split="test")  # pyright: ignore[reportArgumentType]


def test_batches_slice_and_move_with_their_source(generator):
    batch = make("reverse", encoder_decoder=True).batch(6, generator)
    part = batch[2:4].to("cpu")
    assert part.source is not None
    assert batch.source is not None
    assert torch.equal(part.source, batch.source[2:4])
    assert torch.equal(part.targets, batch.targets[2:4])
    assert torch.equal(batch[torch.tensor([5])].tokens, batch.tokens[5:])


def test_batches_that_do_not_fit_together_are_refused():
    tokens = torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(ValueError, match=r"one \[B, T\], got"):
        Batch(tokens, tokens.bool(), tokens[:1])
    with pytest.raises(ValueError, match=r"mask is bool.*got torch.int64"):
        Batch(tokens, tokens, tokens)
    with pytest.raises(ValueError, match="1 sources for 2 sequences"):
        Batch(tokens, tokens.bool(), tokens, source=tokens[:1])


def test_one_sequence_in_eight_is_held_out_however_alike_they_are(generator):
    several = torch.randint(64, (20_000, 32), generator=generator)
    single, bits = torch.arange(20_000)[:, None], torch.randint(2, (20_000, 40))
    for sequences in (several, single, bits):
        held_out = belongs(sequences, "held_out")
        assert torch.equal(~held_out, belongs(sequences, "train"))
        # 4 standard deviations of 20,000 draws
        assert held_out.float().mean().item() == pytest.approx(1 / HELD_OUT_EVERY, abs=0.0095)


def test_the_split_is_the_same_on_every_machine():
    found = belongs(torch.arange(96).view(48, 2), "held_out").nonzero()[:, 0].tolist()
    assert found == [2, 19, 20, 24, 33, 35, 38, 42]


def test_a_task_with_hardly_any_sequences_says_so():
    with pytest.raises(ValueError, match="too few different sequences"):
        draw_split(lambda n: torch.zeros(n, 2, dtype=torch.long), 3, split="held_out")


def test_metrics_and_tasks_mark_unscored_targets_alike():
    assert metrics.UNSCORED == UNSCORED


def test_a_task_is_a_value():
    assert make("copy", vocab=5) == make("copy", vocab=5) != make("copy")
    assert isinstance(make("copy"), Task)
