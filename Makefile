# Two commands do everything on a machine that has Python 3.11 to 3.13 and make:
#   make demo   run the main job on the embedded lake
#   make test   run the tests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
TESTERS ?= 2  # parallel test processes; each starts its own Spark
TESTS   ?=    # folders or files for `make test` and `make soak`; by default all

# The tests start hundreds of processes. If this is set, each compiles everything it imports and takes three times as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test docs lint check soak proof mutants bench bench-slopes bench-limits bench-metadata bench-extremes bench-scan bench-dml bench-compaction bench-append tools lock lowest clean

demo: $(READY)
	$(BIN)/neve demo

test: $(READY)
	$(BIN)/pytest -q -n $(TESTERS) --dist loadfile --no-loadscope-reorder $(TESTS)

# Build the site in site/. Fails on a broken link or anchor, a public name that is missing in the reference, or an example
# that prints something else than the page shows.
docs: $(READY)
	PYTHONPATH=. $(BIN)/python docs/_build/tables.py
	NEVE_PROOF=all $(BIN)/pytest -q tests/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(READY)
	$(BIN)/ruff check neve tests bench docs/_build
	$(BIN)/ruff format --check neve tests bench docs/_build
	$(BIN)/mypy

check: lint test

# The same tests with new random examples, every DML case in both modes on every version, 20,000 random conditions judged
# by Arrow and by Spark, and many rounds of compactions with concurrent writers.
soak: $(READY)
	HYPOTHESIS_PROFILE=search NEVE_CASES=all NEVE_ROUNDS=100 $(BIN)/pytest -q -n $(TESTERS) --dist loadfile --no-loadscope-reorder $(TESTS)

# Every guarantee of docs/guarantees.md: crashes, power cuts, failing disks, lost answers, interleavings, concurrent
# processes, random histories. Ends with a table of what was tried. An interrupted run continues where it stopped.
proof: export NEVE_PROOF := all
proof: export NEVE_LEDGER := $(CURDIR)/.cache/proof.jsonl
proof: $(READY)
	$(BIN)/python -m tests.proof.resumable_runs $(NEVE_LEDGER)
	$(BIN)/pytest -q -n $(TESTERS) --dist loadgroup --no-loadscope-reorder tests/proof tests/test_writers.py tests/hostile tests/peers \
		tests/report tests/run/spark/test_write_attempts.py; \
	$(BIN)/python -m tests.proof.resumable_runs $(NEVE_LEDGER) $$?

# Change the code that commits, plans and deletes in one place at a time, and run the tests that cover the place: they must
# notice. Records first which tests cover what. An interrupted run continues; `ONLY=neve/commit` tries a part.
MUTANTS := .cache/mutants
mutants: $(READY) $(MUTANTS)/recorded
	$(BIN)/python -m tests.mutants $(MUTANTS) $(ONLY)

$(MUTANTS)/recorded:
	rm -rf $(MUTANTS) && mkdir -p $(MUTANTS)
	-NEVE_COVERING=$(MUTANTS) $(BIN)/pytest -q -n $(TESTERS) --dist loadfile --no-loadscope-reorder -p tests.mutants.covering_tests \
		tests --ignore tests/docs --ignore tests/cli --ignore tests/report
	touch $@

# Compare Névé with other engines; SCALE=1 is six million rows. Writes docs/benchmarks.md with its chart and data.
SCALE ?= 1
bench: $(READY)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-bench.lock
	$(BIN)/python -m bench.comparison --scale $(SCALE)

# Run the eight most telling jobs on a table five times as large, and add to the page how their costs grow. Needs the data
# that `make bench` wrote.
bench-slopes: $(READY)
	$(BIN)/python -m bench.comparison --scale 5 --jobs telling --engines neve,spark --rounds 1 --slopes

# Check the limits of each part, as ratios to PyIceberg and to bare Spark. Fails if one is missed.
bench-limits: bench-metadata bench-extremes bench-scan bench-dml bench-compaction

bench-metadata: $(READY)
	$(BIN)/python -m bench.metadata
	$(BIN)/python -m bench.tree
	$(BIN)/python -m bench.grown_trees
	$(BIN)/python -m bench.report

# Long histories, huge rows, long conditions: seconds and memory.
bench-extremes: $(READY)
	$(BIN)/python -m bench.extremes

bench-scan: $(READY)
	$(BIN)/python -m bench.scan

bench-dml: $(READY)
	$(BIN)/python -m bench.dml
	$(BIN)/python -m bench.dml memory

bench-compaction: $(READY)
	$(BIN)/python -m bench.compaction

# Print what each step of an append costs.
bench-append: $(READY)
	$(BIN)/python -m bench.append

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info[:2] < (3, 14) else "Névé needs Python 3.11 to 3.13; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	touch $(READY)

# Run a project of dbt and a notebook with %sql on an attached lake, in an environment of their own.
tools: $(READY)
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) .venv-tools
	$(BIN)/uv pip install --quiet --python .venv-tools/bin/python --require-hashes -r requirements-tools.lock
	$(BIN)/uv pip install --quiet --python .venv-tools/bin/python --no-deps -e .
	.venv-tools/bin/pytest -q --noconftest -p no:warnings tests/session_catalog/test_dbt.py
	.venv-tools/bin/pytest -q --noconftest -p no:warnings tests/session_catalog/test_sql_magic.py

# Pin all dependencies again, for all platforms and Python versions.
lock:
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --extra dev pyproject.toml -o requirements.lock
	printf 'pysail>=0.7.2,<0.8\npolars>=2.1,<3\n' | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate - -o requirements-bench.lock
	echo 'pytest>=8.4' | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --extra tools pyproject.toml - -o requirements-tools.lock
	echo 'uv' | $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate - -o requirements-uv.lock

# Run the tests on the lowest versions that pyproject.toml allows, in a separate environment.
lowest: $(READY)
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) .venv-lowest
	$(BIN)/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct -e '.[dev]'
	.venv-lowest/bin/pytest -q

clean:
	rm -rf $(VENV) .venv-lowest .pytest_cache .mypy_cache .ruff_cache lake
