//! Finding what was probably meant.

pub(crate) use telecine_pipeline::did_you_mean;
