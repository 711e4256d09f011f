import os
import subprocess
import sys

import pytest

from timely_llm.processes.real_time import give_real_time


@pytest.mark.skipif(not hasattr(os, "SCHED_RR"), reason="this system has no SCHED_RR")
def test_another_process_gets_a_real_time_priority_where_the_system_permits_it() -> None:
    code = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()  # it runs
        try:
            give_real_time(child.pid, 3)
        except PermissionError:
            assert os.sched_getscheduler(child.pid) == os.SCHED_OTHER
        else:
            assert os.sched_getscheduler(child.pid) == os.SCHED_RR
            assert os.sched_getparam(child.pid).sched_priority == 3
