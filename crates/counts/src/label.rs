//! Labels: enums whose variants each have a count of their own.

use std::sync::atomic::AtomicU64;

/// An enum whose variants are counted; made by [`labels!`](crate::labels).
pub trait Label: Copy + 'static {
    /// All variants, in the order of their declaration.
    const ALL: &'static [Self];

    /// One cell for each variant.
    type Cells: AsRef<[AtomicU64]> + Default;

    /// The value of the metric's label.
    fn name(self) -> &'static str;

    /// The position in [`Self::ALL`].
    fn index(self) -> usize;
}

/// Declares an enum that implements [`Label`]: `Variant = "name"`, at most 32 of them.
#[macro_export]
macro_rules! labels {
    ($(#[$of_enum:meta])* $visibility:vis enum $Enum:ident { $($(#[$of_variant:meta])* $Variant:ident = $name:literal,)+ }) => {
        $(#[$of_enum])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $visibility enum $Enum { $($(#[$of_variant])* $Variant,)+ }

        impl $crate::Label for $Enum {
            const ALL: &'static [Self] = &[$(Self::$Variant),+];
            type Cells = [::std::sync::atomic::AtomicU64; Self::ALL.len()];

            fn name(self) -> &'static str {
                match self { $(Self::$Variant => $name,)+ }
            }

            #[inline]
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}
