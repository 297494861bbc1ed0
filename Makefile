# timetoscore: `make bench` does everything, `make test` checks everything. Each target makes .venv by itself.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c

# The newest Python that every dependency supports; PYTHON=… chooses another.
PYTHON ?= $(shell for each in python3.13 python3.12 python3.11 python3; do \
  if $$each -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then command -v $$each; break; fi; done)
STEPS ?= 20000
ARTIFACTS ?= artifacts
HOST ?= 127.0.0.1:8500
RUN ?= $(ARTIFACTS)/runs/latest
# A folder with MNIST (four IDX files or mnist.npz), for machines that can't download it.
DATA ?=
LOADTEST ?=

bin := .venv/bin
python := $(bin)/python
installed := .venv/.installed
bench: STEPS = 1000

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(installed): pyproject.toml requirements.lock
	@if [ -z "$(PYTHON)" ]; then
	  echo "make: no Python 3.11, 3.12 or 3.13 found: install one, or name it: make PYTHON=/path/to/python3.12" >&2; exit 2
	fi
	if ! "$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null; then
	  echo "make: $(PYTHON) has no venv module: install it (Debian and Ubuntu: apt install python3-venv)" >&2; exit 2
	fi
	echo "make: setting up .venv with $$("$(PYTHON)" --version), about 3 GB"
	rm -rf .venv
	"$(PYTHON)" -m venv .venv
	$(bin)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(bin)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

venv: $(installed) ## make .venv from the lock file

data: $(installed) ## fetch and check MNIST
	$(python) -m train --data-only --artifacts $(ARTIFACTS) $(if $(DATA),--data $(DATA))

train: $(installed) ## train cnn2 and cnn4 (STEPS=20000), skipping what is trained already
	$(python) -m train --steps $(STEPS) --artifacts $(ARTIFACTS) $(if $(DATA),--data $(DATA))

export: $(installed) ## export both models as a new, verified version each
	$(python) -m export --artifacts $(ARTIFACTS)

serve: $(installed) ## serve the newest versions with the embedded server on 127.0.0.1:8500
	$(python) -m serving --models $(ARTIFACTS)/models

serve-cpu: $(installed) ## serve with TensorFlow Serving in a container on 127.0.0.1:8500, after checking the image's age
	$(python) -m serving.pins check $(if $(TFS_IMAGE_CPU),--image $(TFS_IMAGE_CPU)) --models $(ARTIFACTS)/models
	docker compose up --wait serving-cpu

serve-gpu: $(installed) ## the same on a GPU, on 127.0.0.1:8510
	$(python) -m serving.pins check $(if $(TFS_IMAGE_GPU),--image $(TFS_IMAGE_GPU)) --models $(ARTIFACTS)/models
	docker compose up --wait serving-gpu

score: $(installed) ## measure a server that runs (HOST=127.0.0.1:8500)
	$(python) -m loadtest --host $(HOST) --artifacts $(ARTIFACTS) $(LOADTEST)

bench: $(installed) ## the main job: train, export, serve, score, report (STEPS=1000 unless given)
	$(MAKE) --no-print-directory train export STEPS=$(STEPS)
	$(python) -m loadtest --serve --artifacts $(ARTIFACTS) $(LOADTEST)
	$(python) -m report $(ARTIFACTS)/runs/latest

report: $(installed) ## write the report of a run (RUN=artifacts/runs/latest)
	$(python) -m report --force $(RUN)

compare: $(installed) ## compare two runs (BASE=… NEW=…)
	@if [ -z "$(BASE)" ] || [ -z "$(NEW)" ]; then
	  echo "make: name two runs: make compare BASE=artifacts/runs/… NEW=artifacts/runs/…" >&2; exit 2
	fi
	$(python) -m report compare $(BASE) $(NEW)

test: $(installed) ## run all tests
	$(python) -m pytest

test-fast: $(installed) ## run the tests that need no long run, server process or browser
	$(python) -m pytest -m 'not slow'

lint: $(installed) ## check style and types
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy

lock: $(installed) ## pin the dependencies anew (needs uv)
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command 'make lock' --quiet --upgrade --output-file requirements.lock

clean: ## remove .venv and caches; artifacts/ stays
	rm -rf .venv *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.NOTPARALLEL:
.PHONY: help venv data train export serve serve-cpu serve-gpu score bench report compare test test-fast lint lock clean
