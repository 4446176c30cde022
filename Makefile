# Everything runs from .venv/, which `make env` builds out of requirements.lock with nothing but Python and pip.

# The first interpreter that is new enough; say `make env PYTHON=/path/to/python` to choose another.
NEW_ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)
UV ?= uv
ARGS ?=
# Tests of one file share what is dear to make, so a file stays with one worker.
WORKERS ?= -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

BIN := .venv/bin
ENV := .venv/.installed

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help env demo demo-train test test-all fuzz faults lint docs model model-wheel lock clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1|/' | \
		while IFS='|' read -r target what; do printf '  make %-11s %s\n' "$$target" "$$what"; done

env: $(ENV)  ## build .venv/ from the pinned versions

$(BIN)/python:
	@test -n '$(PYTHON)' || { echo 'simuljax needs Python 3.11 or newer (with venv), and found none: install one,' \
		'or name it with `make env PYTHON=/path/to/python`' >&2; exit 1; }
	@$(PYTHON) -c '$(NEW_ENOUGH)' || { echo 'simuljax needs Python 3.11 or newer (with venv); $(PYTHON) is' \
		"$$($(PYTHON) --version 2>&1)" >&2; exit 1; }
	$(PYTHON) -m venv .venv

$(ENV): requirements.lock pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(ENV)  ## translate a clip of real speech with the bundled model, about a minute; into demo_out/live/
	$(BIN)/simuljax demo --live $(ARGS)

demo-train: $(ENV)  ## build, train, stream, score and draw, on a small language, into demo_out/
	$(BIN)/simuljax demo $(ARGS)

# Most of the time goes into compiling what runs once: the quick tests compile with less effort, and
# the compiler's memory comes in large pages, which saves a tenth (glibc 2.35 and newer).
test: $(ENV)  ## the tests that take seconds; ARGS="-k name" narrows them
	GLIBC_TUNABLES=glibc.malloc.hugetlb=1 \
	XLA_FLAGS="$(XLA_FLAGS) --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true" $(BIN)/python -m pytest $(WORKERS) -m "not slow" $(ARGS)

test-all: $(ENV)  ## every test, compiled as users compile
	$(BIN)/python -m pytest $(WORKERS) $(ARGS)

fuzz: $(ENV)  ## damaged files for every reader, ten seconds each; ARGS="--seconds 60 wav" chooses
	$(BIN)/python -m tests.fuzz.run $(ARGS)

faults: $(ENV)  ## kill every command at random moments, eight minutes each; ARGS="--minutes 60 train"
	$(BIN)/python -m tests.faults.run $(ARGS)

lint: $(ENV)  ## ruff and pyright
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

docs: $(ENV)  ## build the documentation into site/
	$(BIN)/mkdocs build --strict

model: $(ENV)  ## make models/en-de and its card: ASR=tiny.en.pt MT=runs/real_speech/translator ARGS='--scores NAME=LOG'
	$(BIN)/python -m experiments.real_speech.bundle $(ASR) $(MT) $(ARGS)

model-wheel: $(ENV)  ## build the wheel of the bundled model into dist/
	@test -f models/en-de/translator/config.json || { echo 'models/en-de has no model: make one with `make model ASR=WHISPER MT=RUN`' >&2; exit 1; }
	cd models/en-de && ../../$(BIN)/python -m hatchling build -t wheel -d ../../dist

lock:  ## refresh requirements.lock (needs uv)
	$(UV) pip compile --universal --generate-hashes --upgrade --python-version 3.11 --no-emit-index-url --no-emit-find-links \
		--custom-compile-command 'make lock' --extra dev pyproject.toml -o requirements.lock

clean:  ## remove the environment and everything built
	rm -rf .venv site dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
