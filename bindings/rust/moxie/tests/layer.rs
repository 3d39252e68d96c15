// SPDX-License-Identifier: Apache-2.0
//! A small synthetic layer through the safe crate: results, errors, threads, ownership. That results are those of the C
//! interface is tests/bindings/test_rust.sh's business.
use moxie::{sys, Backend, Bf16, Element, Executor, Layer, Model, Options, Run, Status};
use std::ffi::CString;
use std::path::{Path, PathBuf};

const H: usize = 256;
const E: usize = 8;

/// A checkpoint in a directory of its own, which goes with it.
struct Checkpoint(PathBuf);

impl Checkpoint {
    fn new(name: &str, seed: u64) -> Checkpoint {
        Checkpoint::of_sizes(name, seed, E, H)
    }

    fn of_sizes(name: &str, seed: u64, experts: usize, hidden: usize) -> Checkpoint {
        let dir = std::env::temp_dir().join(format!("moxie-rust-{}-{name}", std::process::id()));
        let mut options = sys::moxie_synth_options::init();
        (options.layers, options.experts, options.hidden, options.intermediate) =
            (1, experts as i64, hidden as i64, 256);
        options.seed = seed;
        let (preset, path) = (CString::new("gpt-oss-20b").unwrap(), CString::new(dir.to_str().unwrap()).unwrap());
        let status = unsafe { sys::moxie_synth_write(preset.as_ptr(), path.as_ptr(), &options, std::ptr::null_mut()) };
        assert_eq!(status, sys::MOXIE_OK);
        Checkpoint(dir)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn layer_of(checkpoint: &Checkpoint) -> Layer {
    let model = Model::open(checkpoint.path()).unwrap();
    let loaded = model.load_layer(0).unwrap();
    Layer::prepare(&loaded, &Options::new()).unwrap() // model and views go: the layer owns its experts
}

fn hidden(tokens: usize) -> Vec<Bf16> {
    (0..tokens * H).map(|i| Bf16::from_f32(((i * 7919) % 1009) as f32 / 500.0 - 1.0)).collect()
}

fn outputs(layer: &Layer, options: &Options, tokens: usize) -> Vec<Bf16> {
    let mut output = vec![Bf16(0x7fc0); tokens * H]; // NaN: nobody left it so
    layer.plan(options).unwrap().run(Run::new(&hidden(tokens), &mut output)).unwrap();
    output
}

#[test]
fn what_the_layer_is() {
    let checkpoint = Checkpoint::new("info", 0);
    let model = Model::open(checkpoint.path()).unwrap();
    let (whole, info) = (model.info().unwrap(), model.describe_layer(0).unwrap());
    assert_eq!((whole.family.as_str(), whole.layers, whole.warnings.len()), ("gpt-oss", 1, 0));
    assert_eq!((info.layer, info.format.as_str()), (0, "mxfp4-gptoss"));
    assert_eq!((info.experts, info.top_k, info.hidden, info.intermediate), (E, 4, H, 256));
    assert!(moxie::version().starts_with("0.1."));
}

#[test]
fn runs_are_right_and_agree() {
    let checkpoint = Checkpoint::new("runs", 0);
    let model = Model::open(checkpoint.path()).unwrap();
    let loaded = model.load_layer(0).unwrap();
    let executor = Executor::new(2).unwrap();
    assert_eq!(executor.workers(), 2);
    let options = Options::new().max_tokens(16).executor(&executor);
    let layer = Layer::prepare(&loaded, &options).unwrap();
    layer.verify().unwrap();
    let mut plan = layer.plan(&options).unwrap();
    assert!(plan.steps().any(|s| s.chosen && s.family == "combine"), "{:?}", plan.steps().collect::<Vec<_>>());

    let x = hidden(5);
    let (mut y, mut ids, mut weights) = (vec![Bf16(0x7fc0); x.len()], vec![-7; 5 * 4], vec![f32::NAN; 5 * 4]);
    let report = plan.check(&loaded, Run::new(&x, &mut y)).unwrap();
    assert!(report.is_right() && report.worst_ratio > 0.0 && report.stages.iter().all(|s| s.beyond == 0), "{report:?}");

    let mut again = vec![Bf16(0x7fc0); x.len()];
    plan.run(Run::new(&x, &mut again).ids_out(&mut ids).weights_out(&mut weights)).unwrap();
    assert_eq!(y, again);
    assert!(ids.iter().all(|&id| (0..E as i32).contains(&id)));
    // The choices that it made, given to it; one token alone; no token.
    again.fill(Bf16(0x7fc0));
    plan.run(Run::new(&x, &mut again).choices((&ids, &weights))).unwrap();
    assert_eq!(y, again);
    plan.run(Run::new(&x[H..2 * H], &mut again[..H])).unwrap();
    assert_eq!(y[H..2 * H], again[..H]);
    plan.run::<Bf16>(Run::new(&[], &mut [])).unwrap();
    // One thread, and the oracle, which rounds once.
    assert_eq!(outputs(&layer, &Options::new(), 5), y);
    let oracle = outputs(
        &Layer::prepare(&loaded, &Options::new().backend(Backend::Ref)).unwrap(),
        &Options::new().backend(Backend::Ref),
        5,
    );
    for (got, want) in y.iter().zip(&oracle) {
        assert!((got.to_f32() - want.to_f32()).abs() <= 0.02, "{got:?} {want:?}");
    }
}

#[test]
fn plans_on_many_threads() {
    let checkpoint = Checkpoint::new("threads", 0);
    let layer = layer_of(&checkpoint);
    let executor = Executor::new(2).unwrap();
    let options = Options::new().max_tokens(8).executor(&executor);
    let want = outputs(&layer, &options, 8);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20).for_each(|_| assert_eq!(outputs(&layer, &options, 8), want)));
        }
    });
}

