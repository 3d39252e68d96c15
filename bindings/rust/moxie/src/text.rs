// SPDX-License-Identifier: Apache-2.0
//! Strings from and to C.
use crate::error::{Error, Result, Status};
use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::os::raw::c_char;

/// A string of the library, which lives as long as `'a`; NULL is "".
///
/// # Safety
/// `text` is NULL, or ends with a zero byte and lives as long as `'a`.
pub unsafe fn borrowed<'a>(text: *const c_char) -> Cow<'a, str> {
    if text.is_null() {
        return Cow::Borrowed("");
    }
    CStr::from_ptr(text).to_string_lossy()
}

/// A copy of a string that is valid now.
pub fn owned(text: *const c_char) -> String {
    // SAFETY: all callers pass strings of the library, which end with a zero byte.
    unsafe { borrowed(text) }.into_owned()
}

/// The text in a fixed array of a struct, which ends with a zero byte.
pub fn from_array(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// For the library; a zero byte inside is an error.
pub fn to_c(what: &str, text: impl Into<Vec<u8>>) -> Result<CString> {
    CString::new(text).map_err(|e| {
        let text = format!("{what} has a zero byte at {}, which no C string can hold", e.nul_position());
        Error::new(Status::Argument, text)
    })
}
