// SPDX-License-Identifier: Apache-2.0
//! The types of hidden states.
use crate::sys;

mod sealed {
    pub trait Sealed {}
}

/// A type of hidden states: `f32`, [`Bf16`] or [`F16`].
pub trait Element: sealed::Sealed + Copy + Default + 'static {
    /// Its number in the library.
    const DTYPE: sys::moxie_dtype;
    /// The nearest value of this type.
    fn from_f32(value: f32) -> Self;
    /// Its value.
    fn to_f32(self) -> f32;
}

impl sealed::Sealed for f32 {}
impl Element for f32 {
    const DTYPE: sys::moxie_dtype = sys::MOXIE_F32 as sys::moxie_dtype;
    fn from_f32(value: f32) -> f32 {
        value
    }
    fn to_f32(self) -> f32 {
        self
    }
}

macro_rules! sixteen_bits {
    ($name:ident, $dtype:ident, $what:literal) => {
        #[doc = $what]
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $name(
            /// Its bits.
            pub u16,
        );

        impl sealed::Sealed for $name {}
        impl Element for $name {
            const DTYPE: sys::moxie_dtype = sys::$dtype as sys::moxie_dtype;
            fn from_f32(value: f32) -> $name {
                // SAFETY: arithmetic on two numbers.
                $name(unsafe { sys::moxie_encode(Self::DTYPE, value) } as u16)
            }
            fn to_f32(self) -> f32 {
                // SAFETY: as above.
                unsafe { sys::moxie_decode(Self::DTYPE, self.0.into()) }
            }
        }
    };
}
sixteen_bits!(Bf16, MOXIE_BF16, "A bfloat16: the upper half of an `f32`.");
sixteen_bits!(F16, MOXIE_F16, "An IEEE half-precision number.");
