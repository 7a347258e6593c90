//! A list that stores one value inline and more values in one allocation.

use std::{
    mem,
    ops::{Deref, DerefMut},
};

/// A list that stores one value inline, so that it shares the cache line of its owner.
#[derive(Debug)]
pub enum OneOrMany<T> {
    /// One value, inline.
    One([T; 1]),
    /// No value, or several in a boxed slice.
    Many(Box<[T]>),
}

impl<T> OneOrMany<T> {
    /// Appends values, and allocates anew.
    pub fn extend(&mut self, more: impl IntoIterator<Item = T>) {
        *self = mem::take(self).into_iter().chain(more).collect();
    }

    fn into_iter(self) -> impl Iterator<Item = T> {
        let values: Box<[T]> = match self {
            Self::One(one) => Box::new(one),
            Self::Many(many) => many,
        };
        values.into_iter()
    }
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self::Many(Box::default())
    }
}

impl<T> FromIterator<T> for OneOrMany<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        match <[T; 1]>::try_from(Vec::from_iter(values)) {
            Ok(one) => Self::One(one),
            Err(many) => Self::Many(many.into()),
        }
    }
}

impl<T> Deref for OneOrMany<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Self::One(one) => one,
            Self::Many(many) => many,
        }
    }
}

impl<T> DerefMut for OneOrMany<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::One(one) => one,
            Self::Many(many) => many,
        }
    }
}
