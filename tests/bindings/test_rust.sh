#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Rust crates against an installed copy: their own tests, and the example, which does what the C one does. No crate
# of a registry is needed.
. "$(dirname "$0")/bindings_lib.sh"
command -v cargo >/dev/null || skip "no cargo (apt-get install rustc cargo)"
install_it
export CARGO_TARGET_DIR="$build/rust" RUSTFLAGS="-D warnings" TMPDIR="$tmp"
cd bindings/rust
cargo test --quiet --offline --locked >"$tmp/log" 2>&1 || fail "cargo test: $(cat "$tmp/log")"
[ "$(grep -c '^test result: ok' "$tmp/log")" -ge 2 ] || fail "no tests ran: $(cat "$tmp/log")"
cd "$root"
same_as_c "$build/rust/debug/examples/one_layer"
