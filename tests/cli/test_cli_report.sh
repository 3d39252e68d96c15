#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# moxie report: a page from files and from a directory, its structure, names that look like markup, values that are not
# what they should be.
. "$(dirname "$0")/cli_lib.sh"
. "$(dirname "$0")/report_lib.sh"
write_parts
page=$tmp/page.html

# count PATTERN: how often it is in the page.
count() { grep -oE -- "$1" "$page" | wc -l; }
# shape: tags are closed, pictures have titles and tables, nothing comes from elsewhere.
shape() {
    for tag in html head body header main footer section figure svg text title desc table details ul ol dl p h1 h2; do
        [ "$(count "<$tag[ >]")" = "$(count "</$tag>")" ] || fail "$1: $(count "<$tag[ >]") <$tag>, $(count "</$tag>") closed"
    done
    [ "$(count '<svg ')" = "$(count '<svg [^>]*role="img" aria-labelledby=')" ] || fail "$1: a picture without a title"
    [ "$(count '<figure')" = "$(count '<table>')" ] || fail "$1: a picture without a table"
    [ "$(count ' id="')" = "$(grep -oE ' id="[^"]*"' "$page" | sort -u | wc -l)" ] || fail "$1: an id twice"
    ! grep -nE '<(script|link|img|iframe|object)|https?:|url\(|@import| src=| href=|\bnan\b|\binf\b' "$page" || fail "$1: it loads something, or has no number"
    grep -q '<meta name="viewport"' "$page" && grep -q 'prefers-color-scheme:dark' "$page" || fail "$1: no phone, no dark"
    grep -q '<html lang="en">' "$page" || fail "$1: no language"
}

# All parts from files. Rows are sorted by tokens.
# shellcheck disable=SC2086 # a list of options
expect 0 "page.html: .* kB; bench explain run diff" "$moxie" report $parts -o "$page"
shape files
[ "$(count '<section')" = 5 ] || fail "$(count '<section') sections"
[ "$(sed -n '/Times and floors/,/<\/table>/p' "$page" | grep -oE '^<tr><td class="n">[0-9]+' | tr -dc '0-9\n' | tr '\n' ' ')" = "1 64 512 " ] ||
    fail "not the batches of the benchmark"
