"""Each task's sequences against its definition, written out once more in plain Python."""

from collections import Counter
from pathlib import Path

import pytest
import torch

from interp.tasks import UNSCORED, counted_predictions, every_pair, make, markov
from interp.tasks.balanced_brackets import ASK, NO, PAD, YES, balanced
from interp.tasks.chains import Rows, stationary
from interp.tasks.modular_addition import ModularAddition
from interp.tasks.trigger_bigrams import TriggerBigrams, transitions, trigger_tokens


def test_running_majority_by_hand(generator):
    batch = make("running_majority", length=9).batch(200, generator)
    for bits, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        for t, target in enumerate(targets):
            ones, zeros = bits[: t + 1].count(1), bits[: t + 1].count(0)
            assert target == (UNSCORED if ones == zeros else int(ones > zeros))
    assert 0.4 < batch.tokens.float().mean() < 0.6


@pytest.mark.parametrize(
    ("name", "answer"),
    [("copy", list), ("sort", sorted), ("reverse", lambda items: items[::-1])],
)
def test_the_second_half_is_made_of_the_first(name, answer, generator):
    batch = make(name, vocab=5, length=10).batch(30, generator)
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        items = tokens[1:5]
        assert tokens == [5, *items, 6, *answer(items)]
        assert targets == [UNSCORED] * 5 + answer(items) + [UNSCORED]


def test_reverse_as_a_pair_reads_the_source_from_its_end(generator):
    batch = make("reverse", vocab=5, length=10, encoder_decoder=True).batch(30, generator)
    assert batch.source is not None
    assert torch.equal(batch.targets, batch.source.flip(1))
    assert torch.equal(batch.tokens[:, 1:], batch.targets[:, :-1])
    assert (batch.tokens[:, 0] == 5).all()


def test_both_forms_of_reverse_draw_the_same_items():
    one, pair = (
        make("reverse", encoder_decoder=e).batch(8, torch.Generator().manual_seed(1))
        for e in (False, True)
    )
    assert pair.source is not None
    assert torch.equal(one.tokens[:, 1:16], pair.source)


def test_associative_recall_has_the_published_layout(generator):
    batch = make("associative_recall", vocab=40, length=32, pairs=4).batch(300, generator)
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        keys, values = tokens[0:8:2], tokens[1:8:2]
        assert len(set(keys)) == len(set(values)) == 4
        assert all(1 <= key < 20 for key in keys)
        assert all(20 <= value < 40 for value in values)
        asked = [t for t, target in enumerate(targets) if target != UNSCORED]
        assert all(t >= 8 and t % 2 == 0 for t in asked)
        assert sorted(tokens[t] for t in asked) == sorted(keys)
        assert all(dict(zip(keys, values, strict=True))[tokens[t]] == targets[t] for t in asked)


def test_associative_recall_asks_sooner_at_a_small_power(generator):
    def mean_place(power: float) -> float:
        task = make("associative_recall", length=64, pairs=1, power=power)
        return (
            (task.batch(500, generator).targets != UNSCORED).nonzero()[:, 1].float().mean().item()
        )

    gaps = torch.arange(1, 32).double()
    chances = gaps ** (0.01 - 1)
    expected = 2 + 2 * ((gaps - 1) * chances).sum() / chances.sum()
    assert mean_place(0.01) == pytest.approx(expected.item(), abs=3)  # 4 deviations of 500
    assert mean_place(1.0) == pytest.approx(2 + 2 * 15, abs=3.2)


def test_modular_addition_adds_and_its_splits_are_all_pairs():
    config = ModularAddition(p=7, fraction=0.5)
    seen = Counter()
    for split, size in (("train", 24), ("held_out", 25)):
        batch = every_pair(config, split=split)
        assert len(batch) == size
        for (a, b, sign), targets in zip(
            batch.tokens.tolist(), batch.targets.tolist(), strict=True
        ):
            assert (sign, targets) == (7, [UNSCORED, UNSCORED, (a + b) % 7])
            seen[a, b] += 1
    assert seen == Counter({(a, b): 1 for a in range(7) for b in range(7)})


def test_modular_addition_has_the_published_size_and_a_seed_of_its_own():
    published = every_pair(ModularAddition(), split="train")
    assert len(published) == 3830
    other = every_pair(ModularAddition(split_seed=1), split="train")
    assert not torch.equal(published.tokens, other.tokens)


