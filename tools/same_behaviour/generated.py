"""Generated ROS interfaces for an exported tree: copied if they match, else built."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tools.same_behaviour import definitions
from tools.same_behaviour.errors import ComparisonError
from tools.same_behaviour.trees import INSIDE, ROOT, Tree

BUILD_S = 1_200.0
PATTERNS = ("*.so", "msg/*.py", "srv/*.py", "action/*.py")
"""What the build makes, below the package."""


def provide(tree: Tree) -> None:
    """Put the generated interfaces of a tree's definitions into the tree.

    Raises:
        ComparisonError: they cannot be built.
    """
    for source in (ROOT / "timely_llm", _cache(tree)):
        if (source / "msg").is_dir():
            _copy(source, tree.folder / "timely_llm")
            if _match(tree):
                return
    print(f"{tree.name}: building its ROS interfaces", file=sys.stderr, flush=True)
    tree.run(
        "setup.py", "--quiet", "build", "--build-lib", "build/same_behaviour", timeout_s=BUILD_S
    )
    _copy(tree.folder / "build" / "same_behaviour" / "timely_llm", tree.folder / "timely_llm")
    shutil.rmtree(tree.folder / "build")
    if not _match(tree):
        raise ComparisonError(f"{tree.name}: the interfaces that were built are not its own")
    _keep(tree)


def _match(tree: Tree) -> bool:
    """Return whether the generated classes in a tree have the fields of its definitions."""
    expected = {
        name: found
        for file in definitions.files(tree.folder)
        for name, found in definitions.python_fields(file).items()
    }
    try:
        made = json.loads(tree.run("-P", INSIDE / "generated_fields.py", json.dumps(expected)))
    except ComparisonError:
        return False
    return bool(made)


def _cache(tree: Tree) -> Path:
    """Return where interfaces built of a tree's definitions are kept."""
    summed = hashlib.sha256(f"{sys.version} {os.environ.get('ROS_WHEELS', '')}".encode())
    for file in definitions.files(tree.folder):
        summed.update(file.name.encode() + file.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "timely_llm_same_behaviour" / summed.hexdigest()[:16]


def _keep(tree: Tree) -> None:
    """Keep built interfaces; whole or not at all."""
    target = _cache(tree)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        _copy(tree.folder / "timely_llm", Path(folder) / "new")
        shutil.rmtree(target, ignore_errors=True)
        (Path(folder) / "new").rename(target)


def _copy(source: Path, target: Path) -> None:
    """Copy what the build made from one package folder to another."""
    for kind in definitions.KINDS:
        shutil.rmtree(target / kind, ignore_errors=True)
    for old in target.glob("*.so"):
        old.unlink()
    for file in (file for pattern in PATTERNS for file in source.glob(pattern)):
        copy = target / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
