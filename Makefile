# volhold: what a person types. Each target brings what it needs on a fresh Debian or Ubuntu (as root); Rust is not
# downloaded, but said how to get.
#
#   make demo     a volume from blank to an open gate, then the two incidents that volhold exists for
#   make test     every test, with real block devices and a real etcd (root)
#   make check    formatting, lints, dependencies
#   make build    the program alone, in target/release below the build folder

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test check build packages mutants

# Outside of the clone: a build as root must not leave files there that its owner cannot remove.
CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/volhold/target
export CARGO_TARGET_DIR

# Puts a cargo that is new enough first on the path, or says how to get one.
RUST = found=$$(tests/rust.sh); eval "$$found"

help:
	@sed -n 's/^#   //p' Makefile

packages:
	@tests/packages.sh

demo: packages
	@$(RUST); tests/demo/demo.sh

# One test binary after the other, and few tests at a time: loop devices and two cores are shared. The agent that can be told
# to kill itself is a build of its own (of this crate only), for the tests that need it.
test: packages
	@if [ "$$(id -u)" != 0 ]; then echo "make test needs root: it makes loop devices, filesystems and mounts" >&2; exit 1; fi
	@$(RUST); cargo test --locked -- --test-threads=$${VOLHOLD_TEST_THREADS:-4}
	@$(RUST); cargo test --locked --features fault-points --test it -- crash:: --test-threads=$${VOLHOLD_TEST_THREADS:-4}

check: packages
	@$(RUST); cargo fmt --all --check
	@$(RUST); cargo clippy --locked --all-targets -- -D warnings
	@$(RUST); cargo clippy --locked --no-default-features -- -D warnings
	@$(RUST); tests/deny.sh

build: packages
	@$(RUST); cargo build --locked --release

# Applies each deliberate bug of tests/mutants and demands that its test goes red.
mutants: packages
	@$(RUST); tests/mutants/run.sh
