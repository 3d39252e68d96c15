// SPDX-License-Identifier: Apache-2.0
//! Quantized fused mixture-of-experts (MoE) layers: a safe face of libmoxie.
//!
//! ```text
//! Model::open -> Model::load_layer -> Layer::prepare -> Layer::plan -> Plan::run
//!   files          views of them       packed experts     kernels        tokens
//! ```
//!
//! What owns what:
//! - A [`Model`] owns the mapped files. A [`ModelLayer`] is views of them, so it borrows the model.
//! - A [`Layer`] owns its packed experts: model and views may go.
//! - A [`Plan`] borrows its layer, and the [`Executor`] of its options. It owns its workspace, so a run allocates
//!   nothing.
//!
//! Threads follow the rules in moxie.h. All types here are `Send` and `Sync`; what may run on one thread at a time
//! ([`Plan::run`], [`Layer::update_expert`]) takes `&mut self`. Plans of one layer may run at the same time.
//!
//! Errors are [`Error`]s with the library's own text: what was asked, what was found, what to try. What this crate does
//! not wrap (ranks, GPUs, other engines' layouts) is in [`sys`].
#![deny(missing_docs)]

mod check;
mod element;
mod error;
mod executor;
mod layer;
mod model;
mod options;
mod plan;
mod text;

pub use check::{Report, Stage};
pub use element::{Bf16, Element, F16};
pub use error::{Error, Result, Status};
pub use executor::Executor;
pub use layer::Layer;
pub use model::{LayerInfo, Model, ModelInfo, ModelLayer, ModelOptions};
pub use moxie_sys as sys;
pub use options::{Backend, Mode, Options};
pub use plan::{Plan, Run, Step};

/// The version of the library that runs, and the commit it was built from if that is known.
pub fn version() -> String {
    // SAFETY: a static string.
    text::owned(unsafe { sys::moxie_version() })
}

/// What the borrow checker refuses: a plan without its layer, views without their model, a plan without its executor.
///
/// ```compile_fail,E0505
/// # fn f(layer: moxie::Layer, options: &moxie::Options<'static>) {
/// let plan = layer.plan(options).unwrap();
/// drop(layer);
/// plan.workspace_bytes();
/// # }
/// ```
/// ```compile_fail,E0505
/// # fn f(model: moxie::Model) {
/// let loaded = model.load_layer(0).unwrap();
/// drop(model);
/// loaded.config();
/// # }
/// ```
/// ```compile_fail,E0505
/// # fn f(layer: &moxie::Layer, executor: moxie::Executor) {
/// let plan = layer.plan(&moxie::Options::new().executor(&executor)).unwrap();
/// drop(executor);
/// plan.workspace_bytes();
/// # }
/// ```
#[cfg(doctest)]
pub struct Lifetimes;