#[test]
fn another_expert() {
    let (first, second) = (Checkpoint::new("first", 0), Checkpoint::new("second", 1));
    let mut layer = layer_of(&first);
    let want = layer_of(&second).record(3).unwrap().unwrap().to_vec();
    let model = Model::open(second.path()).unwrap();
    let loaded = model.load_layer(0).unwrap();
    assert_ne!(layer.record(3).unwrap().unwrap(), want);
    layer.update_expert(3, &loaded).unwrap();
    assert_eq!(layer.record(3).unwrap().unwrap(), want);
    assert!(layer.bytes() >= (E * want.len()) as u64);
    assert_eq!(layer.update_expert(E, &loaded).unwrap_err().status, Status::Argument);
    assert_eq!(layer.record(E).unwrap_err().status, Status::Argument);
}

#[test]
fn views_of_another_layer_are_refused() {
    let (checkpoint, fewer, wider) =
        (Checkpoint::new("own", 0), Checkpoint::of_sizes("fewer", 0, 4, H), Checkpoint::of_sizes("wider", 0, E, 2 * H));
    let mut layer = layer_of(&checkpoint);
    let before = layer.record(0).unwrap().unwrap().to_vec();
    for other in [&fewer, &wider] {
        let model = Model::open(other.path()).unwrap();
        let loaded = model.load_layer(0).unwrap();
        let options = Options::new().max_tokens(1);
        let (x, mut y) = (hidden(1), vec![Bf16(0x1234); H]);
        let error = layer.plan(&options).unwrap().check(&loaded, Run::new(&x, &mut y)).unwrap_err();
        assert_eq!(error.status, Status::Mismatch, "{error}");
    }
    let model = Model::open(wider.path()).unwrap();
    let error = layer.update_expert(0, &model.load_layer(0).unwrap()).unwrap_err();
    assert_eq!(error.status, Status::Mismatch, "{error}");
    assert_eq!(layer.record(0).unwrap().unwrap(), before);
    layer.verify().unwrap();
}

#[test]
fn errors_have_the_librarys_words() {
    let error = Model::open("/nowhere/at/all").unwrap_err();
    assert_eq!(error.status, Status::Io);
    assert_eq!(error.file.as_deref(), Some("/nowhere/at/all"));
    assert!(error.to_string().starts_with("/nowhere/at/all: there is no such directory"), "{error}");
    assert_eq!(Model::open("a\0b").unwrap_err().status, Status::Argument);

    let checkpoint = Checkpoint::new("errors", 0);
    let model = Model::open(checkpoint.path()).unwrap();
    assert!(model.load_layer(7).unwrap_err().to_string().contains('7'));
    assert!(model.describe_layer(1).is_err());
    let layer = layer_of(&checkpoint);
    assert_eq!(layer.plan(&Options::new().isa("mmx").unwrap()).unwrap_err().status, Status::Argument);

    let options = Options::new().max_tokens(2);
    let mut plan = layer.plan(&options).unwrap();
    let x = hidden(3);
    let mut y = vec![Bf16(0x1234); x.len()];
    let refused = |error: moxie::Result<()>, status, word: &str| {
        let error = error.unwrap_err();
        assert!(error.status == status && error.text.contains(word), "{error:?}");
    };
    refused(plan.run(Run::new(&x, &mut y)), Status::Argument, "max_tokens");
    refused(plan.run(Run::new(&x[..H], &mut y)), Status::Mismatch, "output has 768 elements");
    refused(plan.run(Run::new(&x[..H + 1], &mut y[..H + 1])), Status::Mismatch, "hidden has 257");
    refused(plan.run(Run::new(&x[..H], &mut y[..H]).ids_out(&mut [0; 3])), Status::Mismatch, "ids_out has 3");
    refused(plan.run(Run::new(&x[..H], &mut y[..H]).logits(&[0.0; E + 1])), Status::Mismatch, "logits has 9");
    refused(plan.run(Run::new(&[0f32; H], &mut [0f32; H])), Status::Mismatch, "f32");
    assert!(y.iter().all(|&v| v == Bf16(0x1234)), "a refused run wrote");
}

#[test]
fn what_may_cross_threads() {
    fn both<T: Send + Sync>() {}
    both::<Executor>();
    both::<Model>();
    both::<moxie::ModelLayer<'_>>();
    both::<Layer>();
    both::<moxie::Plan<'_>>();
    both::<moxie::Error>();
}
