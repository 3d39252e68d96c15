// SPDX-License-Identifier: Apache-2.0
//! Plans and runs.
use crate::error::{call, Error, Result, Status};
use crate::layer::{Layer, Sizes};
use crate::{sys, text, Element, ModelLayer, Options, Report};
use std::alloc;
use std::borrow::Cow;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// Memory for a run, aligned as the library wants it.
#[derive(Debug)]
struct Workspace {
    data: NonNull<u8>,
    layout: alloc::Layout,
}

impl Workspace {
    const ALIGN: usize = 256;

    fn new(bytes: u64) -> Result<Workspace> {
        let no_memory = || Error::new(Status::Memory, format!("no memory for a workspace of {bytes} bytes"));
        let size = usize::try_from(bytes).map_err(|_| no_memory())?.max(Self::ALIGN);
        let layout = alloc::Layout::from_size_align(size, Self::ALIGN).map_err(|_| no_memory())?;
        // SAFETY: the size is not 0.
        let data = NonNull::new(unsafe { alloc::alloc(layout) }).ok_or_else(no_memory)?;
        Ok(Workspace { data, layout })
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { alloc::dealloc(self.data.as_ptr(), self.layout) }
    }
}

/// The kernels chosen for a layer, with a workspace of its own.
#[derive(Debug)]
pub struct Plan<'l> {
    raw: NonNull<sys::moxie_plan>,
    sizes: Sizes,
    workspace: Workspace,
    /// The layer, and the executor of its options.
    borrows: PhantomData<&'l Layer>,
}

// SAFETY: "a plan runs one-thread-at-a-time", and running takes `&mut self`; all else is "immutable".
unsafe impl Send for Plan<'_> {}
unsafe impl Sync for Plan<'_> {}

/// One step of a plan, or a kernel that was rejected for the step that follows.
#[derive(Debug, Clone)]
pub struct Step<'p> {
    /// "topk", "expert_gemm", ...
    pub family: Cow<'p, str>,
    /// "w13", "w2", "router" or "".
    pub role: Cow<'p, str>,
    /// The kernel's name.
    pub kernel: Cow<'p, str>,
    /// Whether it runs.
    pub chosen: bool,
    /// Why it was rejected, or a remark on its results.
    pub reason: Cow<'p, str>,
    /// The smallest change with which a rejected kernel would be accepted, or "".
    pub remedy: Cow<'p, str>,
}

/// What a run reads and writes: rows of H elements for hidden states and output, of K for choices, of E for logits.
#[derive(Debug)]
pub struct Run<'a, T> {
    hidden: &'a [T],
    output: &'a mut [T],
    router_hidden: Option<&'a [T]>,
    logits: Option<&'a [f32]>,
    token_ids: Option<&'a [i32]>,
    choices: Option<(&'a [i32], &'a [f32])>,
    padding: Option<&'a [u8]>,
    bias_choice: Option<&'a [u8]>,
    ids_out: Option<&'a mut [i32]>,
    weights_out: Option<&'a mut [f32]>,
    logits_out: Option<&'a mut [f32]>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        $($(#[$doc])*
        pub fn $name(mut self, $name: $type) -> Self {
            self.$name = Some($name);
            self
        })*
    };
}

impl<'a, T: Element> Run<'a, T> {
    /// All tokens of `hidden` through the layer's own router and experts into `output`.
    pub fn new(hidden: &'a [T], output: &'a mut [T]) -> Run<'a, T> {
        Run {
            hidden,
            output,
            router_hidden: None,
            logits: None,
            token_ids: None,
            choices: None,
            padding: None,
            bias_choice: None,
            ids_out: None,
            weights_out: None,
            logits_out: None,
        }
    }

    setters! {
        /// The router's input, where it is not `hidden`.
        router_hidden: &'a [T];
        /// Logits [T,E], from which experts are chosen instead of from the router's.
        logits: &'a [f32];
        /// Token ids [T], where a table of them routes.
        token_ids: &'a [i32];
        /// The experts themselves and their weights, both [T,K].
        choices: (&'a [i32], &'a [f32]);
        /// Tokens [T] whose byte is not 0 get no expert.
        padding: &'a [u8];
        /// Tokens [T] whose byte is not 0 have the second bias.
        bias_choice: &'a [u8];
        /// Where the chosen experts [T,K] go.
        ids_out: &'a mut [i32];
        /// Where their weights [T,K] go.
        weights_out: &'a mut [f32];
        /// Where the logits [T,E] go.
        logits_out: &'a mut [f32];
    }

    /// Checks every length, and points the library's struct at the slices.
    fn raw(&mut self, sizes: &Sizes) -> Result<sys::moxie_run_args> {
        if T::DTYPE != sizes.dtype {
            // SAFETY: static strings.
            let name = |dtype| text::owned(unsafe { sys::moxie_dtype_name(dtype) });
            let text = format!("hidden states of {}, and the layer's are {}", name(T::DTYPE), name(sizes.dtype));
            return Err(Error::new(Status::Mismatch, text));
        }
        let tokens = self.hidden.len() / sizes.hidden;
        let mut raw = sys::moxie_run_args::init();
        raw.tokens = tokens as i64;
        raw.hidden = input("hidden", Some(self.hidden), tokens, sizes.hidden)?.cast();
        raw.output = output("output", Some(&mut *self.output), tokens, sizes.hidden)?.cast();
        raw.router_hidden = input("router_hidden", self.router_hidden, tokens, sizes.router_width)?.cast();
        raw.logits = input("logits", self.logits, tokens, sizes.candidates)?.cast();
        raw.token_ids = input("token_ids", self.token_ids, tokens, 1)?;
        raw.ids = input("the ids of choices", self.choices.map(|c| c.0), tokens, sizes.top_k)?;
        raw.weights = input("the weights of choices", self.choices.map(|c| c.1), tokens, sizes.top_k)?;
        raw.padding = input("padding", self.padding, tokens, 1)?;
        raw.bias_choice = input("bias_choice", self.bias_choice, tokens, 1)?;
        raw.ids_out = output("ids_out", self.ids_out.as_deref_mut(), tokens, sizes.top_k)?;
        raw.weights_out = output("weights_out", self.weights_out.as_deref_mut(), tokens, sizes.top_k)?;
        raw.logits_out = output("logits_out", self.logits_out.as_deref_mut(), tokens, sizes.candidates)?;
        Ok(raw)
    }
}

