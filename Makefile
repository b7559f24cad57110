# Every target works on a fresh checkout with a Rust toolchain, Python 3 with pip, and access to the package registries.
#
# Binary, demo, tests and benches are all built in the release profile and in invocations that select a dev target, so
# that they share one build of the dependencies; clippy and doc share the check build.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
DEMO := target/release/examples/demo
PROGRAM := --bin pointsman --example demo

EVAL_DATA ?= ../shared/data
EVAL = target/release/pointsman report --plan docs/eval/plan.toml --published docs/eval/published.toml $(EVAL_FLAGS)

.PHONY: help setup build demo eval test test-llm check lint doc bench bench-build recall deny soak fuzz clean-runtime

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  %-14s %s\n", $$1, $$2 }'

setup: ## Put the pinned ONNX Runtime under .runtime/ (does nothing when it is there)
	scripts/setup-onnxruntime

build: ## Build the program in release: target/release/pointsman
	$(CARGO) build --release --locked $(PROGRAM)

demo: setup build ## Start a server with sample tools, route ten utterances, print a table
	$(DEMO)

# Interrupted, it goes on where it stopped. The samples' page does not overwrite the one about whole sets.
eval: setup build ## Score the labelled sets in EVAL_DATA, else the samples; EVAL_FLAGS="--limit 50" draws rows
	@if [ -d "$(EVAL_DATA)" ]; then \
	    set -x; $(EVAL) --made-by "make eval" --sets "$(EVAL_DATA)" --out docs/EVALUATION.md; \
	else \
	    set -x; $(EVAL) --made-by "make eval" --sets examples/eval --keep target/eval/samples --out target/eval/EVALUATION.md; \
	fi

# The documentation's examples come first: the last lines are then the test runner's summary.
test: setup ## Run all tests (cargo-nextest where it is installed)
	$(CARGO) test --release --locked --doc
	@if $(CARGO) nextest --version >/dev/null 2>&1; then \
	    set -x; $(CARGO) nextest run --release --locked; \
	else \
	    set -x; $(CARGO) test --release --locked --lib --bins --tests; \
	fi

soak: setup ## Drive the gate with random interleavings for longer
	POINTSMAN_SOAK=1 $(CARGO) test --release --locked --test it -- --nocapture interleavings

# Needs a nightly toolchain and `cargo install cargo-fuzz`. New inputs stay in fuzz/corpus; the test over the corpus is
# part of `make test`.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS = import_native import_flat import_openai import_anthropic import_mcp import_openapi schema

fuzz: setup ## Fuzz every importer and the schema normaliser, FUZZ_SECONDS each
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { echo "cargo-fuzz is missing: cargo install cargo-fuzz --locked"; exit 1; }
	@for target in $(FUZZ_TARGETS); do \
	    set -x; $(CARGO) +nightly fuzz run $$target fuzz/corpus/$${target#import_} -- -max_total_time=$(FUZZ_SECONDS) -timeout=10; \
	    { set +x; } 2>/dev/null; \
	done

# A script beside the checkout starts a small model where its packages can be had: it ends with 3 where they cannot.
LLM_SCRIPT ?= ../shared/tools/local-llm
LLM_CACHE ?= $(HOME)/.cache/local-llm
LLM_PORT ?= 18080
TEST_LLM = $(CARGO) test --release --locked --test it -- --ignored --nocapture --exact \
           real_llm::a_real_model_routes_within_the_rules

test-llm: setup ## Route with a real model: one of its own, or POINTSMAN_TEST_LLM_URL and _MODEL
	@if [ -n "$${POINTSMAN_TEST_LLM_URL:-}" ]; then \
	    set -x; $(TEST_LLM); \
	elif [ ! -e "$(LLM_SCRIPT)" ]; then \
	    echo "skipped: $(LLM_SCRIPT) is not there; name an endpoint in POINTSMAN_TEST_LLM_URL"; \
	else \
	    status=0; stop=; \
	    curl -fsS "http://127.0.0.1:$(LLM_PORT)/health" >/dev/null 2>&1 || stop=yes; \
	    trap '[ -z "$$stop" ] || "$(LLM_SCRIPT)" "$(LLM_CACHE)" $(LLM_PORT) stop' EXIT; \
	    url=$$("$(LLM_SCRIPT)" "$(LLM_CACHE)" $(LLM_PORT) start) || status=$$?; \
	    if [ $$status = 3 ]; then echo "skipped: the packages of the model cannot be had"; exit 0; fi; \
	    [ $$status = 0 ] || exit $$status; \
	    set -x; POINTSMAN_TEST_LLM_URL="$$url" $(TEST_LLM); \
	fi

lint: ## Check formatting and clippy, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --all-targets --locked -- -D warnings

# Naming the examples selects dev-dependencies, as `lint` does; without it the dependencies are checked a second time.
doc: ## Build the API documentation, warnings denied: target/doc/pointsman/index.html
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --no-deps --locked --lib --examples

check: lint doc test ## Everything a change has to pass: lint, doc, test

bench-build: ## Compile the benches
	$(CARGO) bench --locked --no-run

bench: setup ## Run the benches; BENCH=prefilter runs one
	$(CARGO) bench --locked $(if $(BENCH),--bench $(BENCH),--benches)

recall: setup ## Measure the graph's recall: make recall SETS=folder of labelled sets
	$(CARGO) run --release --locked --example recall -- $(SETS)

deny: ## Check licences, banned crates and sources (needs cargo-deny)
	$(CARGO) deny --locked check licenses bans sources

clean-runtime: ## Remove the downloaded ONNX Runtime
	rm -rf .runtime
