# make demo | test | test-fast | test-extended | test-faults | fault-table | test-simulate | test-fuzz |
#      test-long | test-ros | test-launch | test-colcon | test-vllm | test-vllm-ray | test-ray | check-vllm | test-lowest | wheels |
#      footprint | release-check | audit | hashes | sbom | lint | same | clean
# VENV, VLLM_VENV and PYTHON may be set: `make test VENV=/somewhere/else PYTHON=python3.12`.
# ROS_WHEELS=kilted takes Kilted's wheels of ROS instead of Jazzy's: docs/distributions.md.

PYTHON ?= python3
VENV ?= .venv
VLLM_VENV ?= .venv-vllm
RAY_PACKAGES ?= .ray-packages
LOWEST_VENV ?= .venv-lowest
AUDIT_VENV ?= .venv-audit
# A wheel, and the interfaces in the source tree, have the type support of one distribution.
export ROS_WHEELS ?= $(if $(ROS_DISTRO),none,jazzy)
ROS_CONSTRAINTS := $(wildcard constraints-$(ROS_WHEELS).txt)
CONSTRAINTS := --constraint constraints.txt $(addprefix --constraint ,$(ROS_CONSTRAINTS))
# HASHES=1: pip refuses pinned versions with other hashes than these.
HASH_FILES := $(addprefix .ci/hashes/,constraints.txt $(ROS_CONSTRAINTS))
PIP := $(VENV)/bin/python -m pip
INSTALLED := $(VENV)/.installed
# `ros2 launch` and `ros2 run` look in the prefix of the environment.
export AMENT_PREFIX_PATH := $(abspath $(VENV))$(if $(AMENT_PREFIX_PATH),:$(AMENT_PREFIX_PATH))
export PATH := $(abspath $(VENV))/bin:$(PATH)

FAST := test/core test/skills test/policies test/robots test/traces
BUILD_FILES := pyproject.toml setup.py tools/ros_wheels.py CMakeLists.txt package.xml \
	constraints.txt $(ROS_CONSTRAINTS) \
	$(wildcard cmake/* msg/* srv/* action/* scripts/*)
GENERATED_FOR := timely_llm/msg/.ros-wheels
SWITCHED := $(filter-out $(ROS_WHEELS),$(shell cat $(VENV)/.ros-wheels $(GENERATED_FOR) 2> /dev/null))
SHARED_FILES := $(shell find launch config examples models -type f -not -path '*/__pycache__/*')

.PHONY: demo test test-fast test-extended test-faults fault-table test-simulate test-fuzz test-long test-ros test-launch test-colcon \
	test-vllm test-vllm-ray test-ray \
	check-vllm test-lowest wheels footprint release-check audit hashes sbom lint same no-base clean install switch

demo: install
	timely-llm demo

# pytest-xdist 3.8 waits for ever after it has replaced a process (pytest-dev/pytest-xdist#1327): none is replaced.
AT_ONCE := --numprocesses 2 --max-worker-restart 0

# Two at a time, of which one runs all that has real processes: these need a core of their own.
# All but what the targets below run.
test: install
	python -m pytest $(AT_ONCE)

# Under a minute: what knows neither ROS nor torch, with fewer examples of each property, and without
# the tests that take seconds.
test-fast: install
	python -m pytest $(AT_ONCE) --hypothesis-profile=fast --ignore-glob='*endurance*' \
		-m "not long and not slow" $(FAST)

# Tests that take long beside what they add to others.
test-extended: install
	python -m pytest $(AT_ONCE) -m "extended and not faults and not long"

# Attacks, killed processes, hung engines, and the short fault tests that `test` runs too. A lost
# request fails its test, also where a second run passes. SHORT=1: without those that take longest,
# and each with its first parameters only. OUTCOMES=FILE gets what became of the requests of each test.
# A process that has used a discovery server of DDS finds no other nodes: that file runs by itself.
test-faults: REST = $(if $(SHORT), and not extended)
test-faults: FAULTS = $(if $(SHORT),--short) $(addprefix --outcomes ,$(OUTCOMES))
test-faults: install
	python -m pytest test/system -m "faults$(REST) or counted$(REST)" $(FAULTS); status=$$?; \
		python -m pytest test/system/test_participants.py -m faults $(FAULTS) && exit $$status

# Writes what became of the requests of each fault test into docs/reliability.md, of failed ones too.
fault-table: install
	mkdir -p dist
	rm -f dist/outcomes.jsonl
	$(MAKE) test-faults OUTCOMES=dist/outcomes.jsonl; status=$$?; \
		python -m tools.fault_table dist/outcomes.jsonl && exit $$status

# Histories of servers, robots and people with faults in virtual time: as many as fit into three
# minutes, from a new first seed each time. SEED=5 begins with that one, MUCH='--seeds 9' runs nine.
test-simulate: SEED ?= $(shell date +%s)
test-simulate: MUCH ?= --minutes 3
test-simulate: install
	timely-llm simulate --first-seed $(SEED) $(MUCH) --jobs 2

# Random inputs for all readers of files, recordings, messages, HTTP and plans. N=1000000 tries more.
test-fuzz: N ?= 100000
test-fuzz: SEED ?= $(shell date +%s)
test-fuzz: install
	python -m tools.fuzz --inputs $(N) --first-seed $(SEED)

# What depends on the distribution. SHORT=1: with one file of real processes for each thing that a node
# does with ROS, and of each test the first parameters only.
ROS_SHORT := $(patsubst %,test/system/test_%.py,plan_server converse client execute lifecycle dispatcher \
	record simulation)
test-ros: install
	python -m pytest test/ros \
		$(if $(SHORT),$(ROS_SHORT) --short,test/system -m "not colcon and not faults and not long")

lint: install $(VENV)/typed/.installed
	ruff check .
	ruff format --check .
	MYPYPATH="$$(echo $(VENV)/typed/lib/python*/site-packages)" mypy

