"""What the model reads: a sample of its task, typed tokens, or text."""

import re
from dataclasses import dataclass
from typing import Any, Literal

import torch

from apps.sources import Opened, UnreadableError
from interp.metrics import UNSCORED, next_token_targets
from interp.tasks import Batch, Task, make

Kind = Literal["sample", "typed", "text"]
MANY = 64  # samples of a task that scores are averaged over


@dataclass(frozen=True)
class Prompt:
    """One sequence.

    Attributes:
        tokens: Token ids.
        labels: Their strings.
        answers: What should be said at each position, UNSCORED where nothing is asked.
        about: Where it comes from, in words.
    """

    tokens: tuple[int, ...]
    labels: tuple[str, ...]
    answers: tuple[int, ...]
    about: str

    @property
    def reads_on(self) -> bool:
        """Whether what is asked for is the next token; not where nothing is asked."""
        if all(answer == UNSCORED for answer in self.answers):
            return False
        pairs = zip(self.answers[:-1], self.tokens[1:], strict=True)
        return all(answer in (UNSCORED, token) for answer, token in pairs)

    @property
    def batch(self) -> Batch:
        """As a batch of one, with what the task asks."""
        tokens, answers = torch.tensor([self.tokens]), torch.tensor([self.answers])
        return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), answers)

    @property
    def read_batch(self) -> Batch:
        """As a batch of one that asks for every next token, where the task reads on."""
        if not self.reads_on:
            return self.batch
        tokens = torch.tensor([self.tokens])
        return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), next_token_targets(tokens))


def kinds_of(opened: Opened) -> list[Kind]:
    """Which kinds of prompt this model can be given."""
    kinds: list[Kind] = ["text"] if has_tokenizer(opened) else []
    return [*kinds, "sample", "typed"]


def predicts_tokens(opened: Opened) -> bool:
    """Whether logits are over the tokens that it reads: only then is a next token asked for."""
    return opened.model.config.vocab_out == opened.model.config.d_vocab


def has_tokenizer(opened: Opened) -> bool:
    """Whether a tokenizer came along."""
    return getattr(opened.model, "tokenizer", None) is not None


def task_of(opened: Opened) -> Task | None:
    """The model's task; without one, repeats of random tokens, if there is room for them."""
    if opened.task is not None:
        return opened.task
    config = opened.model.config
    length = min(config.n_ctx, 64)
    vocab = min(config.d_vocab - 1, 512)
    try:
        return make("repeated_tokens", vocab=vocab, length=length, prefix_share=0.0)
    except ValueError:
        return None


def label_of(opened: Opened, token: int) -> str:
    """A token's string: the tokenizer's, the task's name for it, or its number."""
    if has_tokenizer(opened):
        return opened.model.tokenizer.decode([token])
    labels = opened.task.labels if opened.task is not None else ()
    return labels[token] if token < len(labels) else str(token)


def samples(opened: Opened, count: int = MANY) -> Batch | None:
    """Held-out sequences of the model's task, the same ones each time."""
    task = task_of(opened)
    if task is None:
        return None
    batch = task.batch(count, torch.Generator().manual_seed(0), split="held_out")
    if batch.source is not None:
        return None
    if predicts_tokens(opened) or opened.task is not None:
        return batch
    return Batch(batch.tokens, batch.mask, torch.full_like(batch.targets, UNSCORED))


def sample(opened: Opened, number: int) -> Prompt:
    """One held-out sequence of the model's task.

    Raises:
        UnreadableError: The model is too small for the sequences that can be made without a task.
    """
    task = task_of(opened)
    if task is None:
        return of_tokens(opened, range(min(opened.model.config.n_ctx, 6)), "the first tokens")
    batch = task.batch(1, torch.Generator().manual_seed(number), split="held_out")
    real = batch.mask[0]
    tokens, answers = batch.tokens[0, real].tolist(), batch.targets[0, real].tolist()
    if opened.task is None:
        return of_tokens(opened, tokens, f"sample {number} of random tokens, repeated")
    about = f"sample {number} of {opened.task.name}, held out"
    return _checked(opened, tokens, tuple(answers), about)


def typed(opened: Opened, words: str) -> Prompt:
    """Tokens by their names or numbers, parted by spaces or commas.

    Raises:
        UnreadableError: There are none, too many, or one is not known.
    """
    names = {label_of(opened, i): i for i in range(opened.model.config.d_vocab)}
    tokens = [_token(word, names, opened) for word in re.split(r"[\s,]+", words) if word]
    return of_tokens(opened, tokens, "typed")


def _token(word: str, names: dict[str, int], opened: Opened) -> int:
    if word in names:
        return names[word]
    if word.isdecimal() and int(word) < opened.model.config.d_vocab:
        return int(word)
    shown = ", ".join(list(names)[:4])
    raise UnreadableError(
        f"“{word}” is not one of this model's {len(names)} tokens ({shown} … {list(names)[-1]}): "
        "type names or numbers, parted by spaces"
    )


def text(opened: Opened, words: str) -> Prompt:
    """What the tokenizer makes of a text."""
    return of_tokens(opened, opened.model.tokenizer.encode(words), "text")


def of_tokens(opened: Opened, tokens: Any, about: str) -> Prompt:
    """Tokens, each asking for the next; for a task with answers of its own, nothing is asked."""
    tokens = list(tokens)
    asked = predicts_tokens(opened) if opened.task is None else sample(opened, 0).reads_on
    answers = [*tokens[1:], UNSCORED] if asked and tokens else [UNSCORED] * len(tokens)
    return _checked(opened, tokens, tuple(answers), about)


def _checked(opened: Opened, tokens: list[int], answers: tuple[int, ...], about: str) -> Prompt:
    most = opened.model.config.n_ctx
    if not tokens:
        raise UnreadableError("the prompt is empty: type a token, or take a sample")
    if len(tokens) > most:
        raise UnreadableError(
            f"the prompt has {len(tokens):,} tokens, and this model reads {most:,}: shorten it"
        )
    labels = tuple(label_of(opened, token) for token in tokens)
    return Prompt(tuple(tokens), labels, answers, about)
