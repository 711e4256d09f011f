from pathlib import Path

import pytest

from test.cli.test_main import run
from test.report.runs import simulated
from timely_llm.experiments.results.document import write_run

SMALL = simulated().model_copy(update={"timelines": (), "measures": ("utility",)})


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_run(SMALL, tmp_path / "small.json")
    return tmp_path / "small.json"


def test_a_run_becomes_a_page(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "report", str(file)) == 0
    assert capsys.readouterr().out == "Wrote report.html\n"
    page = Path("report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "<title>small</title>" in page


def test_several_runs_have_a_title_and_pictures(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--output", "page.html", "--png", "new/pictures", "--title", "Ours <3"]
    assert run(monkeypatch, "report", str(file), str(file), *words) == 0
    assert capsys.readouterr().out == "Wrote page.html\nWrote 12 pictures to new/pictures\n"
    page = Path("page.html").read_text()
    assert "<title>Ours &lt;3</title>" in page
    assert "Comparison: small" in page
    assert len(list(Path("new/pictures").glob("*.png"))) == 12


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        ((), 2, "Missing argument 'RUN...'"),
        (("no.json",), 2, "Path 'no.json' does not exist"),
        (("small.json", "--output", "no/report.html"), 2, "no is not a folder"),
        (("small.json", "--output", "."), 2, "File '.' is a directory"),
        (("small.json", "--output", "./small.json"), 2, "small.json is a RUN itself"),
        (("small.json", "--png", "small.json"), 2, "Directory 'small.json' is a file"),
        (("broken.json",), 1, "broken.json is no JSON"),
        (("empty.json",), 1, "empty.json has no rows: there is nothing to report"),
        (("nan.json",), 1, "utility must be a finite number, or null if there is none"),
    ],
)
def test_a_mistake_is_answered_in_one_line(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    status: int,
    complaint: str,
) -> None:
    Path("broken.json").write_text("{")
    Path("empty.json").write_text('{"experiment": "e"}')
    Path("nan.json").write_text('{"experiment": "e", "rows": [{"utility": NaN}]}')
    assert run(monkeypatch, "report", *words) == status
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""
    assert not Path("report.html").exists()
