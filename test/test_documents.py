"""The documents keep up with the code."""

import re

from timely_llm.core.request import ErrorCode
from timely_llm.policies.registry import POLICIES
from timely_llm.resources import resource

ROOT = resource("package.xml").parent
GENERATED = {"msg", "srv", "action"}


def modules() -> set[str]:
    package = ROOT / "timely_llm"
    paths = (path.relative_to(package) for path in package.rglob("*.py"))
    return {
        str(path) for path in paths if path.name != "__init__.py" and path.parts[0] not in GENERATED
    }


def test_the_architecture_has_one_sentence_for_each_module() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    named = re.findall(r"^\| `([\w/]+\.py)` \| .+ \|$", text, re.M)
    assert sorted(named) == sorted(modules())


def test_the_readme_names_every_policy_and_error_code() -> None:
    text = (ROOT / "README.md").read_text()
    for code in ErrorCode:
        assert f"| {code.value} | `{code.name}` |" in text
    for policy in POLICIES:
        assert re.search(rf"^\| .*`{re.escape(policy)}`.* \|", text, re.M)
