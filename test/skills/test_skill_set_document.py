"""The reference page of skill sets says what the model reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from timely_llm.core.errors import SkillSetError
from timely_llm.resources import resource
from timely_llm.skills.skill_set import parse_skill_set
from timely_llm.skills.skill_set_document import SECTIONS, document

ROOT = Path(__file__).parents[2]
FIELDS = [
    pytest.param(name, field, id=f"{model.__name__}.{name}")
    for _, model, _ in SECTIONS
    for name, field in model.model_fields.items()
]


def test_the_page_is_current() -> None:
    assert (ROOT / "docs/skill_sets.md").read_text() == document()


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_every_field_has_a_meaning_and_an_example_that_is_valid(
    name: str, field: FieldInfo
) -> None:
    assert field.description and field.description.endswith(".")
    (example,) = field.examples or []
    value = yaml.safe_load(f"{name}: {example}")[name]
    kind: Any = field.annotation
    TypeAdapter(Annotated[kind, *field.metadata, "x"]).validate_python(value)


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_every_field_has_a_row_with_its_default(name: str, field: FieldInfo) -> None:
    rows = [line for line in document().splitlines() if line.startswith(f"| `{name}` | ")]
    assert any((" | needed | " in row) == field.is_required() for row in rows)
    assert all(len(row.replace("\\|", "").split(" | ")) == 6 for row in rows)


def test_the_robot_of_the_page_is_the_file_that_is_checked() -> None:
    page = (ROOT / "docs/skill_sets.md").read_text()
    text = page.split("```yaml\n")[1].split("```")[0]
    assert text == resource("examples/agv.yaml").read_text()
    assert parse_skill_set(text).name == "agv"


def test_words_that_the_page_says_are_values_are_refused_as_choices() -> None:
    page = (ROOT / "docs/skill_sets.md").read_text()
    line = page.split("YAML takes some bare words for values: ")[1].split(". As choices")[0]
    words = [word.strip("`") for word in line.replace("\n", " ").split(", ")]
    assert len(words) == 9
    for word in words:
        text = (
            resource("examples/amr.yaml").read_text().replace("choices: [A1,", f"choices: [{word},")
        )
        with pytest.raises(SkillSetError, match=r"choices.0: must be a text"):
            parse_skill_set(text)
        parse_skill_set(text.replace(f"[{word},", f'["{word}",'))
