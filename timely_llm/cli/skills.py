"""`timely-llm skills`: is a skill set valid, what does the model read, how are its plans cut."""

from __future__ import annotations

from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from timely_llm.cli.options import EXISTING_FILE
from timely_llm.core.errors import PlanError
from timely_llm.resources import ResourceError, resource
from timely_llm.skills.checkers import cut
from timely_llm.skills.grammar import plan_grammar, summary
from timely_llm.skills.skill_set import SkillSet, load_skill_set
from timely_llm.skills.stop_checker import Piece


@click.group()
def skills() -> None:
    """Skill sets: what robots can do."""


@skills.command("list")
def list_shipped() -> None:
    """List the skill sets that come with the package."""
    table = Table("name", "description", "language", "skills", "file", box=box.SIMPLE)
    for path in sorted(resource("config/skill_sets").glob("*.yaml")):
        skill_set = load_skill_set(path)
        table.add_row(
            skill_set.name, skill_set.description, skill_set.language, str(len(skill_set.skills)),
            Text(str(path), overflow="fold"),
        )  # fmt: skip
    Console().print(table)


@skills.command()
@click.argument("file", type=EXISTING_FILE)
@click.option("--plan", "plans", multiple=True, help="A plan to cut; may be given several times.")
@click.option("--task", help="Show how the prompt goes on with this task.")
@click.option("--lark", is_flag=True, help="Print the grammar of constrained decoding, too.")
def check(file: Path, plans: tuple[str, ...], task: str | None, lark: bool) -> None:
    """Check a skill set, and show its prompt, its grammar and how plans are cut."""
    skill_set = load_skill_set(file)
    samples = [
        (f"example {number}: {_last_line(example.task)}", example.plan)
        for number, example in enumerate(skill_set.examples, start=1)
    ]
    samples += [(f"plan {number}", plan) for number, plan in enumerate(plans, start=1)]
    tables = [_table(file, skill_set, title, plan) for title, plan in samples]
    console = Console()
    count = f"{len(skill_set.skills)} skills, {len(skill_set.examples)} examples"
    _head(console, f"{skill_set.name} ({skill_set.language}): {count}")
    prompt = skill_set.prompt_text()
    _head(console, f"Prompt, the part that all tasks share{_tokens(prompt)}")
    console.print(Text(prompt.rstrip()))
    if task is not None:
        _head(console, f"Task{_tokens(task)}")
        console.print(Text(task))
    _show_language(console, skill_set, lark)
    for table in tables:
        console.print()
        console.print(table)


def _show_language(console: Console, skill_set: SkillSet, lark: bool) -> None:
    if skill_set.language == "regex":
        _head(console, "Rules")
        for number, rule in enumerate(skill_set.rules, start=1):
            console.print(Text(f"{number}  {rule}"))
    elif skill_set.language == "minispec":
        _head(console, "Grammar")
        console.print(Text(summary(skill_set)))
    else:
        _head(console, "Pieces")
        rate = f"{skill_set.words_per_s:g} words a second"
        console.print(Text(f"one for each {skill_set.language}, read at {rate}"))
    if skill_set.language == "minispec" and lark:
        _head(console, "Grammar of constrained decoding, in Lark's notation")
        console.print(Text(plan_grammar(skill_set).rstrip()), soft_wrap=True)


def _table(file: Path, skill_set: SkillSet, title: str, plan: str) -> Table:
    """Return how a plan is cut.

    Raises:
        PlanError: it is no plan.
    """
    try:
        pieces = cut(skill_set, plan)
    except PlanError as error:
        raise PlanError(f"{file}: {title}: {error}") from error
    table = Table(box=box.SIMPLE, title=Text(title), title_justify="left")
    table.add_column("segment", justify="right")
    table.add_column("text", overflow="fold")
    table.add_column("calls", overflow="fold")
    table.add_column("predicted (s)", justify="right")
    table.add_column("blocking")
    segments = 0
    for piece in pieces:
        if isinstance(piece, Piece):
            calls = Text("\n".join(map(str, piece.calls)))
            table.add_row(
                str(segments), _visible(piece.text), calls, f"{piece.predicted_s:.3g}",
                "yes" if piece.blocking else "",
            )  # fmt: skip
            segments += 1
        else:
            table.add_row("", _visible(piece, "dim"), Text("what it returned", "dim"), "", "")
    return table


def _visible(text: str, style: str = "") -> Text:
    """Return a text on one line."""
    return Text(text.replace("\n", "⏎").replace("\t", " "), style)


def _tokens(text: str) -> str:
    """Return how many tokens of the embedded model a text has, in words; nothing without it."""
    from tokenizers import Tokenizer

    try:
        file = resource("models/tiny_planner/tokenizer.json")
    except ResourceError:
        return ""
    count = len(Tokenizer.from_file(str(file)).encode(text, add_special_tokens=False).ids)
    return f": {count} tokens of tiny_planner"


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else ""


def _head(console: Console, words: str) -> None:
    console.print()
    console.print(Text(words, "bold"))
