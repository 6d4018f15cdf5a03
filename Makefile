# Two commands do everything on a machine that has Python 3.11 to 3.13 and make:
#   make demo   run the main job on the embedded lake
#   make test   run the tests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
TESTERS ?= 2  # test processes side by side; each has a Spark of its own
TESTS   ?=    # folders or files for `make test` and `make soak`; all of them unless told

# Hundreds of processes start in the tests: each would compile all it imports where this is set, three times as slow.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test docs lint check soak proof bench bench-limits bench-metadata bench-scan bench-dml bench-compaction lock lowest clean

demo: $(READY)
	$(BIN)/neve demo

test: $(READY)
	$(BIN)/pytest -q -n $(TESTERS) --dist loadfile --no-loadscope-reorder $(TESTS)

# The site in site/. Fails on a broken link or anchor, a name that is not in the reference, or an example that prints
# something else than the page says.
docs: $(READY)
	PYTHONPATH=. $(BIN)/python docs/_build/tables.py
	NEVE_PROOF=all $(BIN)/pytest -q tests/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(READY)
	$(BIN)/ruff check neve tests bench docs/_build
	$(BIN)/ruff format --check neve tests bench docs/_build
	$(BIN)/mypy

check: lint test

# The same tests with examples nobody has tried yet, every DML case in both modes on every version, and many rounds of
# compactions beside other writers.
soak: $(READY)
	HYPOTHESIS_PROFILE=search NEVE_CASES=all NEVE_ROUNDS=100 $(BIN)/pytest -q -n $(TESTERS) --dist loadfile --no-loadscope-reorder $(TESTS)

# Every promise of docs/guarantees.md: crashes, power cuts, failing disks, lost answers, interleavings, crowds of
# processes, random lives. Ends with a table of what was tried. One that was stopped goes on where it was.
proof: export NEVE_PROOF := all
proof: export NEVE_LEDGER := $(CURDIR)/.cache/proof.jsonl
proof: $(READY)
	$(BIN)/python -m tests.proof.resumable_runs $(NEVE_LEDGER)
	$(BIN)/pytest -q -n $(TESTERS) --dist loadgroup --no-loadscope-reorder tests/proof tests/test_writers.py tests/hostile tests/peers \
		tests/report tests/run/spark/test_write_attempts.py; \
	$(BIN)/python -m tests.proof.resumable_runs $(NEVE_LEDGER) $$?

# Névé beside other engines; SCALE=1 is six million rows. Writes docs/benchmarks.md with its picture and data.
SCALE ?= 1
bench: $(READY)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-bench.lock
	$(BIN)/python -m bench.comparison --scale $(SCALE)

# What was promised of each part, as ratios to PyIceberg and to bare Spark. Fails when one is missed.
bench-limits: bench-metadata bench-scan bench-dml bench-compaction

bench-metadata: $(READY)
	$(BIN)/python -m bench.metadata
	$(BIN)/python -m bench.tree
	$(BIN)/python -m bench.grown

bench-scan: $(READY)
	$(BIN)/python -m bench.scan

bench-dml: $(READY)
	$(BIN)/python -m bench.dml
	$(BIN)/python -m bench.dml memory

bench-compaction: $(READY)
	$(BIN)/python -m bench.compaction

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info[:2] < (3, 14) else "Névé needs Python 3.11 to 3.13; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	touch $(READY)

# Pin everything anew for all platforms and Python versions.
lock:
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --extra dev pyproject.toml -o requirements.lock
	echo 'pysail>=0.7.2,<0.8' | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate - -o requirements-bench.lock
	echo 'uv' | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate - -o requirements-uv.lock

# The tests on the lowest versions pyproject.toml claims, in an environment of their own.
lowest: $(READY)
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) .venv-lowest
	$(BIN)/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct -e '.[dev]'
	.venv-lowest/bin/pytest -q

clean:
	rm -rf $(VENV) .venv-lowest .pytest_cache .mypy_cache .ruff_cache lake
