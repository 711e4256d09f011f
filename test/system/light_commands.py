"""Runs command lines in one process, as `timely-llm` does, and prints how each ended as JSON."""

import contextlib
import io
import json
import sys

from timely_llm.cli import main

for line in sys.stdin.read().splitlines():
    words = json.loads(line)
    sys.argv = ["timely-llm", *words]
    output, errors, status = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as end:
            status = end.code
        except BaseException as error:
            status = f"{type(error).__name__}: {error}"
    print(json.dumps([status, output.getvalue(), errors.getvalue()]))
