# make env    the environment, .venv
# make demo   train on the embedded data set with and without curation, and print the scores
# make test   unit tests and contracts
# make test-all  these, tables of papers, killed commands, browsers, SPICE, tools, and whole trainings at length
# make test-changed  what test-all has beside test, of the rooms that the last 10 commits changed; ROOMS="tests/papers tests/tools", as CI
# make gpu-test  what a GPU alone can tell: the same losses, captions and bits, no step that waits
# make gpu-bench  those tests, then the speed of fine-tuning at the models' own sizes; at most 8 minutes
# make gpu-paper  those tests, then Table 2's ways of curation with three seeds at once; at most 8 minutes
# make families  every image-to-text family of transformers, and their table in docs/results/vlm.md
# make lint   style, formatting, spelling and types; make style leaves out the types, which take minutes
# make mutants  60 mutations of the product, each tried on the tests that evaluate it (the suite's time and half an hour)
# make cluster-test  runs under a Slurm that it starts; needs root and Debian's slurm-wlm slurmdbd munge mariadb-server;
#             then work over a Ray cluster of two nodes; needs the extra ray
# make server-test  captioning caption against transformers serve and llama.cpp, in an environment of their own, and a stand-in
# make fuzz   60,000 damaged files for every reader, and more for the tests of some (half an hour)
# make chaos  commands are killed and restarted, disks are full, clocks set back (an hour); disks need root
# make soak   six hours of training, sampled
# make bench  the benchmarks (minutes)
# make lock   constraints.lock, the tested packages with digests; make locked-env installs them and no other files
# make audit  known vulnerabilities of the tested packages
# make sbom   sbom.json, the installed packages in CycloneDX's format; make dist: wheel and source in dist, with it
# make docs   the site in build/site; a link that leads nowhere fails it
# make tables the pages of docs/results, from the records of runs
# The first three need Python 3.11 or newer and a package index, nothing else.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: env demo test cluster-test fuzz chaos soak lint bench

env: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, $(PYTHON) is %d.%d: make env PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-compile --editable ".[dev,offline,parser,augmentation]" --constraint constraints.txt
	@touch $(STAMP)

demo: env
	$(BIN)/captioning demo

# Python keeps what it compiles, even where a container forbids it: else each process of the tests would compile all.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

test: env
	$(PYTEST) -m "not long"

.PHONY: test-changed
test-changed: env
	@tests=$$($(BIN)/python -m tests.changed $(ROOMS)) && { [ -z "$$tests" ] || $(PYTEST) -m long $$tests; }

.PHONY: test-all
test-all: env
	$(PYTEST)

# Which of tests/mutations/mutations.json the suite kills, beside those of tests/mutations/baseline.json
.PHONY: mutants
mutants: env
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m tests.mutations.mutate run -- -m "not long"

.PHONY: gpu-test
gpu-test: env
	GPU_TESTS=1 $(BIN)/python -m pytest tests/captioning/gpu tests/augmentation/image_replacement/test_pictures_on_a_gpu.py tests/augmentation/writing/test_writer_on_a_gpu.py

# At most 8 minutes: the tests, then fine-tuning beside other trainers and plain code at the models' own sizes.
.PHONY: gpu-bench
gpu-bench:
	@$(BIN)/python -c "import torch; raise SystemExit(not torch.cuda.is_available() and 'make gpu-bench needs a GPU')"
	-GPU_TESTS=1 timeout 150 $(BIN)/python -m pytest -q tests/captioning/gpu
	-timeout 120 $(BIN)/python benchmarks/bench_pretrained.py --size full
	-timeout 200 $(BIN)/python benchmarks/bench_fine_tuning.py --size full --device cuda --photos 32 --epochs 3 --ways trl-compact trainer ours --captions 1 5 --words 150 --record gpu-fine-tuning.json

# At most 8 minutes: the tests, then Table 2's ways of curation on Flickr8k's photos and COCO's pool, three seeds at once.
# A second call continues what the first did not end; `captioning record runs/gpu` keeps what was measured.
.PHONY: gpu-paper
gpu-paper:
	@$(BIN)/python -c "import torch; raise SystemExit(not torch.cuda.is_available() and 'make gpu-paper needs a GPU')"
	-GPU_TESTS=1 timeout 120 $(BIN)/python -m pytest -q tests/captioning/gpu
	-timeout 40 $(BIN)/captioning paper data_curation retrieval --scale flickr8k --run --runs runs/gpu --rows near_none --seeds 0
	-timeout 300 $(BIN)/captioning paper data_curation --scale flickr8k --run --runs runs/gpu --jobs 12 --per-gpu 12 --seeds 0,1,2 --rows near_none near_remove_10 flickr30k_replace_caption_10 near_caption_40
	$(BIN)/captioning paper data_curation retrieval --scale flickr8k --runs runs/gpu --records runs/gpu

.PHONY: families
families: env
	EVERY_FAMILY=1 $(BIN)/python -m pytest --numprocesses auto --dist load tests/contracts/test_families.py
	$(BIN)/python -m tests.families.table

cluster-test: env
	CLUSTER_TESTS=1 CLUSTER_RECORD=docs/results/records/cluster.jsonl $(BIN)/python -m pytest tests/cluster/test_slurm.py tests/cluster/test_ray.py --durations=0
	$(BIN)/python -m tests.cluster.page

