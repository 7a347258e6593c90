//! One value without an allocation, or several in one.

use std::{
    mem,
    ops::{Deref, DerefMut},
};

/// One value, beside what it belongs to, so that both come to a core together; or several.
#[derive(Debug)]
pub enum OneOrMany<T> {
    /// One.
    One([T; 1]),
    /// Several, or none.
    Many(Box<[T]>),
}

impl<T> OneOrMany<T> {
    /// Adds values behind those that are there.
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
