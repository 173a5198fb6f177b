//! Tests of the built program against real parts: loop devices, mkfs, e2fsck, libblkid, etcd. One binary, one module for
//! each room or incident. They need root; without it each says so and does nothing (`.ci/run` refuses to run as anybody else).
#![allow(clippy::disallowed_methods, reason = "the tests make and break what they like")]

mod act;
mod architecture;
mod aws;
mod beside;
mod cli;
mod common;
mod container;
mod crash;
mod dashboard;
mod decide_corpus;
mod device;
#[cfg(feature = "aws")]
mod ebs;
mod etcd;
mod faults;
mod gate;
mod gate_flow;
mod grow;
mod http;
mod incidents_a;
mod incidents_b;
mod incidents_c;
mod incidents_d;
mod install;
mod layers;
mod lives;
mod manual;
mod metrics;
mod mutants;
#[cfg(not(feature = "aws"))]
mod no_ebs;
mod orders;
mod plan;
mod plan_ways;
mod probe;
mod reasons;
mod record;
mod run_time;
mod sandbox;
mod signatures;
mod subdir;
mod systemd;
mod telling;
mod uniform;
#[cfg(feature = "aws")]
mod unseen;
mod version_path;
mod watchdog;
mod watching;
mod xfs;
