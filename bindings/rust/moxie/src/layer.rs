// SPDX-License-Identifier: Apache-2.0
//! Layers: packed experts.
use crate::error::{call, Error, Result, Status};
use crate::{sys, ModelLayer, Options, Plan};
use std::ptr::{self, NonNull};

/// The sizes by which the slices of a run are checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub dtype: sys::moxie_dtype,
    pub hidden: usize,
    pub top_k: usize,
    /// E, and experts without weights.
    pub candidates: usize,
    pub router_width: usize,
}

/// A layer whose experts are packed for the kernels of this machine. It owns them.
#[derive(Debug)]
pub struct Layer {
    raw: NonNull<sys::moxie_layer>,
    sizes: Sizes,
}

// SAFETY: "immutable while shared; one writer for updates", and the writer takes `&mut self`.
unsafe impl Send for Layer {}
unsafe impl Sync for Layer {}

impl Layer {
    /// Chooses kernels and packs every expert for them. `loaded` may go afterwards.
    pub fn prepare(loaded: &ModelLayer<'_>, options: &Options<'_>) -> Result<Layer> {
        // SAFETY: a model's configuration and views are valid, and `loaded` keeps them alive.
        unsafe { Layer::prepare_raw(loaded.config(), loaded.weights(), options) }
    }

    /// The same from a configuration and views of the caller's.
    ///
    /// # Safety
    /// All pointers in both structs are what moxie.h says of them, and so are the sizes behind them, through the call;
    /// a routing callback and its user as long as the layer, and on any thread.
    pub unsafe fn prepare_raw(
        config: &sys::moxie_layer_config,
        weights: &sys::moxie_weights,
        options: &Options<'_>,
    ) -> Result<Layer> {
        let raw_options = options.raw();
        let mut out = ptr::null_mut();
        call(|e| sys::moxie_layer_create(config, &raw_options, &mut out, e))?;
        let layer = Layer {
            raw: NonNull::new(out).expect("a layer"),
            sizes: Sizes {
                dtype: config.dtype,
                hidden: config.hidden as usize,
                top_k: config.top_k as usize,
                candidates: config.experts as usize + config.routing.zero_experts as usize,
                router_width: config.router_width as usize,
            },
        };
        call(|e| sys::moxie_layer_prepare(layer.raw.as_ptr(), weights, &raw_options, e))?;
        Ok(layer)
    }

    /// Kernels for runs on this layer.
    pub fn plan<'l>(&'l self, options: &Options<'l>) -> Result<Plan<'l>> {
        Plan::create(self, options)
    }

    /// Replaces one expert by that of another checkpoint's layer of the same configuration. On failure the old one
    /// stays.
    pub fn update_expert(&mut self, expert: usize, from: &ModelLayer<'_>) -> Result<()> {
        let weights = from.weights();
        if expert >= weights.n_experts as usize {
            let text = format!("there is no expert {expert}: the layer has {} of them", weights.n_experts);
            return Err(Error::new(Status::Argument, text));
        }
        // SAFETY: within the array; plans borrow the layer, so none is left that could run.
        call(|e| unsafe {
            let weights = weights.experts.add(expert);
            sys::moxie_layer_update_expert(self.raw.as_ptr(), expert as i64, weights, e)
        })
    }

    /// Computes every record's checksum again; the error names the first damaged expert.
    pub fn verify(&self) -> Result<()> {
        // SAFETY: alive.
        call(|e| unsafe { sys::moxie_layer_verify(self.raw.as_ptr(), e) })
    }

    /// The packed record of an expert; `None` where another rank has it.
    pub fn record(&self, expert: usize) -> Result<Option<&[u8]>> {
        let (mut data, mut bytes) = (ptr::null(), 0);
        let expert = i64::try_from(expert).unwrap_or(i64::MAX);
        // SAFETY: alive; the results are filled on success.
        call(|e| unsafe { sys::moxie_layer_record(self.raw.as_ptr(), expert, &mut data, &mut bytes, e) })?;
        // SAFETY: valid until the expert is replaced, which takes `&mut self`.
        Ok((!data.is_null()).then(|| unsafe { std::slice::from_raw_parts(data.cast(), bytes as usize) }))
    }

    /// Bytes of all records, router and shared expert included.
    pub fn bytes(&self) -> u64 {
        // SAFETY: alive.
        unsafe { sys::moxie_layer_bytes(self.raw.as_ptr()) }
    }

    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes
    }

    pub(crate) fn as_ptr(&self) -> *const sys::moxie_layer {
        self.raw.as_ptr()
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        // SAFETY: plans borrow the layer, so none is left.
        unsafe { sys::moxie_layer_destroy(self.raw.as_ptr()) }
    }
}
