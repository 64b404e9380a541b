# Everything the project needs is installed by these targets into .venv; a second call finds the stamp and starts at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# An editable install knows the modules by name: where there are others, it is made anew.
STAMP := $(VENV)/.installed-$(shell find src -name '*.py' | LC_ALL=C sort | cksum | cut -d' ' -f1)

.PHONY: intel-opencl clients demo test lint types bench docs-check clean help
help:
	@echo "make demo    a comparison on emulated GPUs, with an HTML report (no GPU, no data needed)"
	@echo "make test    linters, types, import contracts and all tests"
	@echo "make bench   every benchmark of benchmarks/, as JSON (needs the data folder)"

SOURCES := CMakeLists.txt $(wildcard src/gpuloom/kernels/csrc/*.[ch])

$(STAMP): pyproject.toml $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gpuloom needs Python 3.11 or newer"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "python3 cannot create a virtual environment: install your system's python3-venv package"; exit 1; }
	@echo "installing gpuloom into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/gpuloom demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $$(find src tests benchmarks -name "*.[ch]")
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

# A real OpenCL device and a real browser for the tests; without them some are skipped, and say so.
PACKAGES := $(VENV)/.packages
$(PACKAGES): $(STAMP) tests/install-packages.sh
	@sh tests/install-packages.sh
	@touch $@

# A second OpenCL runtime, from PyPI, without root: 700 MB. Then: GPULOOM_TEST_INTEL_OPENCL=.venv-intel-opencl make test
intel-opencl: .venv-intel-opencl/.installed
.venv-intel-opencl/.installed:
	@$(PYTHON) -m venv .venv-intel-opencl
	@.venv-intel-opencl/bin/python -m pip install --quiet --disable-pip-version-check intel-opencl-rt intel-cmplr-lib-rt
	@touch $@
	@echo "GPULOOM_TEST_INTEL_OPENCL=$(CURDIR)/.venv-intel-opencl"

# PyTorch for the tests of its example: apart, since nothing else imports it and some builds of it are large.
TORCH := $(VENV)/.torch
$(TORCH): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 || echo "no PyTorch: its tests are skipped"
	@touch $@

# Programs and headers of others for the tests of the stand-ins (12 MB): apart, since they want versions of their own.
CLIENTS := .venv-clients/.installed
clients: $(CLIENTS)
$(CLIENTS): tests/clients/requirements.txt
	@$(PYTHON) -m venv .venv-clients
	@.venv-clients/bin/python -m pip install --quiet --disable-pip-version-check --retries 1 -r $< && touch $@ || \
	    echo "no clients of others: their tests are skipped"

test: lint types $(PACKAGES) $(TORCH) $(CLIENTS)
	$(BIN)/python -m pytest -n 2 --dist loadgroup

bench: $(STAMP) $(TORCH)
	$(BIN)/python benchmarks/run_all.py

# The links, paths and names in the documents; `make test` has it too.
docs-check: $(STAMP)
	$(BIN)/python -m pytest tests/test_docs.py

clean:
	rm -rf $(VENV) .venv-intel-opencl .venv-clients build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