# The rclpy of Kilted has types, Jazzy's has few: the code is checked against Kilted's on both.
$(VENV)/typed/.installed: constraints-kilted.txt $(INSTALLED)
	$(PIP) install --quiet --no-deps --ignore-installed --prefix $(VENV)/typed \
		--constraint constraints-kilted.txt ros-rclpy
	touch $@

# What learns or accumulates, for a million steps; an hour of robots and people under each policy.
test-long: install
	python -m pytest -m long $(AT_ONCE)

test-launch: install
	python -m pytest test/launch || test $$? -eq 5  # 5: all skipped; pytest printed the reason

test-colcon: install
	python -m pytest -m colcon test/system

# In an environment of its own, with vLLM's build for CPUs. The second run is on Model Runner V2:
# Triton's interpreter runs the kernels of that one on a CPU. SHORT=1: each test with its first
# parameters only.
test-vllm:
	$(MAKE) $(VLLM_VENV)/.vllm VENV=$(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pytest -k vllm $(if $(SHORT),--short) test/engines test/system/test_vllm_server.py \
		test/system/test_vllm_stages.py test/experiments/test_vllm_experiments.py \
		test/cloud/test_vllm_and_transformers.py test/cluster/test_vllm_replicas.py
	PYTHONPATH=$(abspath test/engines/interpreted_triton)$(if $(PYTHONPATH),:$(PYTHONPATH)) \
		TRITON_INTERPRET=1 VLLM_USE_V2_MODEL_RUNNER=1 \
		$(VLLM_VENV)/bin/python -m pytest --hypothesis-profile=fast -k vllm $(if $(SHORT),--short) test/engines

# Two stages on two nodes of a Ray cluster on this machine. vLLM has no Ray on a CPU: a platform of the
# tests names a resource of Ray for it.
test-vllm-ray:
	$(MAKE) $(VLLM_VENV)/.vllm $(RAY_PACKAGES)/.installed VENV=$(VLLM_VENV)
	PYTHONPATH=$(abspath test/engines/cpu_in_ray):$(abspath $(RAY_PACKAGES)) \
		$(VLLM_VENV)/bin/python -m pytest test/engines/vllm/test_engine_ray.py \
		test/cluster/test_vllm_replicas.py -k "not processes"

# With Ray beside the packages of the environment, in a folder of its own.
test-ray: install $(RAY_PACKAGES)/.installed
	PYTHONPATH=$(abspath $(RAY_PACKAGES)) python -m pytest -k ray test/cluster

$(RAY_PACKAGES)/.installed: constraints.txt pyproject.toml $(INSTALLED)
	rm -rf $(RAY_PACKAGES)
	$(PIP) install --quiet $(CONSTRAINTS) --target $(RAY_PACKAGES) ray
	touch $(RAY_PACKAGES)/COLCON_IGNORE $@

# Whether the newest published vLLM has all that the engine needs; nothing of it is installed.
# Of another one: make check-vllm VLLM='--version 0.32.0', or VLLM='--wheel FILE'.
check-vllm: install
	python -m tools.vllm_coupling $(VLLM)

# With the oldest versions that pyproject.toml allows, torch's among them: some GB. The package itself
# is that of the source tree; a part of the tests, one of each library.
LOWEST := $(FAST) test/cli test/profiling test/report/test_page.py test/report/test_png.py \
	test/demo/test_timeline.py test/engines/test_grammars.py test/engines/test_tokenizer.py \
	test/engines/transformers/test_engine.py

test-lowest: install $(LOWEST_VENV)/.installed
	LD_LIBRARY_PATH=$(abspath $(VENV))/lib PATH=$(abspath $(LOWEST_VENV))/bin:$$PATH \
		python -m pytest $(AT_ONCE) $(LOWEST)

$(LOWEST_VENV)/.installed: pyproject.toml tools/lowest.py $(INSTALLED)
	rm -rf $(LOWEST_VENV)
	$(VENV)/bin/python -m venv $(LOWEST_VENV)
	touch $(LOWEST_VENV)/COLCON_IGNORE
	$(LOWEST_VENV)/bin/python -m pip install --quiet uv
	$(LOWEST_VENV)/bin/python -m tools.lowest test > $(LOWEST_VENV)/direct.txt
	$(LOWEST_VENV)/bin/uv pip compile --quiet --resolution lowest-direct \
		--output-file $(LOWEST_VENV)/lowest.txt $(LOWEST_VENV)/direct.txt
	$(LOWEST_VENV)/bin/uv pip install --quiet --python $(LOWEST_VENV)/bin/python \
		--requirement $(LOWEST_VENV)/lowest.txt
	touch $@

# Of each CPython from 3.11 to 3.14 that is here, into dist/; of some: make wheels VERSIONS='3.12'.
wheels:
	$(PYTHON) -m tools.wheels $(VERSIONS)

# What an installation takes: make footprint WHEEL=dist/... EXTRAS='server bags'.
footprint:
	$(PYTHON) -m tools.footprint $(WHEEL) $(EXTRAS)

# What a release still lacks, a sentence each.
release-check:
	$(PYTHON) -m tools.release

# The hashes of all pinned versions, into .ci/hashes; it asks the package index.
hashes: install
	for file in constraints*.txt; do \
		python -m tools.hashes $$file > .ci/hashes/$$file.new || exit 1; \
		mv .ci/hashes/$$file.new .ci/hashes/$$file; \
	done

# Known vulnerabilities of the versions that CI installs; it asks PyPI. --strict: a package that the
# service does not know fails, instead of passing unchecked.
audit: $(AUDIT_VENV)/.installed
	$(AUDIT_VENV)/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off \
		--requirement constraints.txt $(addprefix --requirement ,$(ROS_CONSTRAINTS)) || { \
		echo "audit: not passed: a version is vulnerable, or the service of PyPI does not answer for it" \
		>&2; exit 1; }

# What is installed, as CycloneDX JSON.
sbom: install $(AUDIT_VENV)/.installed
	mkdir -p dist
	$(AUDIT_VENV)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-format JSON --output-file dist/timely_llm.cdx.json $(VENV)/bin/python

# Neither is a dependency of the package.
$(AUDIT_VENV)/.installed:
	$(PYTHON) -m venv $(AUDIT_VENV)
	touch $(AUDIT_VENV)/COLCON_IGNORE
	$(AUDIT_VENV)/bin/python -m pip install --quiet 'pip-audit>=2.9' 'cyclonedx-bom>=7'
	touch $@

# What the working tree does otherwise than a commit, and its size beside it: make same BASE=da21afc;
# some minutes. Of some kinds of behaviour: make same BASE=da21afc ONLY=help,config.
same: $(if $(BASE),install,no-base)
	python -m tools.shape $(BASE)
	python -m tools.same_behaviour $(BASE) $(if $(ONLY),--only $(ONLY))

no-base:
	$(error name a commit: make same BASE=da21afc)

# --no-deps: constraints-vllm.txt is the whole list, and leaves out what is not used.
$(VENV)/.vllm: constraints-vllm.txt $(INSTALLED) $(VENV)/.shared
	$(PIP) install --quiet --no-deps $(if $(HASHES),--require-hashes --requirement .ci/hashes/constraints-vllm.txt,\
		--requirement constraints-vllm.txt)
	touch $@

install: $(INSTALLED) $(VENV)/.shared

# The build requirements go into the environment itself: pip would otherwise download and unpack
# them again for each build.
$(INSTALLED): $(BUILD_FILES) $(if $(SWITCHED),switch)
	@$(PYTHON) -m tools.ros_wheels > /dev/null  # is ROS_WHEELS one of them
	rm -f $@  # an installation that is broken off is begun anew
	rm -rf timely_llm.egg-info  # of another build: it would be read before what is installed
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	touch $(VENV)/COLCON_IGNORE
	$(VENV)/bin/python -m tools.ros_wheels > $(VENV)/build-requirements.txt
	test "$$(cat $(VENV)/.ros-wheels 2> /dev/null)" = $(ROS_WHEELS) || $(PIP) freeze \
		| sed -n 's/^\(ros-[^=]*\)==.*/\1/p' | xargs --no-run-if-empty $(PIP) uninstall --quiet --yes
	echo $(ROS_WHEELS) > $(VENV)/.ros-wheels
	$(if $(HASHES),$(PIP) install --quiet --no-deps --require-hashes $(addprefix --requirement ,$(HASH_FILES)))
	$(PIP) install --quiet $(CONSTRAINTS) --requirement $(VENV)/build-requirements.txt
	$(PIP) install --quiet $(CONSTRAINTS) --no-build-isolation --editable '.[test,lint]'
	echo $(ROS_WHEELS) > $(GENERATED_FOR)
	touch $@

switch:

# Python reads these files from the source tree, ROS tools read the installed copies.
$(VENV)/.shared: $(INSTALLED) $(SHARED_FILES)
	cp -R launch config examples models $(VENV)/share/timely_llm/
	touch $@

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(LOWEST_VENV) $(AUDIT_VENV) $(RAY_PACKAGES) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf timely_llm/msg timely_llm/srv timely_llm/action timely_llm/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
