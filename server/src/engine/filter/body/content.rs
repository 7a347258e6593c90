//! The content of a filter: its keys and its bits, and the rate that they make.

use crate::filter::{
    exchange::ForeignBits,
    format::Rates,
    scaling::{Fill, Layers},
    sizing,
};

/// The content of the shards of a filter.
pub struct Content<'a> {
    pub keys_added: u64,
    pub bits_set: u64,
    pub fill_ratio: f64,
    pub layout: LayoutContent<'a>,
}

/// The basis of the expected rate, for each layout.
pub enum LayoutContent<'a> {
    Shards(&'a dyn Rates),
    Foreign {
        parts: &'a ForeignBits,
        bits: Vec<u64>,
    },
    Layers {
        layers: &'a Layers,
        fills: Vec<Fill>,
    },
}

impl Content<'_> {
    /// Returns the expected false-positive rate. For the layout of another program it can take
    /// milliseconds to compute.
    pub fn false_positive_rate(&self) -> f64 {
        match &self.layout {
            LayoutContent::Shards(format) => {
                sizing::false_positive_rate_at_fill(*format, self.fill_ratio)
            }
            LayoutContent::Foreign { parts, bits } => parts.false_positive_rate_at_fill(bits),
            LayoutContent::Layers { layers, fills } => {
                layers.false_positive_rate_at_fill(fills.iter().copied())
            }
        }
    }

    /// Returns the expected number of distinct keys; `None` if all bits are set.
    pub fn estimated_keys(&self) -> Option<f64> {
        match &self.layout {
            LayoutContent::Shards(format) => sizing::keys_at_fill(*format, self.fill_ratio),
            LayoutContent::Foreign { parts, bits } => parts.keys_at_fill(bits),
            LayoutContent::Layers { layers, fills } => layers.keys_at_fill(fills.iter().copied()),
        }
    }
}
