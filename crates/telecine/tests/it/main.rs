//! The binary as an operator meets it: arguments in, text and exit codes out.

mod commands;
mod demo;
mod media;
mod plan;
mod recipes;
mod steering;
mod telecine;
mod worker;
