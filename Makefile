# Set-up and the commands of this project. On a fresh Debian or Ubuntu machine, as root: `make demo`, `make test`.

SHELL := /bin/bash
VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= python3
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-kernel test-nvidia test-bcc lint types docs bench packages clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

packages: ## install what only the distribution has (needs root; a no-op when it is there)
	@tools/install-packages.sh

$(STAMP): pyproject.toml | packages
	@tools/make-venv.sh $(PYTHON) $(VENV)
	@touch $@

setup: packages $(STAMP) ## distribution packages, virtual environment, the package itself

demo: setup ## record a small inference server on a simulated GPU and show its critical paths
	@$(BIN)/fencepath demo

test: setup ## everything: unit, live BPF, conformance, packaging, linters, type checkers, docs
	@tools/test.sh $(BIN)

test-kernel: setup ## boot Debian's kernels in qemu and run the live suite in each (10 minutes)
	@tools/install-kernel-packages.sh
	@$(BIN)/python -m tests.kernel.run

test-nvidia: setup ## the same kernels with a stand-in for NVIDIA's driver: the layer, and the suite of the real GPU (9 minutes)
	@tools/install-kernel-packages.sh
	@$(BIN)/python -m tests.kernel.run --nvidia --timeout 720 --total 900

test-bcc: setup ## compile and load every BPF program with Debian 13's BCC, in a chroot (3 minutes)
	@tools/test-newer-bcc.sh $(BIN)/python

lint: setup ## ruff
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: setup ## mypy and pyright, strict
	$(BIN)/mypy && $(BIN)/pyright --pythonpath $(BIN)/python

docs: setup ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: setup ## measure the budgets of docs/benchmarks.md on this machine
	$(BIN)/python -m benchmarks

clean: ## remove what was built here
	rm -rf $(VENV) .build build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
