// SPDX-License-Identifier: Apache-2.0
//! The first MoE layer of a checkpoint on four tokens of made-up hidden states, as examples/one_layer.c:
//!
//!     one_layer DIR
use moxie::{Bf16, Element, Layer, Model, Options, Result, Run, F16};
use std::process::ExitCode;

const TOKENS: usize = 4;
const SHOWN: usize = 6;

/// The numbers of one_layer.c, from -0.5 up to 0.5.
struct Numbers(u32);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1664525).wrapping_add(1013904223);
        (self.0 >> 8) as f32 / 16777216.0 - 0.5
    }
}

fn run<T: Element>(layer: &Layer, options: &Options, hidden_size: usize, top_k: usize) -> Result<()> {
    let mut plan = layer.plan(options)?;
    let mut numbers = Numbers(1);
    let hidden: Vec<T> = (0..TOKENS * hidden_size).map(|_| T::from_f32(numbers.next())).collect();
    let mut output = vec![T::default(); hidden.len()];
    let mut ids = vec![0; TOKENS * top_k];
    let token_ids = [0; TOKENS]; // read only where a table of token ids routes
    plan.run(Run::new(&hidden, &mut output).token_ids(&token_ids).ids_out(&mut ids))?;
    for (t, row) in output.chunks(hidden_size).enumerate() {
        print!("token {t}, first expert {}:", ids[t * top_k]);
        row.iter().take(SHOWN).for_each(|value| print!(" {:9.5}", value.to_f32()));
        println!();
    }
    Ok(())
}

fn one_layer(dir: &str) -> Result<()> {
    let model = Model::open(dir)?;
    let info = model.describe_layer(0)?;
    let loaded = model.load_layer(info.layer)?;
    let options = Options::new().max_tokens(TOKENS); // the workspace is for so many, not for 4096
    let layer = Layer::prepare(&loaded, &options)?;
    // Inputs and outputs are rows of hidden states in the layer's own dtype.
    match loaded.config().dtype {
        Bf16::DTYPE => run::<Bf16>(&layer, &options, info.hidden, info.top_k),
        F16::DTYPE => run::<F16>(&layer, &options, info.hidden, info.top_k),
        _ => run::<f32>(&layer, &options, info.hidden, info.top_k),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.len() != 2 {
        eprintln!("usage: {} MODEL_DIRECTORY", arguments[0]);
        return ExitCode::from(2);
    }
    match one_layer(&arguments[1]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
