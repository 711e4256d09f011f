import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.reason import Cause, Reason, reason_from_json

numbers = st.none() | st.floats()


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Reason(Cause.NOT_DUE, 1.2), "deferred: not due for 1.2 s"),
        (Reason(Cause.NOT_DUE), "deferred: not due"),
        (Reason(Cause.MEMORY, 120), "waits: memory, 120 tokens of KV missing"),
        (Reason(Cause.WORTH_MOST, 0.8312), "joined: worth most, 0.831"),
        (Reason(Cause.RUNS), "joined: it is running already"),
        (Reason(Cause.COLUMN, 3.0), "joined: its column of the cycle"),
    ],
)
def test_a_reason_in_words(reason: Reason, words: str) -> None:
    assert str(reason) == words


def test_numbers_of_several_reasons_become_a_range() -> None:
    assert Cause.NOT_DUE.describe(0.25, 1.2) == "deferred: not due for 0.25 to 1.2 s"
    assert Cause.ROWS.describe(8, 8) == "waits: the step is full, 8 rows"


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_reads_as_a_sentence_with_and_without_a_number(cause: Cause) -> None:
    assert cause.describe() == f"{cause.outcome.value}: {cause.text}"
    assert "{" not in cause.describe(1.0)
    assert ("1" in cause.describe(1.0)) == bool(cause.suffix)
    assert cause.suffix.count("{}") == bool(cause.suffix)
    assert cause.joined == cause.describe().startswith("joined")


def test_the_document_has_every_cause() -> None:
    text = (Path(__file__).parents[2] / "docs/explain.md").read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    written = {row[0].strip("| `"): row[1] for row in rows if len(row) == 3}
    words = {
        cause.name.lower(): cause.describe() + cause.suffix.format(f"N {cause.unit}".rstrip())
        for cause in Cause
    }
    assert written == words


def test_no_two_causes_read_the_same() -> None:
    assert len({(cause.text, cause.suffix, cause.unit) for cause in Cause}) == len(Cause)
    assert len({cause.value for cause in Cause}) == len(Cause.__members__)


@given(cause=st.sampled_from(Cause), number=numbers)
def test_a_reason_survives_an_event_log(cause: Cause, number: float | None) -> None:
    line = json.dumps(Reason(cause, number).as_json(), allow_nan=False)
    read = reason_from_json(json.loads(line))
    assert read.cause is cause
    if number is None or not abs(number) < 1.797e308:
        assert read.number is None
    else:
        assert read.number == pytest.approx(number, rel=1e-3)


@pytest.mark.parametrize(
    "value",
    [None, 3, "memory", [], ["no such cause"], ["memory", "many"], ["memory", True],
     ["memory", 1, 2], [1], {"memory": 1}],
)  # fmt: skip
def test_what_is_no_reason_is_refused_in_one_sentence(value: object) -> None:
    with pytest.raises(ValueError, match="a reason is a cause and a number"):
        reason_from_json(value)
