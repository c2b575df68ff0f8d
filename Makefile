# `make regenerate` and `make test` set up what they need, the first time with a network, later without.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# No GPU: torch is installed in this exact version. With a GPU an installed torch is kept.
TORCH := torch==2.13.0
GPU_PYTHON ?= $(PYTHON)

.PHONY: regenerate libraries toolchain test test-pythons lint format bench gpu-test targets clean help

help:
	@echo "make regenerate   set up, regenerate every kernel and build every library for every architecture"
	@echo "make test         set up and run the tests (no GPU needed)"
	@echo "make test-pythons the generator's tests under each of Python 3.11 to 3.13 that is installed"
	@echo "make lint         ruff, mypy --strict, docstring coverage"
	@echo "make libraries    build the libraries of the committed texts"
	@echo "make gpu-test     checks on a CUDA device, with PYTHON=..., its packages and prebuilt libraries"
	@echo "make bench        time regenerate-kernels (and later the kernels)"

regenerate: $(VENV)/.generate toolchain
	$(BIN)/regenerate-kernels
	$(BIN)/kernwright build --all

libraries: $(VENV)/.generate toolchain
	$(BIN)/kernwright build --all

toolchain: $(VENV)/.generate
	@$(BIN)/python -m kernwright.runtime.toolchain install

test: $(VENV)/.test toolchain
	$(BIN)/python -m pytest

# The generator under every other supported Python that this machine has: the same bytes, the same names.
PYTHONS := build/pythons
GENERATOR_TESTS := tests/test_names.py tests/test_rows.py tests/test_rows_values.py tests/test_rows_conditions.py tests/test_lowering.py tests/test_layouts.py tests/test_symbolic.py
test-pythons: $(VENV)/.test
	@for version in 3.11 3.12 3.13; do \
	  for python in python$$version $$HOME/.pyenv/versions/$$version*/bin/python3; do \
	    [ -x $(PYTHONS)/$$version/bin/pytest ] && break; \
	    "$$python" -c "" 2>/dev/null || continue; \
	    "$$python" -m venv $(PYTHONS)/$$version && \
	    $(PYTHONS)/$$version/bin/python -m pip --disable-pip-version-check install --quiet -r requirements/python.txt; \
	  done; \
	  if [ -x $(PYTHONS)/$$version/bin/pytest ]; then \
	    echo "Python $$version"; PYTHONPATH=.:tests $(PYTHONS)/$$version/bin/pytest -q -p no:cacheprovider $(GENERATOR_TESTS) || exit 1; \
	  else echo "Python $$version: not on this machine"; fi; \
	done
	KERNWRIGHT_TEST_PYTHONS=$(CURDIR)/$(PYTHONS) $(BIN)/python -m pytest -q tests/test_regenerate_cases.py -k b08

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p kernwright
	$(BIN)/interrogate --quiet --fail-under 80 -i -m -p -s -n generator runtime kernwright/__init__.py kernwright/cli.py
	$(BIN)/regenerate-kernels --check

format: $(VENV)/.test
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format .

bench: $(VENV)/.generate
	$(BIN)/python benchmarks/regenerate.py

# Runs with the interpreter that is given: no set-up, no compiler, no network. Libraries: build/libraries or KERNWRIGHT_LIBRARIES.
gpu-test:
	KERNWRIGHT_JIT=0 PYTHONPATH=.$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) -m tests.gpu $(GPU_TEST_ARGUMENTS)

# The hand-written targets of docs/targets, compiled for their architectures; `make -C docs/targets check` says how to run them.
targets: toolchain
	$(MAKE) -C docs/targets all NVCC="$$($(BIN)/python -m kernwright.runtime.toolchain path)/bin/nvcc"

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.generate: requirements/generate.txt pyproject.toml | $(VENV)/bin/python
	$(PIP) -r requirements/generate.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.test: requirements/test.txt $(VENV)/.generate
	$(BIN)/python -c "import torch" 2>/dev/null || $(PIP) $(TORCH)
	$(PIP) -r requirements/test.txt
	@touch $@

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
