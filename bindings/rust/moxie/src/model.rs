// SPDX-License-Identifier: Apache-2.0
//! Checkpoint directories.
use crate::error::{call, Result};
use crate::{sys, text};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};

/// How a checkpoint is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct ModelOptions {
    /// Read tensors into memory instead of mapping the files: where others may shorten them meanwhile.
    pub no_mmap: bool,
    /// Keep activations in the type of the hidden states, even where the checkpoint's scheme quantizes them.
    pub activations_16bit: bool,
    /// Load layers with tensors that moxie does not know; their results can be wrong.
    pub allow_unread: bool,
}

/// An opened checkpoint directory. Reads from several threads are fine.
#[derive(Debug)]
pub struct Model(NonNull<sys::moxie_model>);

// SAFETY: "The model's calls may be made from several threads at once"; closing takes the only owner.
unsafe impl Send for Model {}
unsafe impl Sync for Model {}

/// A model as a whole.
#[derive(Debug, Clone)]
pub struct ModelInfo {
    /// The family that its names and keys belong to.
    pub family: String,
    /// As quantization_config says; "" if it says nothing.
    pub quant_method: String,
    /// MoE layers found in the tensors.
    pub layers: usize,
    /// Bytes of all its tensors.
    pub tensor_bytes: u64,
    /// Contradictions in the files that were tolerated.
    pub warnings: Vec<String>,
}

/// One MoE layer of a model.
#[derive(Debug, Clone)]
pub struct LayerInfo {
    /// Its number in the names of the tensors.
    pub layer: i64,
    /// Its number format, for example "mxfp4-gptoss".
    pub format: String,
    /// The name of its routing method.
    pub routing: String,
    /// E.
    pub experts: usize,
    /// K.
    pub top_k: usize,
    /// H.
    pub hidden: usize,
    /// I.
    pub intermediate: usize,
    /// Bytes of the experts, the router and the shared expert.
    pub total_bytes: u64,
}

impl Model {
    /// Opens DIR/config.json and the headers of its shards.
    pub fn open(dir: impl AsRef<Path>) -> Result<Model> {
        Model::open_with(dir, ModelOptions::default())
    }

    /// The same with options.
    pub fn open_with(dir: impl AsRef<Path>, options: ModelOptions) -> Result<Model> {
        let dir = text::to_c("the directory's name", dir.as_ref().as_os_str().as_bytes())?;
        let mut raw = sys::moxie_model_options::init();
        raw.no_mmap = options.no_mmap.into();
        raw.activations = options.activations_16bit.into();
        raw.allow_unread = options.allow_unread.into();
        let mut out = ptr::null_mut();
        // SAFETY: the name and the options live through the call; `out` is filled on success.
        call(|e| unsafe { sys::moxie_model_open(dir.as_ptr(), &raw, &mut out, e) })?;
        Ok(Model(NonNull::new(out).expect("a model")))
    }

    /// The model as a whole.
    pub fn info(&self) -> Result<ModelInfo> {
        let mut raw = sys::moxie_model_info::init();
        // SAFETY: the model is alive, the struct has its size set.
        call(|e| unsafe { sys::moxie_model_get_info(self.0.as_ptr(), &mut raw, e) })?;
        // SAFETY: warnings live as long as the model.
        let warning = |i| text::owned(unsafe { sys::moxie_model_warning(self.0.as_ptr(), i) });
        Ok(ModelInfo {
            family: text::owned(raw.family),
            quant_method: text::owned(raw.quant_method),
            layers: raw.n_layers as usize,
            tensor_bytes: raw.tensor_bytes,
            warnings: (0..raw.n_warnings).map(warning).collect(),
        })
    }

    /// The `i`-th MoE layer found, from 0 on.
    pub fn describe_layer(&self, i: usize) -> Result<LayerInfo> {
        let mut raw = sys::moxie_model_layer_info::init();
        let i = i64::try_from(i).unwrap_or(i64::MAX);
        // SAFETY: as in info().
        call(|e| unsafe { sys::moxie_model_describe_layer(self.0.as_ptr(), i, &mut raw, e) })?;
        Ok(LayerInfo {
            layer: raw.layer,
            format: text::owned(raw.format),
            routing: text::owned(raw.routing),
            experts: raw.experts as usize,
            top_k: raw.top_k as usize,
            hidden: raw.hidden as usize,
            intermediate: raw.intermediate as usize,
            total_bytes: raw.total_bytes,
        })
    }

    /// Views of checkpoint layer `layer`, the number in the tensors' names ([`LayerInfo::layer`]).
    pub fn load_layer(&self, layer: i64) -> Result<ModelLayer<'_>> {
        let mut out = ptr::null_mut();
        // SAFETY: the model is alive; `out` is filled on success.
        call(|e| unsafe { sys::moxie_model_load_layer(self.0.as_ptr(), layer, &mut out, e) })?;
        Ok(ModelLayer { raw: NonNull::new(out).expect("a layer"), model: PhantomData })
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: layers borrow the model, so none is left.
        unsafe { sys::moxie_model_close(self.0.as_ptr()) }
    }
}

/// One layer's configuration and weights, as views of the model's files.
#[derive(Debug)]
pub struct ModelLayer<'m> {
    raw: NonNull<sys::moxie_model_layer>,
    model: PhantomData<&'m Model>,
}

// SAFETY: its accessors are "immutable", and preparing from it only reads; freeing takes the only owner.
unsafe impl Send for ModelLayer<'_> {}
unsafe impl Sync for ModelLayer<'_> {}

impl ModelLayer<'_> {
    /// The library's configuration, with every field.
    pub fn config(&self) -> &sys::moxie_layer_config {
        // SAFETY: lives as long as `self`.
        unsafe { &*sys::moxie_model_layer_config(self.raw.as_ptr()) }
    }

    /// The library's views; they may be read while `self` lives.
    pub fn weights(&self) -> &sys::moxie_weights {
        // SAFETY: as above.
        unsafe { &*sys::moxie_model_layer_weights(self.raw.as_ptr()) }
    }
}

impl Drop for ModelLayer<'_> {
    fn drop(&mut self) {
        // SAFETY: nothing borrows it any more.
        unsafe { sys::moxie_model_layer_free(self.raw.as_ptr()) }
    }
}
