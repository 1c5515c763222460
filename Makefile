# `make` or `make help` lists what there is.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup tables plots test structure engine-speed models heads clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY)  ## a virtual environment in .venv with everything that is needed

tables: $(READY)  ## every table and figure into outputs/report/; goes on where it was interrupted
	$(RUN) -m bench report=all

plots: $(READY)  ## the figures alone: MARS' accuracy and speedup against its threshold
	$(RUN) -m bench report=mars_fig4

test: $(READY)  ## the whole test suite
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n auto --dist loadfile

structure: $(READY)  ## check the laws of the rooms: sizes, import order, circles
	$(RUN) tests/structure.py

engine-speed: $(READY)  ## this engine beside transformers, in one interleaved run
	$(RUN) -m bench.vs_transformers

models: $(READY)  ## train the embedded pair anew into models/tiny (up to 3 hours on two cores, minutes on a GPU)
	$(RUN) -m bench.train_pair

heads: $(READY)  ## train drafter heads for the embedded pair into models/tiny
	$(RUN) -m bench.train_heads

clean:  ## remove what runs have written (not the environment, not the models)
	rm -rf outputs .pytest_cache .hypothesis .ruff_cache

# torch first and alone: what depends on it must not choose another build
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) else f"Python {v[0]}.{v[1]} found; Leeway needs 3.11 to 3.13: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(READY)
