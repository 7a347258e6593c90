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
