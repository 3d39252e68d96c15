// SPDX-License-Identifier: Apache-2.0
//! Thread pools.
use crate::error::{call, Result};
use crate::sys;
use std::ptr::{self, NonNull};

/// A pool of threads. Layers and plans may share one.
#[derive(Debug)]
pub struct Executor(NonNull<sys::moxie_executor>);

// SAFETY: "Loops on the pool are thread-safe, one after the other"; the struct itself never changes.
unsafe impl Send for Executor {}
unsafe impl Sync for Executor {}

impl Executor {
    /// A pool of `threads` workers, the caller's thread included; 0: one per processor that this process may use.
    pub fn new(threads: u32) -> Result<Executor> {
        let mut out = ptr::null_mut();
        let threads = i32::try_from(threads).unwrap_or(i32::MAX); // too many either way, and the library says so
                                                                  // SAFETY: `out` is filled on success.
        call(|e| unsafe { sys::moxie_executor_create(threads, &mut out, e) })?;
        Ok(Executor(NonNull::new(out).expect("a pool")))
    }

    /// How many workers it has.
    pub fn workers(&self) -> usize {
        // SAFETY: alive, and never written after its creation.
        unsafe { self.0.as_ref() }.workers as usize
    }

    pub(crate) fn as_ptr(&self) -> *const sys::moxie_executor {
        self.0.as_ptr()
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // SAFETY: plans borrow it, so no loop is running.
        unsafe { sys::moxie_executor_destroy(self.0.as_ptr()) }
    }
}
