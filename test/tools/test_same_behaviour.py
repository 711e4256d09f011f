"""A changed value is found and distinguished from an addition and from other words."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from test.alive import runs
from tools.same_behaviour import __main__ as command
from tools.same_behaviour import definitions, generated, record, trees
from tools.same_behaviour.compare import Difference, differences
from tools.same_behaviour.errors import ComparisonError
from tools.same_behaviour.record import Record, Recorded

checkout = pytest.mark.skipif(
    not (trees.ROOT / ".git").exists(), reason="the source tree is no checkout of git"
)
RUN: dict[str, Any] = {
    "experiment": "one", "question": "Which?", "command": "timely-llm experiment one --json x",
    "setup": {"rows of a step": 8, "seeds": "0 to 0"}, "definitions": {"utility": "worth"},
    "rows": [{"policy": "fcfs", "utility": 2.0}, {"policy": "edf", "utility": 4.0}],
    "papers": [{"title": "Paper", "note": "", "rows": [{"utility": 3.0}]}],
}  # fmt: skip


def compared(kind: str, base: Recorded, head: Recorded) -> list[Difference]:
    return differences(Record("base", {kind: {"one": base}}), Record("head", {kind: {"one": head}}))


def changed_run(**changes: Any) -> list[Difference]:
    base, head = (json.loads(json.dumps(run)) for run in (RUN, RUN | changes))
    return compared("experiments", record.experiment(base), record.experiment(head))


def test_a_number_that_changes_is_a_fault_with_its_size() -> None:
    (found,) = changed_run(rows=[RUN["rows"][0], {"policy": "edf", "utility": 5.0}])
    assert found.is_fault
    assert found.line() == "one: rows[*].utility, largest relative difference 0.2"
    assert found.example == "4.0 -> 5.0"
    both = [{"policy": "fcfs", "utility": 2.0002}, {"policy": "edf", "utility": 5.0}]
    (found,) = changed_run(rows=both)
    assert found.line() == "one: rows[*].utility, 2 cells, largest relative difference 0.2"
    assert found.example == "first at rows[0].utility: 2.0 -> 2.0002"


def test_a_row_that_goes_is_a_fault_and_one_that_comes_is_none() -> None:
    rows = list(RUN["rows"])
    assert {one.verdict for one in changed_run(rows=rows[:1])} == {"removed"}
    assert {one.verdict for one in changed_run(rows=[*rows, rows[0]])} == {"added"}
    assert not any(one.is_fault for one in changed_run(rows=[*rows, rows[0]]))


@pytest.mark.parametrize(
    "changes",
    [
        {"question": "Who?"},
        {"definitions": {"utility": "value"}},
        {"setup": {"most rows of a step": 8, "seeds": "from 0 to 0"}},
        {"papers": [{"title": "Article", "note": "", "rows": [{"utility": 3.0}]}]},
    ],
)
def test_prose_of_an_experiment_is_wording(changes: dict[str, Any]) -> None:
    (found,) = changed_run(**changes)
    assert (found.verdict, found.is_fault) == ("wording", False)


def test_what_is_left_out_of_an_experiment_makes_no_difference() -> None:
    assert changed_run(command="timely-llm experiment one --json y") == []


def test_the_setup_and_the_figures_of_papers_are_values() -> None:
    (found,) = changed_run(setup={"rows of a step": 9, "seeds": "0 to 0"})[:1]
    assert found.verdict == "value"
    (found,) = changed_run(papers=[{"title": "Paper", "note": "", "rows": [{"utility": 1.0}]}])
    assert found.verdict == "value"


def described(**changes: Any) -> Recorded:
    option: dict[str, Any] = {"name": "seeds", "opts": ["--seeds"], "default": 5,
              "type": {"param_type": "Range", "min": 1}, "help": "How many."} | changes  # fmt: skip
    shown = (
        f"Usage: x\n\nOptions:\n  {option['opts'][0]} N   {option['help']}\n  --other   Other.\n"
    )
    return record.command({"name": "x", "help": "Run.", "shown": shown, "params": [option]})


@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        ({"default": 6}, {"value"}),
        ({"type": {"param_type": "Range", "min": 2}}, {"value"}),
        ({"type": {"param_type": "From", "min": 1}}, set()),
        ({"opts": ["--rounds"]}, {"removed", "added", "wording"}),
        ({"opts": ["--seeds", "-s"]}, {"added"}),
        ({"help": "The number."}, {"wording"}),
        ({"help": "How\n         many."}, set()),
        ({"name": "rounds"}, set()),
    ],
)
def test_an_option_may_change_its_words_but_not_what_it_means(
    changes: dict[str, Any], verdicts: set[str]
) -> None:
    found = compared("help", described(), described(**changes))
    assert {one.verdict for one in found} == verdicts


def test_changed_words_of_an_option_are_shown_before_and_after() -> None:
    (found,) = compared("help", described(), described(help="The number."))
    assert found.example == "- --seeds N How many.\n+ --seeds N The number."


def test_paragraphs_are_read_whatever_their_width() -> None:
    wide = "Usage: x\n\n  One two.\n\nOptions:\n  --a N  First word.\n  --b    Second.\n"
    narrow = (
        "Usage: x\n\n  One\n  two.\n\nOptions:\n  --a N  First\n         word.\n  --b  Second.\n"
    )
    expected = ["Usage: x", "One two.", "Options:", "--a N First word.", "--b Second."]
    assert record.paragraphs(wide) == record.paragraphs(narrow) == expected


def test_parameters_are_read_from_the_table() -> None:
    document = (
        "# Parameters\n\nProse.\n\n## server\n\n| name | type | default | allowed | meaning |\n"
        '|---|---|---|---|---|\n| `a` | string | `"x"` | `x`, `y` | which; at the start |\n'
        '| `b` | string | `""` |  | a name |\n'
    )
    found = record.parameters(document)
    assert found["server.a"].values == {
        "type": "string", "default": '`"x"`', "allowed": "`x`, `y`", "fixed": True,
    }  # fmt: skip
    assert found["server.b"].values["allowed"] == ""
    assert found["server.b"].words == "a name"
    base, head = (
        Record(name, {"parameters": record.parameters(text)})
        for name, text in (("a", document), ("b", document.replace("`y`", "`z`")))
    )
    (one,) = differences(base, head)
    assert (one.name, one.where, one.verdict) == ("server.a", "allowed", "value")


def test_every_parameter_of_the_document_is_read() -> None:
    text = (trees.ROOT / "docs" / "parameters.md").read_text(encoding="utf-8")
    found = record.parameters(text)
    assert len(found) == 1 + len(re.findall(r"^\| `", text, re.MULTILINE))
    assert found["plan_server.policy"].values["type"] == "string"


def test_comments_of_yaml_are_wording(tmp_path: Path) -> None:
    recorded = []
    for place, text in enumerate(("a: 1  # one\n", "a: 1\n", "a: 2\n")):
        file = tmp_path / f"{place}.yaml"
        file.write_text(text)
        recorded.append(record.configuration(file))
    first, second, third = recorded
    assert [one.verdict for one in compared("config", first, second)] == ["wording"]
    assert [one.verdict for one in compared("config", second, third)] == ["value", "wording"]


def test_the_description_of_a_skill_is_a_value_and_that_of_its_set_is_not(tmp_path: Path) -> None:
    text = "description: a rover\nskills:\n- description: turn left\n"
    recorded = []
    for place, changed in enumerate(
        (text, text.replace("a rover", "one"), text.replace("left", "right"))
    ):
        file = tmp_path / f"{place}.yaml"
        file.write_text(changed)
        recorded.append(record.configuration(file))
    base, other_words, other_prompt = recorded
    assert [one.verdict for one in compared("config", base, other_words)] == ["wording"]
    assert compared("config", base, other_prompt)[0].verdict == "value"


MESSAGE = "# What it is for.\nuint8 NO=0\nTimeUtility worth\nstring<=64 name\n"


def interface(folder: Path, text: str) -> Recorded:
    definitions._nested.cache_clear()
    (folder / "msg").mkdir(exist_ok=True)
    (folder / "msg" / "TimeUtility.msg").write_text("float64 beta\n")
    (folder / "msg" / "One.msg").write_text(text)
    recorder = record._Recorder(trees.Tree(folder, "tree"), folder)
    return recorder.interfaces()["timely_llm/msg/One"]


@pytest.mark.parametrize(
    ("text", "verdicts"),
    [
        (MESSAGE.replace("for.", "good for."), {"wording"}),
        (MESSAGE.replace("=0", "=1"), {"removed", "added", "wording"}),
        (MESSAGE + "bool more\n", {"added", "wording"}),
        (MESSAGE.replace("string<=64 name\n", ""), {"removed", "wording"}),
        (MESSAGE.replace("TimeUtility worth\nstring<=64 name\n",
                         "string<=64 name\nTimeUtility worth\n"), {"value", "wording"}),
    ],
)  # fmt: skip
def test_fields_of_interfaces_are_values_and_their_order_is(
    tmp_path: Path, text: str, verdicts: set[str]
) -> None:
    base = interface(tmp_path, MESSAGE)
    assert base.values[""]["order"] == [
        "uint8 NO=0", "TimeUtility worth", "TimeUtility worth / float64 beta", "string<=64 name",
    ]  # fmt: skip
    found = compared("interfaces", base, interface(tmp_path, text))
    assert {one.verdict for one in found} == verdicts


def test_generated_interfaces_of_other_definitions_are_recognised(tmp_path: Path) -> None:
    for kind in definitions.KINDS:
        (tmp_path / kind).mkdir()
        for file in (trees.ROOT / kind).glob(f"*.{kind}"):
            (tmp_path / kind / file.name).write_text(file.read_text())
    package = tmp_path / "timely_llm"
    package.mkdir()
    (package / "__init__.py").touch()
    generated._copy(trees.ROOT / "timely_llm", package)
    tree = trees.Tree(tmp_path, "tree")
    assert generated._match(tree)
    changed = tmp_path / "msg" / "Segment.msg"
    changed.write_text(changed.read_text() + "# More.\nbool more\n")
    assert not generated._match(tree)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository with one commit, instead of this one."""
    root = tmp_path / "repository"
    (root / "config").mkdir(parents=True)
    (root / "config" / "a.yaml").write_text("a: 1\n")
    (root / ".gitignore").write_text("ignored\n")
    monkeypatch.setattr(trees, "ROOT", root)
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "one")
    return root


