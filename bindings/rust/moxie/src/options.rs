// SPDX-License-Identifier: Apache-2.0
//! What a layer or a plan is made for.
use crate::error::Result;
use crate::{sys, text, Executor};
use std::ffi::CString;

/// Where a plan runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// The best that is here.
    #[default]
    Auto,
    /// The oracle in double precision; slow.
    Ref,
    /// The processor.
    Cpu,
}

/// Which kernels a plan may choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Those that round nothing beyond the numeric contract.
    #[default]
    Exact,
    /// Also those that round more, within stated bounds, where they are faster.
    Fast,
}

/// Options of layers and plans; the default is the best back end, exact mode, runs of up to 4096 tokens, one thread.
#[derive(Debug, Clone, Default)]
pub struct Options<'e> {
    backend: Backend,
    mode: Mode,
    max_tokens: usize,
    isa: Option<CString>,
    executor: Option<&'e Executor>,
}

impl<'e> Options<'e> {
    /// All defaults.
    pub fn new() -> Options<'e> {
        Options::default()
    }

    /// Where it runs.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Which kernels it may have.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The most tokens of a run: the workspace is for so many. 0: 4096.
    pub fn max_tokens(mut self, tokens: usize) -> Self {
        self.max_tokens = tokens;
        self
    }

    /// The largest instruction set to use: "scalar", "avx2", "avx512", "amx"; "neon" on 64-bit ARM.
    pub fn isa(mut self, name: &str) -> Result<Self> {
        self.isa = Some(text::to_c("the name of an instruction set", name)?);
        Ok(self)
    }

    /// The threads that prepare and run. Plans borrow the executor.
    pub fn executor(mut self, executor: &'e Executor) -> Self {
        self.executor = Some(executor);
        self
    }

    /// The struct of the library; it borrows from `self`.
    pub(crate) fn raw(&self) -> sys::moxie_options {
        let mut raw = sys::moxie_options::init();
        raw.backend = match self.backend {
            Backend::Auto => sys::MOXIE_BACKEND_AUTO,
            Backend::Ref => sys::MOXIE_BACKEND_REF,
            Backend::Cpu => sys::MOXIE_BACKEND_CPU,
        } as i32;
        raw.mode = match self.mode {
            Mode::Exact => sys::MOXIE_MODE_EXACT,
            Mode::Fast => sys::MOXIE_MODE_FAST,
        } as i32;
        raw.max_tokens = i64::try_from(self.max_tokens).unwrap_or(i64::MAX);
        raw.isa = self.isa.as_ref().map_or(std::ptr::null(), |isa| isa.as_ptr());
        raw.executor = self.executor.map_or(std::ptr::null(), |executor| executor.as_ptr());
        raw
    }
}
