#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/use-from-rust.md, as written.
. "$(dirname "$0")/docs_lib.sh"
command -v cargo >/dev/null || skip "no cargo (apt-get install rustc cargo)"
export CARGO_TARGET_DIR="$build/rust-docs"
install_it
run_page docs/use-from-rust.md
