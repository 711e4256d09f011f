import re
import tomllib
from pathlib import Path

import pytest

from timely_llm import resources
from timely_llm.core.errors import TimelyError
from timely_llm.resources import ResourceError, resource

DRONE = "config/skill_sets/drone.yaml"
GENERATED = ("msg", "srv", "action")


def installed(prefix: Path) -> Path:
    """Lay out an installation below `prefix` and return its Python package."""
    file = prefix / "share" / "timely_llm" / DRONE
    file.parent.mkdir(parents=True)
    file.touch()
    package = prefix / "lib" / "python3" / "site-packages" / "timely_llm"
    package.mkdir(parents=True)
    return package


def test_a_shipped_skill_set_is_found() -> None:
    assert resource(DRONE).read_text(encoding="utf-8").strip()


def test_a_folder_is_found() -> None:
    assert resource("config/skill_sets").is_dir()


def test_the_source_tree_goes_before_every_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    (source / "timely_llm").mkdir(parents=True)
    (source / "package.xml").touch()
    (source / "launch").mkdir()
    installed(tmp_path / "install")
    (tmp_path / "install" / "share" / "timely_llm" / "launch").mkdir()
    monkeypatch.setattr(resources, "_PACKAGE", source / "timely_llm")
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path / "install"))
    assert resource("launch") == source / "launch"


def test_the_prefix_of_the_installed_package_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", installed(tmp_path))
    monkeypatch.delenv("AMENT_PREFIX_PATH", raising=False)
    assert resource(DRONE) == tmp_path / "share" / "timely_llm" / DRONE


def test_an_overlay_goes_before_the_prefix_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay = tmp_path / "overlay"
    installed(overlay)
    monkeypatch.setattr(resources, "_PACKAGE", installed(tmp_path / "underlay"))
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"{tmp_path / 'without it'}:{overlay}")
    assert resource(DRONE) == overlay / "share" / "timely_llm" / DRONE


def test_the_prefix_of_the_interpreter_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path / "venv")
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "elsewhere" / "timely_llm")
    monkeypatch.setattr("sys.prefix", str(tmp_path / "venv"))
    monkeypatch.delenv("AMENT_PREFIX_PATH", raising=False)
    assert resource(DRONE) == tmp_path / "venv" / "share" / "timely_llm" / DRONE


def test_the_error_names_what_is_missing_and_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", installed(tmp_path))
    with pytest.raises(ResourceError, match=r"models/no_such_model .* missing") as caught:
        resource("models/no_such_model")
    assert str(tmp_path / "share" / "timely_llm") in str(caught.value)
    assert isinstance(caught.value, TimelyError)


def test_wheels_and_colcon_install_every_file_of_the_package() -> None:
    root = resource("package.xml").parent
    package, cmake = root / "timely_llm", root / "CMakeLists.txt"
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["timely_llm"]
    packaged = {file for pattern in patterns for file in package.glob(pattern)}
    matching = re.search(r"FILES_MATCHING (.*?)PATTERN \"__pycache__\"", cmake.read_text(), re.S)
    assert matching is not None
    installed = re.findall(r'PATTERN "([^"]+)"', matching[1])
    made = {".py", ".pyc", ".so"}
    others = {file for file in package.rglob("*") if file.is_file() and file.suffix not in made}
    others -= {file for folder in GENERATED for file in (package / folder).rglob("*")}
    assert package / "report/assets/page.js" in others
    assert others <= packaged
    assert not [file for file in others if not any(file.match(one) for one in installed)]
