"""Reads clients' skill sets in a process of its own.

PyYAML and the compiler of rules hold Python's lock; in a child process they do not delay this
one's threads. A harmful text affects only the child, which has limits of memory and time.
"""

from __future__ import annotations

import pickle
import subprocess

from timely_llm.core.documents.read import MAX_CHARACTERS
from timely_llm.core.errors import SkillSetError
from timely_llm.core.text import text_problem
from timely_llm.processes.tied import module_command, module_environment
from timely_llm.skills.skill_set import SkillSet

CHILD = "timely_llm.skills.reader_child"
READ_S = 30.0
"""How long reading may take on a busy machine, seconds."""


def read_apart(text: str, source: str = "skill set") -> SkillSet:
    """Return the skill set written in YAML `text`; see `parse_skill_set`.

    Raises:
        SkillSetError: one line naming the place in `source` and what is allowed there.
    """
    if len(text) > MAX_CHARACTERS:
        raise SkillSetError(
            f"{source} has {len(text)} characters, at most {MAX_CHARACTERS} are allowed"
        )
    problem = text_problem(source, text)
    if problem is not None:
        raise SkillSetError(problem)
    try:
        done = subprocess.run(
            module_command(CHILD),
            input=pickle.dumps((text, source)), capture_output=True, timeout=READ_S, check=False,
            env=module_environment(),
            start_new_session=True,  # Ctrl-C is for this process
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SkillSetError(
            f"{source} could not be read within {READ_S:g} s: make it simpler"
        ) from None
    except OSError as error:
        raise SkillSetError(f"{source} cannot be read: {error.strerror}: try later") from error
    if done.returncode != 0:
        raise SkillSetError(
            f"{source} needs too much time or memory to be read (its reader ended with status"
            f" {done.returncode}): make it simpler"
        )
    answer: SkillSet | str = pickle.loads(done.stdout)
    if isinstance(answer, str):
        raise SkillSetError(answer)
    return answer
