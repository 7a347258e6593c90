//! The status of a filter, its growth, its fill, its measured rate, and the explanation of a query.

mod explain;
mod fill;
mod growth;
mod measurement;
mod status;

pub use self::{
    explain::Explanation,
    fill::{CapacityWarning, FillWatch},
    growth::{Growth, History},
    measurement::LastMeasurement,
    status::{FilterStatus, LayersStatus, Outlook},
};
