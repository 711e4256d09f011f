"""The documents keep up with the code."""

import re

import yaml

from timely_llm.cli.nodes import dispatch, serve
from timely_llm.core.request import ErrorCode
from timely_llm.policies.registry import POLICIES
from timely_llm.resources import resource

ROOT = resource("package.xml").parent


def test_what_the_command_gives_a_server_is_an_argument_of_its_launch_file() -> None:
    text = (ROOT / "launch/plan_server.launch.py").read_text()
    given = {option.name for option in serve.params} - {"ros_arguments", "domain"}
    missing = {name for name in given if f'"{name}"' not in text}
    assert "accept_plans" in given and not missing
    table = (ROOT / "docs/launch.md").read_text()
    assert {name for name in given if f"| `{name}` |" not in table} == set()


def test_what_the_command_gives_a_dispatcher_is_an_argument_of_the_launch_file() -> None:
    text = (ROOT / "launch/servers.launch.py").read_text()
    given = {option.name for option in dispatch.params} - {"ros_arguments", "domain", "params_file"}
    missing = {name for name in given if f'"{name}"' not in text}
    assert not missing
    table = (ROOT / "docs/launch.md").read_text()
    assert {name for name in given if f"| `{name}` |" not in table} == set()


def test_the_readme_names_every_policy_and_error_code() -> None:
    text = (ROOT / "README.md").read_text()
    for code in ErrorCode:
        assert f"| {code.value} | `{code.name}` |" in text
    for policy in POLICIES:
        assert re.search(rf"^\| .*`{re.escape(policy)}`.* \|", text, re.M)


def test_contributors_find_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: ([^\\\n]*(?:\\\n[^\\\n]*)*)$", makefile, re.M)
    assert phony is not None
    targets = {*phony[1].replace("\\", " ").split()} - {"switch", "no-base"}
    text = (ROOT / "CONTRIBUTING.md").read_text()
    listed = re.findall(r"^\| `make ([\w-]+)` \|", text, re.M)
    assert sorted(listed) == sorted(targets)
    assert {*re.findall(r"(?:^|`)make ([\w-]+)", text, re.M)} <= targets


def test_checks_before_a_commit_use_the_environment_alone() -> None:
    made = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repo in made["repos"] for hook in repo["hooks"]]
    assert {repo["repo"] for repo in made["repos"]} == {"local"}  # nothing is downloaded
    assert {"ruff", "ruff-format", "end-of-file", "words", "lint"} <= {hook["id"] for hook in hooks}
    for hook in hooks:
        assert hook["language"] == "system"
        assert hook["entry"] == "make lint" or hook["entry"].startswith(".ci/in-venv ")
    pinned = (ROOT / "constraints.txt").read_text()
    for tool in ("ruff", "mypy", "pre-commit", "pre-commit-hooks"):
        assert re.search(rf"^{tool}==", pinned, re.M)


def test_links_between_documents_lead_somewhere() -> None:
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("models/*/*.md")):
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_files_that_targets_and_documents_name_exist() -> None:
    pages = [ROOT / "Makefile", ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / ".ci/run"]
    named = {
        (page.name, file)
        for page in (*pages, *(ROOT / "docs").rglob("*.md"))
        for file in re.findall(r"\b(?:test|timely_llm|tools)/[\w/]+\.py\b", page.read_text())
    }
    assert len(named) > 50
    assert [(page, file) for page, file in sorted(named) if not (ROOT / file).exists()] == []
