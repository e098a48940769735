# Everything a newcomer needs:  make demo   make test   make lint   make docs
# With CIFAR-10 at hand:        make rescore DATA=FOLDER
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test lint docs notebooks rescore clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt $(wildcard src/ddh/*/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit("ddh needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "torch==2.13.0"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: setup
	$(BIN)/ddh demo

# A Ray cluster has many processes of its own, and little patience with their start: it comes first.
test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/cluster
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --ignore tests/cluster

lint: setup
	$(BIN)/ruff check src tests examples
	$(BIN)/ruff format --check src tests examples
	$(BIN)/mypy

docs: setup
	$(BIN)/python -m ddh.cli.reference docs/cli.md

# Codes of CIFAR-10 from the weights that travel with the repository, learned without labels.
DATA ?= data
rescore: setup
	$(BIN)/ddh bench table2 --data $(DATA) --backbone auto --weights weights/cifar10-resnet18.safetensors \
	  --methods DDH --output rescore

notebooks: setup
	$(BIN)/python examples/make_notebooks.py

clean:
	rm -rf $(VENV) build demo-output src/ddh/*/*.so