grep -q '<td class="n">0.25</td><td class="n">0.2</td><td class="n">0.3</td><td class="n">0.125</td><td class="n">2.00</td>' "$page" || fail "not the times of T = 1"
# 64 operations a byte would be 5.12: 64e6 / 12.5e6; in 0.75 ms that are 85.3 GFLOP/s and 16.7 GB/s.
grep -q '<td class="n">64</td><td class="n">5.12</td><td class="n">85.3</td><td class="n">128</td><td class="n">16.7</td>' "$page" || fail "not the speed of T = 64"
[ "$(count 'class="point')" = 6 ] && [ "$(count 'class="point hollow"')" = 2 ] || fail "not three points in two pictures, one disturbed"
[ "$(count 'class="(heat|cold)"')" = 16 ] || fail "not a square for each expert"
# The counts of the map are the choices of the run.
[ "$(sed -n '/Tokens by expert/,/<\/table>/p' "$page" | sed -nE 's/^<tr><td class="n">[0-9]+<.td><td class="n">([0-9]+)<.*/\1/p' | awk '{ n += $1 } END { print n }')" = 72 ] || fail "not 9 x 8 choices"
for step in topk permute expert_gemm combine; do
    grep -q "<strong>$step" "$page" || fail "no step $step"
done
[ "$(sed -n '/class="steps"/,/<\/ol>/p' "$page" | grep -c '<li><div')" = "$(grep -c '"chosen": true' "$tmp/explain.json")" ] || fail "not every step that runs"
[ "$(sed -n '/class="steps"/,/<\/ol>/p' "$page" | grep -c '<li><code>')" = "$(grep -c '"chosen": false' "$tmp/explain.json")" ] || fail "not every kernel that was rejected"
grep -q 'verdict good' "$page" || fail "not right"
expect 0 '"parts": \[' "$moxie" report --run "$tmp/run.json" --json -o "$page"
for key in schema_version command output bytes right; do
    grep -q "\"$key\":" "$tmp/out" || fail "JSON without $key"
done
shape "routing alone"
[ "$(count '<section')" = 1 ] || fail "more than the routing"

# Names are text, whatever is in them.
name="<script>alert(1)</script>&\\u0007'" write_bench >"$tmp/odd.json"
expect 0 "bench" "$moxie" report --bench "$tmp/odd.json" -o "$page"
shape "odd names"
grep -q "<h1>&lt;script&gt;alert(1)&lt;/script&gt;&amp;.x07&#39;</h1>" "$page" && grep -q 'A &lt;Chip&gt; &amp; Co' "$page" || fail "not escaped: $(grep '<h1>' "$page")"

# A wrong stage: exit code 1, and the word; an error without a distance.
sed 's/"right": true/"right": false/; s/"beyond": 0/"beyond": 3/; s/"worst_ratio": [0-9.e-]*/"worst_ratio": 7.5/' "$tmp/diff.json" >"$tmp/wrong.json"
expect 1 "diff" "$moxie" report --diff "$tmp/wrong.json" -o "$page"
grep -q 'WRONG' "$page" && grep -q '>7.5 wrong<' "$page" || fail "not called wrong"
sed 's/"worst_ratio": 7.5/"worst_ratio": null/' "$tmp/wrong.json" >"$tmp/null.json"
expect 1 "diff" "$moxie" report --diff "$tmp/null.json" -o "$page"
grep -q '>no distance<' "$page" && shape "no distance"

# One batch; tokens without an expert; none at all.
sed 's/"rows": \[.*/"rows": ['"$(row 8 1.0 1.0 1.0 0.0 0.0 false)"'] }/' "$tmp/bench.json" >"$tmp/one.json"
printf '{"schema_version": 1, "command": "run", "tokens": 2, "experts": 3, "top_k": 2, "topk_ids": [-1, 3, 2, 2]}' >"$tmp/few.json"
expect 0 "bench run" "$moxie" report --bench "$tmp/one.json" --run "$tmp/few.json" -o "$page"
shape "one batch"
grep -q '1 of 3 experts have tokens. The fullest has 2' "$page" || fail "skipped choices count"
grep -q '<td class="n">2</td><td class="n">2</td><td class="n">100.00 %</td>' "$page" && grep -q '<title>expert 0: 0</title>' "$page" || fail "not the tokens of expert 2"
printf '{"schema_version": 1, "command": "run", "tokens": 0, "experts": 3, "top_k": 2, "topk_ids": []}' >"$tmp/none.json"
expect 0 "run" "$moxie" report --run "$tmp/none.json" -o "$page"
shape "no token"

# From a directory: everything is measured here.
expect 0 "bench explain run diff" "$moxie" report "$tmp/model" --tokens 1 --threads 1 -o "$page"
shape directory
grep -q "<h1>model</h1>" "$page" && [ "$(count '<section')" = 5 ] || fail "not all sections of a directory"

# Values that are not what they should be: file, value, and nothing is written.
rm -f "$page"
bad() {
    part=$1 text=$2
    shift 2
    sed "$@" "$tmp/$part.json" >"$tmp/bad.json"
    expect "${code_wanted:-3}" "bad.json: .*$text" "$moxie" report --$part "$tmp/bad.json" -o "$page"
    [ ! -e "$page" ] || fail "a page was written"
}
bad bench 'rows\[0\].median_ms is 0' 's/"median_ms": 4.5/"median_ms": 0/'
bad bench 'rows\[1\].tokens is no whole number' 's/"tokens": 1,/"tokens": 1.5,/'
bad bench 'no rows\[0\].floor_by' 's/"floor_by"/"by"/'
bad bench 'rows\[2\].note is no text' 's/\(.*\)"note": ""/\1"note": 3/'
bad bench 'rows\[0\].disturbed is neither' 's/"disturbed": true/"disturbed": 1/'
bad bench 'limits.read_gb_s is 0' 's/"read_gb_s": 100.0/"read_gb_s": 0.0/'
bad bench 'nothing was timed' 's/"rows": \[.*/"rows": [] }/'
bad bench 'rows is no array' 's/"rows": \[.*/"rows": 4 }/'
bad bench 'line 1, column' 's/"schema_version"/schema/'
bad run 'topk_ids has 72 numbers, and 8 tokens' 's/"tokens": 9/"tokens": 8/'
bad run 'experts is 4000' 's/"experts": 16/"experts": 4000/'
bad explain 'steps\[0\].chosen is neither' '0,/"chosen"/s/"chosen": [a-z]*/"chosen": 1/'
bad explain 'printed by `moxie run`' 's/"command": "explain"/"command": "run"/'
bad diff 'compares weights or ranks' 's/"reports"/"report"/'
code_wanted=4 bad run 'schema_version is 2' 's/"schema_version": 1/"schema_version": 2/'
expect 3 "it is the error of a command" sh -c "'$moxie' run /nowhere --json >'$tmp/error.json' 2>/dev/null; '$moxie' report --run '$tmp/error.json' -o '$page'"
expect 3 "cannot open" "$moxie" report --run "$tmp/nowhere.json" -o "$page"
expect 3 "there is no such directory" "$moxie" report "$tmp/nowhere" -o "$page"
expect 3 '"error"' "$moxie" report "$tmp/nowhere" -o "$page" --json
[ ! -e "$page" ] || fail "a page was written"
expect 3 "no such directory|cannot" "$moxie" report --run "$tmp/run.json" -o "$tmp/absent/page.html"

# Usage.
expect 2 "o FILE is needed" "$moxie" report "$tmp/model"
expect 2 "nothing to show" "$moxie" report -o "$page"
expect 2 "leave one of the two out" "$moxie" report "$tmp/model" --run "$tmp/run.json" -o "$page"
expect 2 "leave it out" "$moxie" report --run "$tmp/run.json" --tokens 4 -o "$page"
expect 2 "--isa is for measuring" "$moxie" report --run "$tmp/run.json" --isa scalar -o "$page"
expect 2 "numa is \"node=999\"" "$moxie" report "$tmp/model" --tokens 1 --numa node=999 -o "$page"
expect 2 "cuda" "$moxie" report "$tmp/model" --backend cud -o "$page"
finish
