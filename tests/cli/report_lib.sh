# SPDX-License-Identifier: Apache-2.0
# Shared by the tests of `moxie report`, beside cli_lib.sh: JSON of a small layer as files.

# A benchmark of three batch sizes, by hand: what is tested is the page, not the machine. $1: the preset's name.
write_bench() {
    cat <<END
{ "schema_version": 1, "command": "bench", "device": "A <Chip> & Co", "warning": "", "experts": 16, "top_k": 8,
  "hidden": 256, "intermediate": 128, "limits": { "read_gb_s": 100.0, "bf16_tflop_s": 2.0, "fp8_tflop_s": 0.0 },
  "rows": [ $(row 512 4.5 4.0 9.0 3.0 1.5 true), $(row 1 0.25 0.2 0.3 0.125 2.0 false), $(row 64 0.75 0.7 0.8 0.5 1.5 false) ] }
END
}
row() {
    printf '{"preset": "%s", "scheme": "bf16", "isa": "avx2", "threads": 2, "mode": "exact", "routing": "uniform", "tokens": %s, "median_ms": %s, "min_ms": %s, "max_ms": %s, "floor_ms": %s, "ratio": %s, "weight_bytes": 12500000, "flop": %s000000, "floor_by": "memory", "note": "", "disturbed": %s}' \
        "${name:-a-preset}" "$1" "$2" "$3" "$4" "$5" "$6" "$1" "$7"
}

write_parts() {
    synth qwen3-30b-a3b bf16 "$tmp/model"
    write_bench >"$tmp/bench.json"
    "$moxie" explain "$tmp/model" --tokens 1,64 --json >"$tmp/explain.json"
    "$moxie" run "$tmp/model" --tokens 9 --json >"$tmp/run.json"
    "$moxie" diff "$tmp/model" --tokens 2 --json >"$tmp/diff.json"
}
parts="--bench $tmp/bench.json --explain $tmp/explain.json --run $tmp/run.json --diff $tmp/diff.json"
