"""Compare what two commits of this repository do: later work proves that it changed no behaviour.

    python -m tools.same_behaviour BASE                 # BASE and the working tree as it is
    python -m tools.same_behaviour BASE HEAD            # two commits
    python -m tools.same_behaviour BASE --only help,config
    python -m tools.same_behaviour BASE --keep FOLDER   # also write what was recorded
    python -m tools.same_behaviour FOLDER/da21afc.json  # a kept record in place of its commit
    make same BASE=da21afc

Six kinds of behaviour are recorded of each commit:

- `experiments`: the JSON of every experiment that runs in virtual time, one seed, load 1. An
  experiment runs in virtual time if it takes its step times from a profile: it understands the
  option `--profile`. The registry of each commit names the experiments, so a new one is taken.
- `help`: all commands, their options, types, ranges and defaults, and their help at 80 columns.
- `interfaces`: all messages, services and actions, with nested types, as `ros2 interface show`.
- `parameters`: the ROS parameters, as the nodes declare them.
- `config`: the files below config/.
- `bags`: traces as JSON lines and as bags; the topics, types, quality of service and metadata of
  a recording of a real server; the names and types of its ROS interface.

Each difference is a changed value, a removal, an addition, or a change of wording. Changed values
and removals are faults: the exit status is 1. Additions and wording are listed. A reader judges
whether they were meant. The exit status is 2 if a commit could not be recorded.

Commits are exported to a temporary folder; the repository gets no worktree. All commits run in the
environment of the Python that runs this. The generated ROS interfaces of the working tree are
copied where they match the commit's definitions. Otherwise they are built, and kept for the next
time in `$XDG_CACHE_HOME/timely_llm_same_behaviour`.

Not covered: speed, log lines, pages and pictures, real engines, and anything that needs a GPU.
"""
