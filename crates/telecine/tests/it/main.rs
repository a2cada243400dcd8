//! The binary as an operator meets it: arguments in, text and exit codes out.

mod clips;
mod commands;
mod demo;
mod intake;
mod media;
mod observability;
mod plan;
mod recipes;
mod run;
mod serve;
mod steering;
mod telecine;
mod watch;
mod webhooks;
mod worker;
