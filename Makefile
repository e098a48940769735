# Everything a newcomer needs:  make demo   make test   make lint   make docs
# With CIFAR-10 at hand:        make rescore DATA=FOLDER
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported: torch has thousands that nobody imports here.
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
LOWEST := .venv-lowest
SOURCES := pyproject.toml constraints.txt $(wildcard src/ddh/*/*.[ch])

.PHONY: setup setup-dev demo test test-lowest lint lint-page docs docs-check notebooks rescore clean

# What ddh needs to run, and nothing else.
setup: $(RUNTIME)

# And what its tests, linters and documentation need.
setup-dev: $(DEV)

$(RUNTIME): $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit("ddh needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) -c constraints.txt "torch==2.13.0" -e .
	@touch $@

$(DEV): $(RUNTIME)
	$(BIN)/python $(INSTALL) -c constraints.txt -e ".[dev]"
	@touch $@

demo: setup
	$(BIN)/ddh demo

# A Ray cluster has many processes of its own, and little patience with their start: it comes first.
test: setup-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/cluster
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --ignore tests/cluster

# With the lowest versions that pyproject.toml declares: the tests of what needs no extra but faiss.
test-lowest:
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python $(INSTALL) -c constraints-lowest.txt "torch==2.13.0" -e ".[faiss]" \
	  hypothesis psutil pytest pytest-timeout pytest-xdist pyyaml
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest --numprocesses 2 --dist loadfile \
	  $(addprefix --ignore=tests/,bench cluster descriptors docs page serve)

lint: setup-dev lint-page
	$(BIN)/ruff check src tests examples docs/*.py
	$(BIN)/ruff format --check src tests examples docs/*.py
	$(BIN)/mypy

# Types (JSDoc, by tsc) and eslint of the web page; in CI they are required.
lint-page:
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory -s page-checks/node_modules && npm --prefix page-checks run --silent check; \
	elif [ "$$CI" = true ]; then echo "npm is missing: the checks of the page need it" >&2; exit 1; \
	else echo "npm is missing: the checks of the page are skipped"; fi

page-checks/node_modules: page-checks/package-lock.json
	npm --prefix page-checks ci --silent --no-audit --no-fund
	@touch $@

# The command line reference, and the site in build/site.
docs: setup-dev
	$(BIN)/python docs/reference.py docs/cli.md
	$(BIN)/mkdocs build --quiet --strict

docs-check: setup-dev
	$(BIN)/mkdocs build --quiet --strict

# Codes of CIFAR-10 from the weights that travel with the repository, learned without labels.
DATA ?= data
rescore: setup
	$(BIN)/ddh bench table2 --data $(DATA) --backbone auto --weights weights/cifar10-resnet18.safetensors \
	  --methods DDH --output rescore

notebooks: setup
	$(BIN)/python examples/make_notebooks.py

clean:
	rm -rf $(VENV) page-checks/node_modules $(LOWEST) build demo-output src/ddh/*/*.so
