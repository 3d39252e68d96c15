// SPDX-License-Identifier: Apache-2.0
//! libmoxie's C interface as bindgen reads it from the headers (`include/moxie/*.h`), which say what each call does.
//! The crate `moxie` wraps the part that most programs need.
//!
//! A struct that begins with `struct_size` has `T::init()`, the headers' `MOXIE_..._INIT`: its size is set, and all
//! other fields are zero, which means their defaults.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]

macro_rules! sized_structs {
    ($($name:ident,)*) => {
        $(impl $name {
            pub fn init() -> Self {
                // SAFETY: a C struct of numbers and pointers, of which all are valid when zero.
                let mut zero: Self = unsafe { std::mem::zeroed() };
                zero.struct_size = std::mem::size_of::<Self>() as u32;
                zero
            }
        })*
    };
}

include!("bindings.rs");