# Servers and what they need, in an environment of their own that sees the project's; the table in docs/guides/servers.md
.PHONY: server-test
SERVER_PACKAGES := fastapi==0.163.2 uvicorn==0.54.0 opentelemetry-api==1.45.2 openai==3.51.0 gguf==0.19.0 xllamacpp==2026.10.11549
server-test: env
	@test -x .venv/servers/bin/python || { $(BIN)/python -m venv .venv/servers && \
	  $(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $$(echo .venv/servers/lib/python*/site-packages)/project.pth; }
	.venv/servers/bin/python -m pip install --disable-pip-version-check --quiet $(SERVER_PACKAGES)
	$(BIN)/python -m tests.servers

# Their records and docs/concepts/reliability.md
fuzz: env
	DAMAGED_FILES=2000 $(BIN)/python -m pytest -q tests/captioning/data/test_fuzz_readers.py tests/captioning/data/features/test_importing.py tests/captioning/data/features/test_lmdb_file.py
	$(BIN)/python -m tests.fuzz --record docs/results/records/fuzz.jsonl; status=$$?; $(BIN)/python -m tests.chaos.page; exit $$status

chaos: env
	$(BIN)/python -m tests.chaos --record docs/results/records/chaos.jsonl; status=$$?; $(BIN)/python -m tests.chaos.page; exit $$status

soak: env
	$(BIN)/python benchmarks/soak.py; status=$$?; $(BIN)/python -m tests.chaos.page; exit $$status

.PHONY: style
style: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

lint: style
	$(BIN)/pyright --threads

.PHONY: lock locked-env audit sbom dist
lock: env
	$(BIN)/python .ci/lock.py constraints.txt > .venv/constraints.lock
	mv .venv/constraints.lock constraints.lock

locked-env:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes --no-deps --requirement constraints.lock
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip check
	@touch $(STAMP)

# In an environment of its own, as it brings two dozen packages.
AUDIT := .venv/audit/bin
audit: env
	@test -x $(AUDIT)/pip-audit || { $(BIN)/python -m venv .venv/audit && $(AUDIT)/python -m pip install --disable-pip-version-check --quiet pip-audit==2.10.1; } || echo "pip-audit could not be installed"
	$(BIN)/python .ci/audit.py $(AUDIT)/pip-audit constraints.txt

sbom: env
	$(BIN)/python .ci/sbom.py > .venv/sbom.json
	mv .venv/sbom.json sbom.json

dist: sbom
	$(BIN)/python -m pip wheel --disable-pip-version-check --quiet --no-deps --no-build-isolation --wheel-dir dist .
	$(BIN)/python -c 'import setuptools.build_meta as build; build.build_sdist("dist")'
	cp sbom.json dist/

# In an environment of its own, too: sources are read as text, so none of the project's packages are needed.
SITE := .venv/docs/bin
.PHONY: docs docs-env reference
reference:  # docs/reference/commands.md and configs.md
	$(BIN)/python .ci/docs_reference.py

docs-env:
	@test -x $(SITE)/mike || { $(PYTHON) -m venv .venv/docs && \
	  $(SITE)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' > .venv/docs/packages.txt && \
	  $(SITE)/python -m pip install --disable-pip-version-check --quiet --requirement .venv/docs/packages.txt --constraint constraints.txt; }

docs: docs-env
	NO_MKDOCS_2_WARNING=1 $(SITE)/mkdocs build --strict

# These need more: photos or data (bench_features.py, bench_app.py, bench_caption.py, bench_check.py, bench_well_formedness.py), other
# packages (bench_libraries.py), or a GPU (bench_full_size.py, bench_stable_diffusion.py).
NEED_MORE := $(addprefix %/bench_,features.py app.py caption.py check.py well_formedness.py libraries.py full_size.py stable_diffusion.py)
bench: env
	@set -e; for script in $(filter-out $(NEED_MORE),$(wildcard benchmarks/bench_*.py)); do \
		echo "== $$script"; $(BIN)/python $$script; done

# docs/results/*.md from the records of runs; see docs/results/README.md
TABLE := $(BIN)/captioning table
RECORDS := docs/results/records
SCORES := BLEU-1 BLEU-4 METEOR ROUGE-L CIDEr-D
FOUND := detection.auc@1 detection.auc@2 detection.auc@3 detection.precision_at_noise_rate@3 detection.precision@1 detection.precision@2 detection.precision@3

.PHONY: tables
tables: env
	$(TABLE) $(RECORDS)/flickr8k.jsonl --only updown_small-none-none --group model.name --metrics $(SCORES) timing.captions_per_second > docs/results/flickr8k.md
	$(BIN)/python -m tests.front_page
	$(TABLE) $(RECORDS)/own.jsonl --group start_from num_epochs --metrics $(SCORES) --into docs/tutorials/own_photos.md
	@set -e; for data in flickr8k miniworld; do for noise in swap20 none; do \
	  against=; [ $$data-$$noise != flickr8k-swap20 ] || against="--against track"; \
	  runs="$(RECORDS)/$$data.jsonl --only updown_micro-$$noise-*"; set -f; \
	  $(TABLE) $$runs --group curation.name --metrics $(SCORES) $$against > docs/results/noise_$${data}_$$noise.md; \
	  [ $$noise = none ] || $(TABLE) $$runs --group curation.name --metrics $(FOUND) > docs/results/found_$${data}_$$noise.md; \
	done; done
	@set -e; for data in flickr8k flickr8k_2000 flickr8k_one miniworld; do $(BIN)/python tools/studies/study_curation.py --data $$data --report; done
	$(BIN)/python tools/studies/study_mending.py --report
	$(BIN)/python tools/studies/models_report.py
	@set -e; for paper in $(notdir $(wildcard papers/*)); do \
	  $(BIN)/captioning paper $$paper --page docs/papers/$$paper.md; done
	$(BIN)/captioning paper list --effects > docs/papers/effects.md
