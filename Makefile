# Everything a newcomer needs:  make demo   make test   make lint   make docs
# With CIFAR-10 at hand:        make rescore DATA=FOLDER
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported: torch has thousands that nobody imports here.
# What is compiled is kept: tests start hundreds of processes, and torch from its sources takes 4 s more.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
LOWEST := .venv-lowest
SOURCES := pyproject.toml constraints.txt $(wildcard src/ddh/*/*.[ch])

.PHONY: setup setup-dev demo test test-light test-lowest sanitize lint lint-page docs docs-check notebooks rescore clean

# What ddh needs to run, and nothing else: no torch.
setup: $(RUNTIME)

# And what its tests, linters and documentation need.
setup-dev: $(DEV)

$(RUNTIME): $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit("ddh needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) -c constraints.txt -e .
	@touch $@

$(DEV): $(RUNTIME)
	$(BIN)/python $(INSTALL) -c constraints.txt "torch==2.13.0" -e ".[dev]"
	@touch $@

demo: setup
	$(BIN)/ddh demo

# A Ray cluster has many processes of its own, and little patience with their start: it comes first.
# The others by file, those that take longest first (tests/conftest.py); three workers keep two cores
# busy, since some tests wait for servers and browsers.
WORKERS := --numprocesses 3 --dist loadfile --no-loadscope-reorder
test: setup-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/cluster
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(WORKERS) --ignore tests/cluster

# The wheel in an environment of its own, which holds nothing else, not even pip: with the web page it
# takes at most 500 MB, and there is no torch. Then with all kinds of pictures.
LIGHT := build/light
LIGHT_INSTALL := $(PYTHON) -m pip --python $(LIGHT)/venv $(subst -m pip,,$(INSTALL)) -c constraints.txt
test-light:
	rm -rf $(LIGHT) && $(PYTHON) -m venv --without-pip $(LIGHT)/venv
	$(LIGHT_INSTALL) ".[serve]"
	! $(LIGHT)/venv/bin/python -c "import torch" 2>/dev/null
	du -sm $(LIGHT)/venv && test "$$(du -sm $(LIGHT)/venv | cut -f1)" -le 500
	$(LIGHT_INSTALL) ".[serve,photos]"
	cd $(LIGHT) && PATH=$$PWD/venv/bin:$$PATH DDH_INDEX=$$PWD/photos.index DDH_CACHE=$$PWD/cache DDH_STATE=$$PWD/state \
	  python ../../tests/light_check.py

# With the lowest versions that pyproject.toml declares: the tests of what needs no extra but faiss.
test-lowest:
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python $(INSTALL) -c constraints-lowest.txt "torch==2.13.0" -e ".[faiss,train]" \
	  hypothesis psutil pytest pytest-timeout pytest-xdist pyyaml
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest $(WORKERS) \
	  $(addprefix --ignore=tests/,bench cluster descriptors docs page serve)

# The kernels built to stop at any access outside memory and any undefined behaviour: their tests,
# and random calls (DDH_FUZZ is their number).
SANITIZED := build/sanitized
KERNEL_TESTS := $(addprefix tests/,codes/test_hamming_bounds.py codes/test_hamming_fuzz.py \
  neighbours/test_neighbours_loops.py neighbours/test_loops_fuzz.py serve/test_names_fuzz.py)
sanitize: setup-dev
	rm -rf $(SANITIZED) && mkdir -p $(SANITIZED) && cp -r src/ddh $(SANITIZED) && rm -f $(SANITIZED)/ddh/*/*.so
	for kernel in codes/_hamming neighbours/_overlap serve/_names; do \
	  $(CC) -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -shared -fPIC \
	    -I$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_paths()['include'])") \
	    src/ddh/$$kernel.c -o $(SANITIZED)/ddh/$$kernel.so || exit 1; done
	LD_PRELOAD=$$($(CC) -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc OMP_NUM_THREADS=1 \
	  PYTHONPATH=$(SANITIZED) $(BIN)/python -m pytest -p no:cacheprovider $(KERNEL_TESTS)

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
# From ONNX: WEIGHTS=FILE.onnx, which `ddh export` has made of them.
DATA ?= data
WEIGHTS ?= weights/cifar10-resnet18.safetensors
rescore: setup-dev
	$(BIN)/ddh bench table2 --data $(DATA) --backbone auto --weights $(WEIGHTS) --methods DDH --output rescore

notebooks: setup-dev
	$(BIN)/python examples/make_notebooks.py

clean:
	rm -rf $(VENV) page-checks/node_modules $(LOWEST) build demo-output src/ddh/*/*.so
