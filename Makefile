# The only commands a newcomer needs. `make help` lists them.

SHELL := /usr/bin/env bash
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-ffmpeg-7 power-loss load drain-soak kafka-soak pooler-soak bench check schema

# Tools that scripts/setup puts beside the system's own.
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/telecine-tools
export PATH := $(TOOLS)/bin:$(HOME)/.cargo/bin:$(PATH)

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-13s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing (Debian; asks nothing)
	@scripts/setup

demo: setup ## a phone's clip becomes a film that plays in a browser
	cargo build --release --locked -p telecine -p telecine-vips
	@scripts/demo target/release/telecine

check: ## format, lints, dependencies: fast, nothing is run
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	@if command -v cargo-deny >/dev/null; then \
		echo "cargo deny check --hide-inclusion-graph bans licenses sources"; \
		cargo deny check --hide-inclusion-graph bans licenses sources; \
	else \
		echo "cargo-deny is not installed, its checks are left out (make setup installs it)" >&2; \
	fi
	scripts/check-deploy

# Built without optimisation, as the lints are: with it the build alone takes longer than building and testing without. Tests
# wait a good deal, so more of them than cores run at a time.
test: setup check ## everything that must hold before a change is merged
	cargo test --workspace --locked -- --test-threads=4

# Whatever starts FFmpeg, with the other version of it; `make test` runs the whole film with both.
FFMPEG_7_TESTS := whole:: video:: pictures:: progressive:: audio:: soundtrack:: remux:: verify:: images:: samples:: sandbox:: hostile::
test-ffmpeg-7: setup ## the media crate's tests with FFmpeg 7 in place of the installed one
	TELECINE_TEST_FFMPEG="$$(scripts/fetch-ffmpeg-7)" cargo test --locked -p telecine-media --test it -- $(FFMPEG_7_TESTS)

# In namespaces of its own, so that even a killed run leaves no mount, loop device or stopped process behind.
NAMESPACES := unshare --mount --pid --fork --kill-child --mount-proc
power-loss: setup ## what a loss of power leaves of acknowledged pushes (a minute; for root, who may mount disk images)
	$(if $(filter 0,$(shell id -u)),$(NAMESPACES)) cargo test --release --locked -p telecine-queue --test it -- --ignored power_loss

load: setup ## 200 runs a second for a minute while others watch; every event is counted
	cargo test --release --locked -p telecine-server --test it -- --ignored load:: --nocapture

drain-soak: setup ## two workers are asked to leave every ten seconds, for two minutes on each database
	cargo test --locked -p telecine --test it -- --ignored drain:: --nocapture --test-threads 1

pooler-soak: setup ## the queue's storms behind pgbouncer
	cargo test --locked -p telecine-queue --test it -- --ignored bouncer::

schema: ## renew the committed dumps of the schema after adding a migration
	TELECINE_RENEW_SCHEMA=1 cargo test --locked -p telecine-queue --test it -- schema

# Three minutes on two cores.
kafka-soak: setup ## 5,000 requests of Kafka through five kills -9 and a broker's: each one run, one result
	TELECINE_TEST_KAFKA_RECORDS=5000 cargo test --locked -p telecine --test it -- --nocapture kafka::nothing_is_lost

bench: setup ## figures of push, drain and pickup on both databases, of requests of Kafka, and of a ladder of rungs
	cargo bench --locked -p telecine-queue --bench queue
	cargo bench --locked -p telecine-connect --bench kafka
	cargo bench --locked -p telecine-media --bench ladder
	cargo bench --locked -p telecine-media --bench images
