"""Imports point one way, as docs/map.md says; those inside functions count too."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from timely_llm.resources import resource
from tools.shape import Shape, shape

ROOT = resource("package.xml").parent
PACKAGE = "timely_llm"
EVERYWHERE = {"completion", "resources", "__init__"}
GENERATED = {"msg", "srv", "action"}
PURE = ("core", "identity", "skills", "policies", "cloud", "serving", "dispatch", "progressive")
LIGHT = (*PURE, "cluster")
"""Rooms that load neither ROS nor torch; `cluster` makes engines, and these load torch."""
ROS = {
    "rclpy",
    "builtin_interfaces",
    "std_msgs",
    "action_msgs",
    "lifecycle_msgs",
    "diagnostic_msgs",
}
TORCH = {"torch", "transformers", "vllm", "llguidance"}


BESIDE = {
    "dispatch.front": {"assign"},
    "engines.vllm": {"transformers"},
    "experiments.virtual": {"results"},
    "experiments.recorded": {"results", "virtual"},
    "experiments.realtime": {"recorded", "results", "virtual"},
    "experiments.catalog": {"realtime", "results", "virtual"},
    "ros.bags": {"client"},
    "ros.client": {"identity"},
    "ros.fleet": {"client"},
    "ros.probes": {"client", "fleet"},
    "ros.server": {"identity"},
    "ros.dispatch": {"client", "server"},
    "serving.journal": {"server"},
}
"""Subpackages that a subpackage imports of the same room; all others import none beside them."""
MOST_SINGLE = 0.15
"""Share of modules with exactly one importer."""
MEASURED = {"timely_llm.experiments.virtual.outcome"}
"""What `experiments.results` measures."""


def path_of(module: str) -> Path | None:
    """Return the file of a module of the package; None: it is a name in one, or outside."""
    path = ROOT / module.replace(".", "/")
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.exists() and module.split(".")[0] == PACKAGE:
            return file
    return None


def room(module: str) -> str:
    """Return the folder of a module, or its own name where it lies in none."""
    return [*module.split("."), "__init__"][1]


@cache
def modules() -> frozenset[str]:
    paths = (path.relative_to(ROOT) for path in (ROOT / PACKAGE).rglob("*.py"))
    names = (".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths)
    return frozenset(name for name in names if room(name) not in GENERATED)


@cache
def imported(module: str) -> frozenset[str]:
    """Return the modules that one imports, wherever in it, and be it for types alone."""
    path = path_of(module)
    assert path is not None, module
    return frozenset(
        name for node in ast.walk(ast.parse(path.read_text())) for name in _imported(node)
    )


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0 and node.module is not None, ast.unparse(node)
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield inner if path_of(inner) else node.module


def ranks() -> dict[str, int]:
    """Return how high each room stands, from the document."""
    text = (ROOT / "docs/map.md").read_text()
    line = re.search(r"^`(core <- [^`]+)`", text, re.M)
    assert line is not None
    floors = enumerate(line[1].split(" <- "))
    return {name: floor for floor, names in floors for name in names.split(", ")}


def test_rooms_import_only_what_is_below() -> None:
    below = ranks()
    allowed = {name: {a for a in below if below[a] < below[name]} for name in below}
    allowed |= {
        "resources": {"core"},
        "entry": {"core", "processes"},
        "completion": set(),
        "__init__": {"ros"},  # the clients, when they are asked for
    }
    allowed["ros"] |= GENERATED | {"entry"}  # `python -m timely_llm.ros.plan_server`
    wrong = [
        f"{module} imports {other}"
        for module in sorted(modules())
        for other in sorted(imported(module))
        if other.split(".")[0] == PACKAGE
        and room(other) not in allowed[room(module)] | {room(module)} | EVERYWHERE
    ]
    assert not wrong


def subpackage(module: str) -> str:
    """Return the folder in a room that a module lies in; empty: it lies in the room itself."""
    path = path_of(module)
    assert path is not None, module
    return [*path.relative_to(ROOT / PACKAGE).parent.parts, "", ""][1]


def test_subpackages_import_in_one_direction() -> None:
    wrong, used = [], set()
    for module in sorted(modules()):
        own, here = room(module), subpackage(module)
        if not here:
            continue
        for other in sorted(imported(module)):
            if other.split(".")[0] != PACKAGE or room(other) != own:
                continue
            there = subpackage(other)
            if there in ("", here) or (own, here) == ("experiments", "results"):
                continue
            used.add((f"{own}.{here}", there))
            if there not in BESIDE.get(f"{own}.{here}", ()):
                wrong.append(f"{module} imports {other}")
    assert not wrong
    assert used == {(here, there) for here, others in BESIDE.items() for there in others}
    both = {(f"{here.split('.')[0]}.{there}", here.split(".")[1]) for here, there in used} & used
    assert not both


def test_results_know_of_the_virtual_clock_what_they_measure() -> None:
    found = {
        other
        for module in modules()
        if module.startswith(f"{PACKAGE}.experiments.results")
        for other in imported(module)
        if other.startswith(f"{PACKAGE}.experiments.") and subpackage(other) not in ("", "results")
    }
    assert found == MEASURED


def test_only_ros_knows_ros() -> None:
    found = {room(module) for module in modules() if _outside(module) & ROS}
    assert found == {"ros"}


def test_few_modules_know_torch() -> None:
    found = {module for module in modules() if "torch" in _outside(module)}
    allowed = r"engines\.(transformers|vllm)\.\w+|benchmarks\.engine|cli\.profiles\.engine"
    assert found
    assert not [module for module in found if not re.fullmatch(rf"{PACKAGE}\.({allowed})", module)]


def test_pure_rooms_reach_neither_ros_nor_torch() -> None:
    reached, todo = set[str](), [module for module in modules() if room(module) in PURE]
    while todo:
        if (module := todo.pop()) not in reached:
            reached.add(module)
            todo += [other for other in imported(module) if other.split(".")[0] == PACKAGE]
    assert {room(module) for module in reached} <= {*PURE, "engines", "processes", *EVERYWHERE}
    assert not {name for module in reached for name in _outside(module)} & (ROS | TORCH)


@pytest.mark.parametrize("name", LIGHT)
def test_light_rooms_load_neither_ros_nor_torch(name: str) -> None:
    """Nor do the libraries that they use."""
    members = sorted(module for module in modules() if room(module) == name)
    code = f"import sys, {', '.join(members)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(members) <= set(done.stdout.split())
    assert not set(done.stdout.split()) & (ROS | TORCH | {"ray"})


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import timely_llm.cli.demo", ("timely_llm.cloud", "timely_llm.progressive", "httpx2")),
        (
            "import timely_llm.ros.plan_server, timely_llm.ros.server.help as help;"
            "assert help.make_help({'cloud_url': ''}, None, None, None) is None",
            ("timely_llm.cloud", "timely_llm.progressive", "httpx2"),
        ),
    ],
)
def test_without_a_cloud_no_client_of_a_cloud_is_loaded(code: str, absent: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not [name for name in done.stdout.split() if name.startswith(absent)]


def test_all_drawing_is_in_one_room() -> None:
    assert {room(module) for module in modules() if "matplotlib" in _outside(module)} == {"report"}


def test_one_room_starts_processes_that_last() -> None:
    starts = ("subprocess.Popen", "os.fork")
    found = {room(m) for m in modules() if (path := path_of(m)) and _calls(path) & {*starts}}
    assert found == {"processes"}


def _calls(path: Path) -> set[str]:
    """Return the functions that a file calls, as it writes them."""
    tree = ast.parse(path.read_text())
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def test_one_module_knows_ray() -> None:
    assert {module for module in modules() if "ray" in _outside(module)} == {
        "timely_llm.cluster.ray_place"
    }


def _outside(module: str) -> set[str]:
    return {other.split(".")[0] for other in imported(module)} - {PACKAGE}


def test_no_module_imports_itself_through_others() -> None:
    found = package_shape()
    assert not found.circles
    assert not found.circles_with_types


def test_few_modules_have_a_single_importer() -> None:
    """A module with one importer is a part of that one, unless it is worth a file by itself."""
    found = package_shape()
    assert found.one_importer_share < MOST_SINGLE, f"{found.one_importer} of {found.modules}"


@cache
def package_shape() -> Shape:
    """Return the shape of the package."""
    paths = [path for module in modules() if (path := path_of(module)) is not None]
    return shape({str(path.relative_to(ROOT)): path.read_text() for path in paths})


def test_no_folder_of_the_package_has_more_than_16_modules() -> None:
    folders = Counter(path.parent for path in (ROOT / PACKAGE).rglob("*.py"))
    crowded = {
        str(folder.relative_to(ROOT)): files
        for folder, files in folders.items()
        if files > 16 and folder.name not in GENERATED
    }
    assert not crowded