def git(root: Path, *words: str) -> None:
    owner = ("-c", "user.name=ann", "-c", "user.email=ann@robots.org")
    subprocess.run(["git", *owner, *words], cwd=root, check=True, capture_output=True)


def test_the_working_tree_is_compared_committed_or_not(
    repository: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["HEAD", "--only", "config"]
    assert command.main(words) == command.SAME
    (repository / "config" / "b.yaml").write_text("b: 1\n")
    (repository / "ignored").write_text("")
    assert command.main(words) == command.SAME
    assert "- config: b.yaml" in capsys.readouterr().out
    (repository / "config" / "a.yaml").write_text("a: 2\n")
    file = tmp_path / "differences.json"
    assert command.main([*words, "--json", str(file)]) == command.FAULT
    shown = capsys.readouterr().out
    assert "VALUES that changed (a fault)\n- config: a.yaml: [*].a, largest" in shown
    assert [one["verdict"] for one in json.loads(file.read_text())["differences"]] == [
        "value", "wording", "added",
    ]  # fmt: skip
    (repository / "config" / "a.yaml").unlink()
    assert command.main(words) == command.FAULT
    assert "REMOVED (a fault)\n- config: a.yaml" in capsys.readouterr().out


def test_a_kept_record_stands_for_its_commit(
    repository: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    assert command.main(["HEAD", "HEAD", "--only", "config", "--keep", str(kept)]) == command.SAME
    (file,) = kept.iterdir()
    (repository / "config" / "a.yaml").write_text("a: 2\n")
    assert command.main([str(file), "--only", "config"]) == command.FAULT
    assert command.main([str(file), "--only", "help"]) == command.BROKEN
    assert "has no help: name others with --only" in capsys.readouterr().err


def test_a_wrong_commit_gets_one_sentence(
    repository: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    for name, words in (
        ("no-such", "'no-such' is neither a commit of "),
        (str(broken), "is no kept record"),
    ):
        assert command.main([name, "--only", "config"]) == command.BROKEN
        (line,) = capsys.readouterr().err.splitlines()
        assert words in line


def test_a_command_that_takes_too_long_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "END_S", 0.5)
    code = """
import pathlib, signal, subprocess, sys
inner = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); signal.pause()"
child = subprocess.Popen([sys.executable, "-c", inner])
pathlib.Path("new").write_text(str(child.pid))
pathlib.Path("new").rename("pid")
signal.pause()
"""
    tree = trees.Tree(tmp_path, "tree")
    with pytest.raises(ComparisonError, match="took longer than 3 s"):
        tree.run("-c", code, timeout_s=3.0)
    child = int((tmp_path / "pid").read_text())
    psutil.wait_procs([psutil.Process(child)] if psutil.pid_exists(child) else [], timeout=20)
    assert not runs(child)


@checkout
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_comparison_leaves_nothing(tmp_path: Path, signum: signal.Signals) -> None:
    tree = ["-m", "tools.same_behaviour", "HEAD", "--only", "help"]
    child = subprocess.Popen(
        [sys.executable, *tree], cwd=trees.ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(tmp_path)}, text=True,
    )  # fmt: skip
    try:
        end_s = time.monotonic() + 60
        while not list(tmp_path.glob("same_behaviour_*/tree/timely_llm")):
            assert time.monotonic() < end_s and child.poll() is None
            time.sleep(0.02)
        child.send_signal(signum)
        _, errors = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == command.INTERRUPTED, errors
    assert errors.splitlines()[-1] == "same_behaviour: interrupted; nothing is left behind"
    assert not list(tmp_path.glob("same_behaviour_*"))


@checkout
def test_a_changed_step_time_shows_in_an_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way: a tree is exported, run, changed in one value, run again and compared."""
    monkeypatch.setattr(record, "SMALL", {"policies": "slice", "jobs": "1"})
    tree = trees.export(None, tmp_path / "tree")

    def recorded() -> Record:
        recorder = record._Recorder(tree, tmp_path)
        recorder.__dict__["command_line"] = {"experiments": {"slice-static": ["policies", "jobs"]}}
        return Record("tree", {"experiments": recorder.experiments()})

    base = recorded()
    profiles = tree.folder / "timely_llm/engines/simulated.py"
    text = profiles.read_text()
    changed = re.sub(r"\b0\.0(?=\d)", "0.1", text)
    assert changed != text
    profiles.write_text(changed)
    faults = [one for one in differences(base, recorded()) if one.is_fault]
    assert any(one.where.startswith("rows[*].") and one.largest for one in faults)