def test_stationary_is_left_as_it_is_and_right_by_hand(generator):
    two = torch.tensor([[0.9, 0.1], [0.3, 0.7]]).double()
    torch.testing.assert_close(stationary(two), torch.tensor([0.75, 0.25]).double())
    chains = torch.rand(5, 4, 4, generator=generator, dtype=torch.float64).softmax(-1)
    weights = stationary(chains)
    torch.testing.assert_close((weights[:, None] @ chains)[:, 0], weights)
    torch.testing.assert_close(weights.sum(-1), torch.ones(5).double())


def test_rows_pick_the_column_that_a_uniform_number_stands_for():
    rows = Rows(torch.tensor([[0.25, 0.75, 0.0], [0.0, 0.5, 0.5]]))
    first, second = torch.zeros(3).long().numpy(), torch.ones(3).long().numpy()
    numbers = torch.tensor([0.0, 0.26, 1 - 2**-53]).double().numpy()
    assert rows.pick(first, numbers).tolist() == [0, 1, 1]
    assert rows.pick(second, numbers).tolist() == [1, 1, 2]


@pytest.mark.parametrize(
    ("k", "uniform", "unigram", "bigram"),
    # the published setting, worked out on 4,000 chains elsewhere
    [(2, 0.6931, 0.5766, 0.5106), (3, 1.0986, 1.0067, 0.8892)],
)
def test_markov_has_the_losses_that_are_best_in_context(k, uniform, unigram, bigram, generator):
    tokens = markov._draw(markov.Markov(vocab=k), 3000, generator)  # of both splits
    for order, expected in (("uniform", uniform), ("unigram", unigram), ("bigram", bigram)):
        chances = counted_predictions(tokens, vocab=k, order=order)
        loss = -chances[:, :-1].gather(2, tokens[:, 1:, None]).mean().item()
        tolerance = 1e-4 if order == "uniform" else 0.016  # deviation of a chain .17: 4 of both
        assert loss == pytest.approx(expected, abs=tolerance)


def test_counted_predictions_by_hand():
    tokens = torch.tensor([[0, 1, 0, 1, 1]])
    unigram = counted_predictions(tokens, vocab=2, order="unigram").exp()[0, :, 1]
    assert unigram.tolist() == pytest.approx([1 / 3, 2 / 4, 2 / 5, 3 / 6, 4 / 7])
    bigram = counted_predictions(tokens, vocab=2, order="bigram").exp()[0, :, 1]
    assert bigram.tolist() == pytest.approx([1 / 2, 1 / 2, 2 / 3, 1 / 3, 2 / 4])
    with pytest.raises(ValueError, match="bigram; got"):
        counted_predictions(tokens, vocab=2, order="trigram")


def test_markov_scores_every_next_state(generator):
    batch = make("markov").batch(3, generator)
    assert torch.equal(batch.targets[:, :-1], batch.tokens[:, 1:])


@pytest.mark.parametrize(
    ("text", "answer"), [("()", True), ("(())()", True), (")(", False), ("(()", False), ("", True)]
)
def test_balanced_by_hand(text, answer):
    tokens = torch.tensor([[2, *("()".index(sign) for sign in text), ASK, PAD]])
    assert balanced(tokens).tolist() == [answer]


def test_brackets_are_asked_about_once_and_answered_rightly(generator):
    task = make("balanced_brackets", length=15)
    batch = task.batch(400, generator)
    for tokens, mask, targets in zip(
        batch.tokens.tolist(), batch.mask.tolist(), batch.targets.tolist(), strict=True
    ):
        end = tokens.index(ASK)
        text = "".join("()"[token] for token in tokens[1:end])
        while "()" in text:
            text = text.replace("()", "")
        assert targets == [UNSCORED] * end + [NO if text else YES] + [UNSCORED] * (14 - end)
        assert mask == [True] * (end + 1) + [False] * (14 - end)
        assert tokens[end + 1 :] == [PAD] * (14 - end)
    share = (batch.targets == YES).any(-1).float().mean().item()
    assert 0.5 < share < 0.75


def test_counting_brackets_is_not_enough(generator):
    batch = make("balanced_brackets").batch(1000, generator)
    even = (batch.tokens == 0).sum(-1) == (batch.tokens == 1).sum(-1)
    wrong = (batch.targets == NO).any(-1)
    assert (even & wrong).float().mean() > 0.1


