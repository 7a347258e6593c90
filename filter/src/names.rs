//! Names of the values of enums, in flags and logs.

/// Returns the names as a choice: "a, b or c".
pub fn choice(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Implements `Display` and `FromStr` for an enum with the constant `ALL`, by the method that
/// returns the name of a value. The error of `FromStr` offers the values in `$offered`.
macro_rules! by_name {
    ($type:ident, $name:ident, $what:literal, $offered:expr) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.$name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                let mut all = Self::ALL.into_iter();
                all.find(|value| value.$name() == name).ok_or_else(|| {
                    let offered = $crate::names::choice(&$offered.map(Self::$name));
                    format!("there is no {} named {name:?}: use {offered}", $what)
                })
            }
        }
    };
}
pub(crate) use by_name;

/// Declares an enum by the names of its values: with the constant `ALL`, the method that returns
/// the name, `Display` and `FromStr`.
macro_rules! named {
    (
        $what:literal, $method:ident,
        $(#[$of_enum:meta])*
        pub enum $type:ident {
            $($(#[$of_value:meta])* $value:ident = $name:literal,)*
        }
    ) => {
        $(#[$of_enum])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $type {
            $($(#[$of_value])* $value,)*
        }

        impl $type {
            /// Every value.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$value),*];

            /// Returns the name that flags and logs use.
            pub const fn $method(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)*
                }
            }
        }

        $crate::names::by_name!($type, $method, $what, Self::ALL);
    };
}
pub(crate) use named;
