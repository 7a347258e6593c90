//! `FilterService` and health, which tonic serves.

pub mod export;
pub mod filters;
pub mod health;
pub mod import;