def test_balanced_strings_are_drawn_evenly(generator):
    tokens = make("balanced_brackets", length=8).batch(40_000, generator).tokens
    full = tokens[(tokens == ASK).long().argmax(-1) == 7]
    seen = Counter(tuple(row[1:7]) for row in full[balanced(full)].tolist())
    assert len(seen) <= 5  # Catalan(3), less those of the other split
    assert len(seen) >= 3
    assert max(seen.values()) < 1.25 * min(seen.values())


def test_triggers_are_followed_by_the_sequence_s_own_outputs(generator):
    config = TriggerBigrams(vocab=20, length=60, triggers=3)
    triggers = set(trigger_tokens(config).tolist())
    batch = make("trigger_bigrams", vocab=20, length=60, triggers=3).batch(60, generator)
    outputs = set()
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        after: dict[int, int] = {}
        for t in range(59):
            known = tokens[t] in after
            assert targets[t] == (tokens[t + 1] if known else UNSCORED)
            if tokens[t] in triggers:
                assert after.setdefault(tokens[t], tokens[t + 1]) == tokens[t + 1]
        assert triggers.isdisjoint(after.values())
        assert len(set(after.values())) == len(after)
        outputs |= set(after.items())
    assert len(outputs) > 30  # they differ from sequence to sequence


def test_other_tokens_follow_the_chain(generator):
    config = TriggerBigrams(vocab=8, length=400, triggers=1)
    chain, trigger = transitions(config), trigger_tokens(config)
    tokens = make("trigger_bigrams", vocab=8, length=400, triggers=1).batch(100, generator).tokens
    counts = torch.zeros(8, 8).double()
    counts.index_put_(
        (tokens[:, :-1].flatten(), tokens[:, 1:].flatten()), torch.ones(1).double(), accumulate=True
    )
    others = [i for i in range(8) if i != trigger.item()]
    found = (counts / counts.sum(-1, keepdim=True))[others]
    # the rarest row has over 500 steps: 4 deviations of a share are under .09
    torch.testing.assert_close(found, chain[others], atol=0.09, rtol=0)


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def text_of(tokens: torch.Tensor) -> list[str]:
    return [bytes(row).decode() for row in tokens[:, 1:].tolist()]


def test_text_splits_files_whole(tmp_path, generator):
    write(tmp_path, **{f"{c}.txt": c * 50 for c in "abcdefghijkl"})
    (tmp_path / "copy.txt").write_text("a" * 50)
    (tmp_path / ".hidden").write_text("zzzz")
    task = make("text", path=str(tmp_path), length=9)
    signs = {
        split: set("".join(text_of(task.batch(400, generator, split=split).tokens))) - {"\n"}
        for split in ("train", "held_out")
    }
    assert signs["train"].isdisjoint(signs["held_out"])
    assert signs["train"] | signs["held_out"] == set("abcdefghijkl")
    assert len(signs["held_out"]) == 2


def test_of_a_single_file_the_last_tenth_is_held_out(tmp_path, generator):
    (tmp_path / "a.txt").write_text("é" * 90 + "x" * 20)
    task = make("text", path=str(tmp_path / "a.txt"), length=6)
    held_out = task.batch(20, generator, split="held_out")
    assert set(text_of(held_out.tokens)) == {"xxxxx"}
    assert torch.equal(held_out.targets[:, :-1], held_out.tokens[:, 1:])


def test_text_says_what_is_wrong_with_its_files(tmp_path, generator):
    with pytest.raises(FileNotFoundError, match="there is no .*nowhere"):
        make("text", path=str(tmp_path / "nowhere")).batch(1, generator)
    with pytest.raises(FileNotFoundError, match="no file in .* is called \\*.md"):
        make("text", path=str(tmp_path), pattern="*.md").batch(1, generator)
    (tmp_path / "short.md").write_text("short")
    with pytest.raises(ValueError, match="train split .* has 5 bytes: too few"):
        make("text", path=str(tmp_path), pattern="*.md").batch(1, generator)
    (tmp_path / "b.png").write_bytes(b"\x89PNG\xff")
    with pytest.raises(ValueError, match="b.png is not: leave it out by a pattern"):
        make("text", path=str(tmp_path)).batch(1, generator)


def test_text_reads_the_standard_library_by_default(generator):
    text = "".join(text_of(make("text", length=500).batch(40, generator).tokens))
    assert "def " in text
    assert "self" in text
