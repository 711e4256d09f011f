# make demo | test | lint | test-long | test-launch | test-colcon | test-vllm | check-vllm | clean
# VENV, VLLM_VENV and PYTHON may be set: `make test VENV=/somewhere/else PYTHON=python3.12`.

PYTHON ?= python3
VENV ?= .venv
VLLM_VENV ?= .venv-vllm
PIP := $(VENV)/bin/python -m pip
INSTALLED := $(VENV)/.installed
# `ros2 launch` and `ros2 run` look in the prefix of the environment.
export AMENT_PREFIX_PATH := $(abspath $(VENV))$(if $(AMENT_PREFIX_PATH),:$(AMENT_PREFIX_PATH))
export PATH := $(abspath $(VENV))/bin:$(PATH)

BUILD_FILES := pyproject.toml setup.py CMakeLists.txt package.xml constraints.txt \
	$(wildcard cmake/* msg/* srv/* action/* scripts/*)
SHARED_FILES := $(shell find launch config examples models -type f -not -path '*/__pycache__/*')

.PHONY: demo test lint test-long test-launch test-colcon test-vllm check-vllm install clean

demo: install
	timely-llm demo

# Two at a time, of which one is a test with ROS processes: they need a core of their own.
test: install
	python -m pytest --numprocesses 2 --dist loadgroup

lint: install
	ruff check .
	ruff format --check .
	mypy

# What learns or accumulates, for a million steps; an hour of robots and people under each policy.
test-long: install
	python -m pytest -m long --numprocesses 2

test-launch: install
	python -m pytest test/launch || test $$? -eq 5  # 5: all skipped, and pytest said why

test-colcon: install
	python -m pytest -m colcon test/system

# In an environment of its own, with vLLM's build for CPUs.
test-vllm:
	$(MAKE) $(VLLM_VENV)/.vllm VENV=$(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pytest -k vllm test/engines test/system/test_vllm_server.py \
		test/experiments/test_vllm_experiments.py

# Whether the newest published vLLM has all that the engine needs; nothing of it is installed.
# Of another one: make check-vllm VLLM='--version 0.32.0', or VLLM='--wheel FILE'.
check-vllm: install
	python -m tools.vllm_coupling $(VLLM)

# --no-deps: constraints-vllm.txt is the whole list, and leaves out what is not used.
$(VENV)/.vllm: constraints-vllm.txt $(INSTALLED) $(VENV)/.shared
	$(PIP) install --quiet --no-deps --requirement constraints-vllm.txt
	touch $@

install: $(INSTALLED) $(VENV)/.shared

# The build requirements go into the environment itself: pip would otherwise download and unpack
# them again for each build.
$(INSTALLED): $(BUILD_FILES)
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	touch $(VENV)/COLCON_IGNORE
	$(VENV)/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' > $(VENV)/build-requirements.txt
	$(PIP) install --quiet --constraint constraints.txt --requirement $(VENV)/build-requirements.txt
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable '.[test,lint]'
	touch $@

# Python reads these files from the source tree, ROS tools read the installed copies.
$(VENV)/.shared: $(INSTALLED) $(SHARED_FILES)
	cp -R launch config examples models $(VENV)/share/timely_llm/
	touch $@

clean:
	rm -rf $(VENV) $(VLLM_VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf timely_llm/msg timely_llm/srv timely_llm/action timely_llm/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
