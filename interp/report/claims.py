"""What is commonly said about attention: what was measured of it, and where.

Timings and trainings take minutes and belong to a machine, so a report does not repeat them:
`analyses/attention_claims.py` writes them to a file, and a report shows the file that lies in the
run's folder, or else the one that comes with the package, with its machine and day.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from pandas import DataFrame

CLAIMS = "attention_claims.json"
KEPT = Path(__file__).with_name(CLAIMS)
"""What was measured when this version was made."""

Verdict = Literal["holds", "holds with a condition", "does not hold"]
MARKS: dict[Verdict, str] = {"holds": "●", "holds with a condition": "◐", "does not hold": "○"}


@dataclass(frozen=True)
class Claim:
    """What is said, what was found, and by which code.

    Attributes:
        claim: The statement as it circulates.
        measured: Numbers by name.
        verdict: Whether it holds here.
        because: The verdict in a sentence.
        path: The code that ran.
    """

    claim: str
    measured: Mapping[str, Any]
    verdict: Verdict
    because: str
    path: str


@dataclass(frozen=True)
class Measured:
    """The claims of one subject, measured together.

    Attributes:
        subject: Of what kind they are.
        when: Day and hour, UTC.
        machine: Processor, cores, threads and versions, in words.
        claims: In order.
    """

    subject: str
    when: str
    machine: str
    claims: tuple[Claim, ...]


def read_claims(path: str | Path) -> list[Measured]:
    """The subjects of a file that `analyses/attention_claims.py` wrote.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is something else, or has a verdict that is none.
    """
    try:
        found = [_measured(entry) for entry in json.loads(Path(path).read_text())["subjects"]]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: not written by analyses/attention_claims.py ({error!r})"
        ) from error
    for claim in (claim for subject in found for claim in subject.claims):
        if claim.verdict not in get_args(Verdict):
            known = ", ".join(get_args(Verdict))
            raise ValueError(f"{path}: a verdict is one of {known}; got {claim.verdict!r}")
    return found


def _measured(entry: Mapping[str, Any]) -> Measured:
    claims = tuple(Claim(**claim) for claim in entry["claims"])
    return Measured(entry["subject"], entry["when"], entry["machine"], claims)


def claims_of(folder: Path | None) -> list[Measured]:
    """Those of a run's folder, if it has its own, else those that come with the package."""
    own = None if folder is None else folder / CLAIMS
    return read_claims(own if own is not None and own.is_file() else KEPT)


def claims_table(subject: Measured) -> "DataFrame":
    """A row a claim: what is said, whether it holds, why, and by which code."""
    import pandas

    return pandas.DataFrame(
        {
            "it is said": [claim.claim for claim in subject.claims],
            "here": [f"{MARKS[claim.verdict]} {claim.verdict}" for claim in subject.claims],
            "because": [claim.because for claim in subject.claims],
            "measured with": [claim.path for claim in subject.claims],
        }
    )
