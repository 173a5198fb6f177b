# volhold: what a person types. Each target brings what it needs on a fresh Debian or Ubuntu (as root); Rust is not
# downloaded, but said how to get.
#
#   make demo     a volume from blank to an open gate, then the two incidents that volhold exists for
#   make test     every test, with real block devices and a real etcd (root)
#   make check    formatting, lints, dependencies
#   make build    the program alone, in target/release below the build folder
#   make packages a deb and an rpm for x86_64, in `packages` below the build folder
#   make test-packages   lints them; installs, upgrades, removes them on machines with a real systemd (root)
#   make reproducible    makes them twice and compares the bytes

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test check build packages test-packages reproducible tools mutants

# Outside of the clone: a build as root must not leave files there that its owner cannot remove.
CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/volhold/target
export CARGO_TARGET_DIR

# Puts a cargo that is new enough first on the path, or says how to get one.
RUST = found=$$(tests/rust.sh); eval "$$found"

help:
	@sed -n 's/^#   //p' Makefile

tools:
	@tests/packages.sh

demo: tools
	@$(RUST); tests/demo/demo.sh

# One test binary after the other, and few tests at a time: loop devices and two cores are shared. The agent that can be told
# to kill itself is a build of its own (of this crate only), for the tests that need it. Containers run apart: each has a copy
# of every mount of the machine for an instant when it starts, which keeps the others' devices busy. VOLHOLD_TEST_TIMES=2 runs
# what needs a whole machine twice.
test: tools
	@if [ "$$(id -u)" != 0 ]; then echo "make test needs root: it makes loop devices, filesystems and mounts" >&2; exit 1; fi
	@$(RUST); cargo test --locked -- --test-threads=$${VOLHOLD_TEST_THREADS:-4} --skip systemd:: --skip install::machine
	@$(RUST); for time in $$(seq $${VOLHOLD_TEST_TIMES:-1}); do \
	    cargo test --locked --test it -- --test-threads=$${VOLHOLD_TEST_THREADS:-4} systemd:: install::machine; done
	@$(RUST); cargo test --locked --features fault-points --test it -- crash:: watchdog::stalls --test-threads=$${VOLHOLD_TEST_THREADS:-4}

# With the SDK clippy looks on while the tests are built, as rustc does: `cargo clippy` would read all of the SDK once more, for
# no other use, which takes minutes and 7 GB.
check: tools
	@$(RUST); cargo fmt --all --check
	@$(RUST); cargo clippy --locked --no-default-features --all-targets -- -D warnings
	@$(RUST); RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__ \
		cargo test --locked --no-run
	@$(RUST); tests/deny.sh

build: tools
	@$(RUST); cargo build --locked --release

# One binary for every system from Debian 11 on: packaging/build.sh.
packages: tools
	@tests/packages.sh for-packages
	@$(RUST); packaging/build.sh

test-packages: tools
	@tests/packages.sh for-packages
	@$(RUST); tests/installed/run.sh $(PACKAGES)

# PACKAGES=--without-aws leaves out what takes longest to compile; it is for these two tests, and not for `make packages`.
reproducible: tools
	@tests/packages.sh for-packages
	@$(RUST); tests/installed/reproducible.sh $(PACKAGES)

# Applies each deliberate bug of tests/mutants and demands that its test goes red.
mutants: tools
	@$(RUST); tests/mutants/run.sh
