// SPDX-License-Identifier: Apache-2.0
//! Statuses and errors.
use crate::{sys, text};
use std::fmt;

/// The class of an error: moxie_status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// The caller broke a rule.
    Argument,
    /// Well formed, but nothing here can run it; the text says what would.
    Unsupported,
    /// An allocation failed, or a buffer is too small.
    Memory,
    /// The system refused to open, read or write a file.
    Io,
    /// A file's content is malformed or contradicts itself.
    Format,
    /// Two things that must agree do not: shape, dtype, checksum.
    Mismatch,
    /// Another rank is late or dead, or a callback ended the call.
    Timeout,
    /// A status that is newer than this crate.
    Other(u32),
}

impl Status {
    fn of(code: sys::moxie_status) -> Status {
        match code {
            sys::MOXIE_ERR_ARGUMENT => Status::Argument,
            sys::MOXIE_ERR_UNSUPPORTED => Status::Unsupported,
            sys::MOXIE_ERR_MEMORY => Status::Memory,
            sys::MOXIE_ERR_IO => Status::Io,
            sys::MOXIE_ERR_FORMAT => Status::Format,
            sys::MOXIE_ERR_MISMATCH => Status::Mismatch,
            sys::MOXIE_ERR_TIMEOUT => Status::Timeout,
            other => Status::Other(other),
        }
    }
}

/// What went wrong, in the library's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Its class.
    pub status: Status,
    /// What was asked, what was found, which limit failed, what to try.
    pub text: String,
    /// The file concerned, if one is.
    pub file: Option<String>,
    /// The byte in that file, if one is known.
    pub offset: Option<u64>,
}

/// The result of everything that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error that this crate finds itself.
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Error {
        Error { status, text: text.into(), file: None, offset: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{file}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

impl std::error::Error for Error {}

/// Makes a call of the library with an error to fill, and its status into a result.
pub(crate) fn call(f: impl FnOnce(*mut sys::moxie_error) -> sys::moxie_status) -> Result<()> {
    let mut filled = std::mem::MaybeUninit::<sys::moxie_error>::uninit();
    let status = f(filled.as_mut_ptr());
    if status == sys::MOXIE_OK {
        return Ok(());
    }
    // SAFETY: every call of the library that fails has filled the error.
    let filled = unsafe { filled.assume_init_ref() };
    let file = text::from_array(&filled.file);
    Err(Error {
        status: Status::of(status),
        text: text::from_array(&filled.text),
        file: Some(file).filter(|f| !f.is_empty()),
        offset: u64::try_from(filled.offset).ok(),
    })
}
