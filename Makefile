# Two commands do everything: `make smoke` and `make test`. Arguments for pip go in PIP_ARGS.

PYTHON ?= python3
PIP_ARGS ?=
CHECK ?= gpt2

BIN := .venv/bin
INSTALLED := .venv/installed

.DEFAULT_GOAL := help
.PHONY: help smoke test lint shipped init-targets conformance bench sweep sweep-models repros ecosystem examples scripts doubles faults compiled ranks first-contact clean parity remedies

help: ## What can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

smoke: $(INSTALLED) ## Run configs/gpt2.yaml on the emulated device; the report is in reports/gpt2/ (CHECK=bert: another)
	@$(BIN)/smoketest run configs/$(CHECK).yaml --device emulated

test: lint ## Lint, types and tests
	$(BIN)/python -m pytest -q -n 2 --dist loadfile

shipped: $(INSTALLED) ## The shipped checks as pytest items, alone and spread by pytest-xdist: the same outcomes (10 minutes)
	$(BIN)/python -m tests.pytest_plugin.shipped

parity: $(INSTALLED) ## Healthy models against plain CPU: 5 models, 3 precisions, 6 optimizers, 20 seeds (25 minutes)
	$(BIN)/python tests/worker/parity_runs.py 20

init-targets: $(INSTALLED) ## smoketest init and run for some thirty models of all kinds (10 minutes)
	$(BIN)/python tests/cli/init_all.py

conformance: $(INSTALLED) ## PyTorch's operator samples on the emulated device, all of them, against the CPU (10 minutes)
	$(BIN)/python tests/devices/opinfo.py
	$(BIN)/python tests/devices/recorded_names.py

bench: $(INSTALLED) ## All performance claims, measured: benchmarks/results.json and the tables of its README (15 minutes)
	$(BIN)/python -m benchmarks

sweep: $(INSTALLED) ## Make the table of ops that cannot be lowered anew, with torch-mlir
	$(BIN)/python -m smoketest.probe.sweep smoketest/operators/data/cannot_lower.json

sweep-models: $(INSTALLED) ## PyTorch's operator samples and the cases, each as a model through the compile probe (10 minutes)
	$(BIN)/python -m tests.probe.sweep_models
	$(BIN)/python -m tests.probe.sweep_cases

repros: $(INSTALLED) ## Run every repro file below reports/ alone, in a process of its own
	$(BIN)/python -m tests.probe.run_repros reports/

doubles: $(INSTALLED) ## The suite for the real device on all doubles of torch-neuronx, the long form (3 minutes)
	SMOKETEST_LONG=1 $(BIN)/python -m pytest -q tests/neuron

faults: $(INSTALLED) ## The campaign of faults and the fuzzing of checks, the long form (20 minutes)
	SMOKETEST_LONG=1 $(BIN)/python -m pytest -q -n 2 tests/faults tests/cli/test_streams.py

remedies: $(INSTALLED) ## Every rewrite and whole module that a report offers, against what it replaces, the long form (2 minutes)
	SMOKETEST_LONG=1 $(BIN)/python -m pytest -q tests/findings/test_remedies.py tests/findings/test_rewritten_modules.py

compiled: $(INSTALLED) ## torch.compile on the emulated device, GPT-2 too, and the probe of eight models, the long form (3 minutes)
	SMOKETEST_LONG=1 $(BIN)/python -m pytest -q tests/devices/test_compile.py tests/devices/test_compile_running.py tests/devices/test_compile_errors.py tests/probe/test_models.py

ranks: $(INSTALLED) ## Training on 2 and 4 ranks of the emulated device, and runs of them with their reports, the long form (5 minutes)
	SMOKETEST_LONG=1 $(BIN)/python -m pytest -q tests/devices/test_process_group.py tests/devices/test_parallel_training.py tests/supervise/test_ranks.py tests/cli/test_ranks_command.py

first-contact: ## On a Trn2 or Trn3 machine, in the environment with torch-neuronx (docs/first-contact.md)
	$(PYTHON) -m smoketest.first_contact

ecosystem: $(INSTALLED) ## Run all shipped checks against what their comments expect; reports/examples/summary.md (15 minutes)
	$(BIN)/python -m tests.ecosystem
	SMOKETEST_LONG=1 $(BIN)/python -m pytest -q tests/test_shipped_checks.py

examples: ecosystem ## Likewise: their reports are in reports/examples/

scripts: $(INSTALLED) ## Training scripts under smoketest script, with the losses of plain CPU, and one under torchrun (3 minutes)
	SMOKETEST_LONG=1 $(BIN)/python -m pytest -q tests/cli/test_script_command.py tests/cli/test_script_ranks.py

lint: $(INSTALLED) ## Style and types only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean: ## Remove the environment and what was made in it
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache *.egg-info

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else \
		f"Python 3.11 or newer is needed, $(PYTHON) is {v.major}.{v.minor}. Name another: make PYTHON=python3.12 ...")'
	@echo "Installing into .venv: a few minutes, once." >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[lowering,hf,dev]'
	@$(BIN)/python -m compileall -q smoketest  # an editable install does not: every command would compile for itself
	@touch $@
