"""Readers take any input: they read it, or refuse it with one clear error of ours."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from timely_llm.traces.model import TraceError
from tools.fuzz.__main__ import ReaderTally, corpus_of, fuzz, main, tried
from tools.fuzz.mutations import MOST_BYTES, mutated
from tools.fuzz.targets import CORPUS, TARGETS, Reader, problem_of

WRONG = CORPUS / "words" / "wrong"
"""The one input of the corpus that is refused."""


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_read(name: str) -> None:
    for path in sorted((CORPUS / name).iterdir()):
        tally = ReaderTally()
        assert not tried(name, path.read_bytes(), tally), path
        assert tally.refused == (path == WRONG), path


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_made_of_the_corpus_break_no_reader(
    name: str, tmp_path: Path, first_seed: int
) -> None:
    print(f"python -m tools.fuzz --targets {name} --inputs 300 --first-seed {first_seed}")
    tally = fuzz([name], 300, 60.0, first_seed, tmp_path)[name]
    assert tally.tried > 0 and not tally.problems


def test_an_input_is_made_again_from_its_seed() -> None:
    corpus = corpus_of("plan")
    made = [mutated(random.Random(seed), corpus) for seed in range(200)]
    assert made == [mutated(random.Random(seed), corpus) for seed in range(200)]
    assert len(set(made)) > 150 and max(map(len, made)) <= MOST_BYTES


def test_an_input_that_breaks_its_reader_is_kept_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(data: bytes) -> None:
        if b"->" not in data:
            raise KeyError("no end")

    monkeypatch.setitem(TARGETS, "plan", Reader(read))
    found = str(tmp_path / "found")
    assert main(["--targets", "plan", "--inputs", "200", "--found", found]) == 1
    said = capsys.readouterr().out
    assert said.startswith("plan: it raised KeyError: 'no end'\n  replay: python -m tools.fuzz")
    (path,) = Path(found).iterdir()
    assert main(["--replay", str(path)]) == 1
    assert capsys.readouterr().out == "plan: it raised KeyError: 'no end'\n"


def test_an_error_must_be_one_line_that_says_something() -> None:
    target = Reader(lambda data: None, (TraceError, ValueError))
    assert problem_of(target, TraceError("the bag is damaged")) == ""
    assert problem_of(target, KeyError("x")) == "it raised KeyError: 'x'"
    assert problem_of(target, TraceError(" ")) == "its TraceError says nothing"
    assert "no line of text" in problem_of(target, TraceError("two\nlines"))


def test_unknown_targets_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--targets", "plan,moon"])
    assert "unknown: moon; choose of skill_set, " in capsys.readouterr().err
