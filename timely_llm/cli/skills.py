"""`timely-llm skills`: a new skill set; is one valid, what is its prompt, how are plans cut."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import yaml
from rich import box
from rich.console import Console
from rich.text import Text

from timely_llm.cli.help import Group
from timely_llm.cli.options import EXISTING_FILE, FILE
from timely_llm.core.documents.read import line_in, read_text
from timely_llm.core.errors import PlanError, SkillSetError
from timely_llm.core.requirements import NAME
from timely_llm.core.text import echoed
from timely_llm.report.fitted_table import FittedTable
from timely_llm.resources import ResourceError, resource
from timely_llm.skills.checkers import cut
from timely_llm.skills.minispec.grammar import plan_grammar, summary
from timely_llm.skills.rule_checker import calls_problem, uncalled
from timely_llm.skills.skill_set import SkillSet, load_skill_set, name_fault, parse_skill_set
from timely_llm.skills.stop_checker import Piece

TEMPLATE = "config/templates/skill_set.yaml"


@click.group(cls=Group)
def skills() -> None:
    """Skill sets: what robots can do."""


@skills.command("list")
def list_shipped() -> None:
    """List the skill sets that come with the package."""
    table = FittedTable("name", "description", "language", "skills", "file", box=box.SIMPLE)
    for path in sorted(resource("config/skill_sets").glob("*.yaml")):
        skill_set = load_skill_set(path)
        table.add_row(
            skill_set.name, skill_set.description, skill_set.language, str(len(skill_set.skills)),
            Text(str(path), overflow="fold"),
        )  # fmt: skip
    Console().print(table)


@skills.command()
@click.argument("name")
@click.option("--output", type=FILE, help="Write it here; NAME.yaml if not given.")
def new(name: str, output: Path | None) -> None:
    """Write a commented skill set for a robot of your own, to be changed.

    It passes `skills check` unchanged, and `serve --engine simulated` answers with its examples. A
    file that exists is not replaced.
    """
    path = output or Path(f"{name}.yaml")
    write_new(path, new_skill_set(name, path))
    click.echo(f"Wrote {path}: change it, then run timely-llm skills check {path}")


@skills.command()
@click.argument("file", type=EXISTING_FILE)
@click.option(
    "--plan",
    "plans",
    multiple=True,
    help="Show how this plan is cut into segments; may be given several times.",
)
@click.option("--task", help="Show this task after the prompt, with its number of tokens.")
@click.option("--lark", is_flag=True, help="Also print the grammar of constrained decoding.")
def check(file: Path, plans: tuple[str, ...], task: str | None, lark: bool) -> None:
    """Check a skill set; show its prompt, its grammar and how plans are cut into segments."""
    skill_set = load_skill_set(file)
    problem = calls_problem(skill_set)
    if problem is not None:
        raise SkillSetError(f"{file}: {problem}")
    tables = []
    for number, example in enumerate(skill_set.examples):
        title = f"example {number + 1}: {_last_line(example.task)}"
        try:
            tables.append(_table(skill_set, title, example.plan))
        except PlanError as error:
            text = read_text(file, "skill set", SkillSetError)
            line = line_in(text, "examples", number, "plan")
            raise PlanError(f"{file}: line {line}: {error}") from error
    for number, plan in enumerate(plans, start=1):
        try:
            tables.append(_table(skill_set, f"plan {number}", plan))
        except PlanError as error:
            raise PlanError(f"{file}: {error}") from error
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
    for warning in uncalled(skill_set).values():
        click.echo(f"Warning: {warning}", err=True)


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


def _table(skill_set: SkillSet, title: str, plan: str) -> FittedTable:
    """Return how a plan is cut.

    Raises:
        PlanError: it is no plan.
    """
    try:
        pieces = cut(skill_set, plan)
    except PlanError as error:
        raise PlanError(f"{title}: {error}") from error
    table = FittedTable(box=box.SIMPLE, title=Text(title), title_justify="left")
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
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError:
        return f": where {NAME}[server] is installed, its tokens are counted"
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


def new_skill_set(name: str, file: Path) -> str:
    """Return the text of a commented skill set.

    Args:
        name: of the skill set.
        file: what its comments call the file.

    Raises:
        SkillSetError: it is no name.
    """
    fault = name_fault(name)
    if fault is not None:
        raise SkillSetError(fault)
    text = resource(TEMPLATE).read_text(encoding="utf-8")
    written = name if yaml.safe_load(name) == name else f'"{name}"'  # `no` means false
    called = shlex.quote(echoed(str(file), 200))
    text = text.replace("FILE", called).replace("name: NAME", f"name: {written}")
    parse_skill_set(text)
    return text


def write_new(path: Path, text: str) -> None:
    """Write a file that must not exist yet.

    Raises:
        SkillSetError: it exists, or cannot be written.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SkillSetError(
            f"{path} exists and is not replaced: name another file by --output"
        ) from None
    except OSError as error:
        raise SkillSetError(f"cannot write {path}: {error.strerror}") from error