fn check_length(what: &str, length: usize, tokens: usize, columns: usize) -> Result<()> {
    if Some(length) == tokens.checked_mul(columns) {
        return Ok(());
    }
    let text = format!("{what} has {length} elements: {tokens} tokens of hidden states have {columns} each");
    Err(Error::new(Status::Mismatch, text))
}

fn input<T>(what: &str, slice: Option<&[T]>, tokens: usize, columns: usize) -> Result<*const T> {
    match slice {
        Some(slice) => check_length(what, slice.len(), tokens, columns).map(|()| slice.as_ptr()),
        None => Ok(ptr::null()),
    }
}

fn output<T>(what: &str, slice: Option<&mut [T]>, tokens: usize, columns: usize) -> Result<*mut T> {
    match slice {
        Some(slice) => check_length(what, slice.len(), tokens, columns).map(|()| slice.as_mut_ptr()),
        None => Ok(ptr::null_mut()),
    }
}

impl<'l> Plan<'l> {
    pub(crate) fn create(layer: &'l Layer, options: &Options<'l>) -> Result<Plan<'l>> {
        let raw_options = options.raw();
        let mut out = ptr::null_mut();
        // SAFETY: the layer and the executor outlive the plan; the rest of the options lives through the call.
        call(|e| unsafe { sys::moxie_plan_create(layer.as_ptr(), &raw_options, &mut out, e) })?;
        let raw = NonNull::new(out).expect("a plan");
        // SAFETY: alive.
        let bytes = unsafe { sys::moxie_plan_workspace_bytes(raw.as_ptr()) };
        let workspace = Workspace::new(bytes).map_err(|e| {
            // SAFETY: nobody else has it.
            unsafe { sys::moxie_plan_destroy(raw.as_ptr()) };
            e
        })?;
        Ok(Plan { raw, sizes: layer.sizes(), workspace, borrows: PhantomData })
    }

    /// The steps in the order they run; before each come the better kernels that were rejected for it.
    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        // SAFETY: steps and their strings live as long as the plan.
        let step = |i| unsafe {
            let raw = &*sys::moxie_plan_step_at(self.raw.as_ptr(), i);
            Step {
                family: text::borrowed(raw.family),
                role: text::borrowed(raw.role),
                kernel: text::borrowed(raw.kernel),
                chosen: raw.chosen != 0,
                reason: text::borrowed(raw.reason),
                remedy: text::borrowed(raw.remedy),
            }
        };
        (0..unsafe { sys::moxie_plan_step_count(self.raw.as_ptr()) }).map(step)
    }

    /// Bytes of the workspace that the plan holds.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace.layout.size()
    }

    /// Runs the whole layer: router, experts, combine.
    pub fn run<T: Element>(&mut self, mut run: Run<'_, T>) -> Result<()> {
        let raw = self.with_workspace(run.raw(&self.sizes)?);
        // SAFETY: all lengths were checked; outputs are `&mut`, so they overlap nothing.
        call(|e| unsafe { sys::moxie_plan_run(self.raw.as_ptr(), &raw, e) })
    }

    /// Runs, and compares every element of every stage with the oracle, from the weights in `loaded`. Slow.
    pub fn check<T: Element>(&mut self, loaded: &ModelLayer<'_>, mut run: Run<'_, T>) -> Result<Report> {
        let raw = self.with_workspace(run.raw(&self.sizes)?);
        let mut out = ptr::null_mut();
        // SAFETY: as in run(); `loaded` keeps its views alive, and the library checks that they fit.
        call(|e| unsafe { sys::moxie_plan_check(self.raw.as_ptr(), loaded.weights(), &raw, &mut out, e) })?;
        Ok(Report::take(NonNull::new(out).expect("a report")))
    }

    fn with_workspace(&mut self, mut raw: sys::moxie_run_args) -> sys::moxie_run_args {
        raw.workspace = self.workspace.data.as_ptr().cast();
        raw.workspace_bytes = self.workspace.layout.size() as u64;
        raw
    }
}

impl Drop for Plan<'_> {
    fn drop(&mut self) {
        // SAFETY: it is the only owner.
        unsafe { sys::moxie_plan_destroy(self.raw.as_ptr()) }
    }
}
