//! The binary as an operator meets it: arguments in, text and exit codes out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod afar;
mod apart;
mod claims;
#[path = "../../../pipeline/tests/it/clamd_server.rs"]
#[allow(dead_code, reason = "the pipeline's own tests use more of it")]
mod clamd_server;
mod clips;
mod commands;
mod demo;
mod deploy;
mod drain;
mod guarded_kafka;
mod intake;
mod kafka;
mod kafka_security;
#[path = "../../../connect/tests/it/kafka_server.rs"]
#[allow(dead_code, reason = "the tests of crates/connect use more of it")]
mod kafka_server;
mod killed;
mod media;
mod observability;
mod optimize;
mod plan;
#[path = "../../../queue/tests/it/postgres_server.rs"]
#[allow(dead_code, reason = "the queue's own tests use more of it")]
mod postgres_server;
mod recipes;
mod reconcile;
mod restore;
mod run;
mod runbook;
#[path = "../../../pipeline/tests/it/s3_server.rs"]
#[allow(dead_code, reason = "the pipeline's own tests use more of it")]
mod s3_server;
mod scan;
mod serve;
mod steering;
mod telecine;
mod upgrade;
#[path = "../../../media/tests/it/vips_helper.rs"]
mod vips_helper;
mod watch;
mod webhooks;
mod worker;
