# make demo: a virtual environment, vtkit in it, and the quickstart recipe.
# make test: the environment with the test extras, one with transformers 4.57 (of its own, but for torch and numpy), and
# the whole test suite.
# make docs: the documentation as a site. make wheel: the wheel, in an environment with nothing else.

VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
OLDER := .venv-4.57
AXE := 4.14.1

.PHONY: demo test axe docs wheel benchmarks picture soak rehearsal clean

demo: $(VENV)/.installed
	$(BIN)/vtkit run recipes/quickstart.toml

test: $(VENV)/.installed-test $(OLDER)/.installed axe
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder
	VTKIT_BF16=1 OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m bf16 \
	  $$(grep -l mark.bf16 tests/test_*.py)

# axe-core checks the accessibility of pages in Chromium. Without npm or network these tests are skipped.
axe:
	@grep -qs '"version": "$(AXE)"' node_modules/axe-core/package.json || \
	if ! command -v npm > /dev/null; then echo "npm is not installed: pages are not checked with axe-core"; \
	else npm install --prefix . --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=silent --fetch-retries=0 \
	  --fetch-timeout=20000 axe-core@$(AXE) || echo "axe-core cannot be installed: pages are not checked with it"; fi

docs: $(VENV)/.installed-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

# From a folder beside the sources, so that nothing but the wheel can be imported.
wheel: $(VENV)/bin/python
	$(BIN)/python .ci/release.py
	rm -rf build/lib build/bdist* build/wheel build/clean
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel .
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	build/clean/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build/wheel/*.whl
	cd build/wheel && ../clean/bin/vtkit --version && ../clean/bin/vtkit run ../../recipes/quickstart.toml --dry-run

benchmarks: $(VENV)/.installed-test
	$(BIN)/python tests/benchmarks/sparse_head.py
	$(BIN)/python tests/benchmarks/training_step.py
	$(BIN)/python tests/benchmarks/training_data.py --passages 200000 --queries 20000 --examples 400000
	$(BIN)/python tests/benchmarks/query_encoding.py
	$(BIN)/python tests/benchmarks/serving.py $${VTKIT_DATA:-../shared}/models/minilm-splade-en
	$(BIN)/python tests/benchmarks/executors.py $${VTKIT_DATA:-../shared}/models/minilm-splade-en \
	  $${VTKIT_DATA:-../shared}/data/squad-en
	$(BIN)/python tests/benchmarks/mlm_loss.py
	$(BIN)/python tests/benchmarks/engines.py --depth 1000 --only exact scipy
	$(BIN)/python tests/benchmarks/engines.py --only exact bm25s splade-index
	$(BIN)/python tests/benchmarks/engines.py --documents 20000
	$(BIN)/python tests/benchmarks/sparse_weights.py
	$(BIN)/python tests/benchmarks/transfer.py
	$(BIN)/python tests/benchmarks/latent_units.py
	$(BIN)/python tests/benchmarks/expansion.py
	$(BIN)/python tests/benchmarks/vocabulary_training.py

# The picture in README: the first screen of a run's report page. Needs Chromium.
picture:
	chromium --headless=new --no-sandbox --hide-scrollbars --window-size=1000,985 --screenshot=docs/report.png \
	  file://$(abspath $(RUN))/report.html

# What kills, Ctrl-C, flipped bits and random input do to vtkit, about an hour; `make soak PARTS=kills` for some of it.
soak: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 $(BIN)/python tests/soak.py $(PARTS)

# Every shipped recipe as it ships, offline, out of a hub cache made of small files; `make rehearsal NAMES="korean_splade"`
# for some of them.
rehearsal: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 nice -n 10 $(BIN)/python -m tests.rehearsal $(NAMES)

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "vtkit needs Python 3.11 or later: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

# torch comes first and pinned, from the index that pip is set to. On Linux the public one adds gigabytes of CUDA: install
# the build for processors into $(VENV) first (README), and this step keeps it.
$(VENV)/.torch: $(VENV)/bin/python constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.installed-test: $(VENV)/.torch pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# Half a minute. The packages that tests/transformers-4.57.txt does not name are those of $(VENV), torch above all; vtkit
# is not among them, since the .pth file of its editable install is not followed.
$(OLDER)/.installed: tests/transformers-4.57.txt | $(VENV)/.installed-test
	$(BIN)/python -m venv --clear --without-pip $(OLDER)
	site=$$($(OLDER)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$site/shared.pth"
	$(BIN)/python -m pip --python $(OLDER)/bin/python install --quiet --disable-pip-version-check --no-deps \
		-r tests/transformers-4.57.txt
	touch $@

clean:
	rm -rf $(VENV) $(OLDER) runs build *.egg-info
