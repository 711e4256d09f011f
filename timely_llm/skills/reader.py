"""Reads skill sets of strangers in a process of its own.

The threads of this process go on meanwhile: PyYAML and the compiler of rules hold Python's lock.
Whatever a text does, it does it to that process, whose memory and time have limits.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

from timely_llm.core.documents import MAX_CHARACTERS
from timely_llm.core.errors import SkillSetError
from timely_llm.core.text import text_problem
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
            [sys.executable, "-m", CHILD],
            input=pickle.dumps((text, source)), capture_output=True, timeout=READ_S, check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
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
