#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A report in headless Chromium, 390 and 1280 pixels wide, light and dark: nothing is wider than its window, no label
# lies on another, colours follow the scheme, text has contrast. Chromium is too large for CI to install.
. "$(dirname "$0")/cli_lib.sh"
. "$(dirname "$0")/report_lib.sh"
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    { echo "skipped: no chromium (apt-get install chromium)"; exit 77; }
write_parts
# shellcheck disable=SC2086 # a list of options
"$moxie" report $parts -o "$tmp/page.html" >/dev/null

# The page in a frame, since a window cannot be as narrow as a phone; what is found replaces the document.
cat >"$tmp/head.html" <<'END'
<!DOCTYPE html><meta charset="utf-8"><body style="margin:0"><iframe id="f" style="border:0;height:3000px;width:WIDTHpx" srcdoc="
END
cat >"$tmp/tail.html" <<'END'
"></iframe><script>
function luminance(c) {
    const v = c.match(/[\d.]+/g).slice(0, 3).map(x => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2];
}
function overlap(a, b) { return a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1; }
function look() {
    const d = f.contentDocument, style = e => f.contentWindow.getComputedStyle(e), found = [];
    for (const e of d.querySelectorAll('details')) e.open = true;
    found.push('wide=' + (d.documentElement.scrollWidth > WIDTH ? d.documentElement.scrollWidth : 0));
    let touching = 0;
    for (const svg of d.querySelectorAll('svg')) {
        const boxes = [...svg.querySelectorAll('text:not([transform])')].map(t => t.getBoundingClientRect());
        boxes.forEach((a, i) => boxes.slice(i + 1).forEach(b => touching += overlap(a, b)));
    }
    found.push('touching=' + touching);
    const back = luminance(style(d.querySelector('section')).backgroundColor);
    let least = 21;
    for (const e of d.querySelectorAll('h1, h2, p, dt, dd, td, th, summary, code, .verdict')) {
        const ink = luminance(style(e).color);
        least = Math.min(least, (Math.max(ink, back) + 0.05) / (Math.min(ink, back) + 0.05));
    }
    found.push('scheme=' + (back < 0.2 ? 'dark' : 'light'), 'contrast=' + (least >= 4.5 ? 'fine' : least));
    found.push('columns=' + style(d.querySelector('main')).gridTemplateColumns.split(' ').length);
    found.push('loaded=' + f.contentWindow.performance.getEntriesByType('resource').length);
    document.documentElement.textContent = 'FOUND ' + found.join(' ');
}
f.contentDocument.readyState == 'complete' && f.contentDocument.querySelector('footer') ? look() : f.onload = look;
</script>
END
# see WIDTH SCHEME(1 light, 0 dark) WANTED
see() {
    { sed "s/WIDTH/$1/g" "$tmp/head.html"; sed 's/&/\&amp;/g; s/"/\&quot;/g' "$tmp/page.html"; sed "s/WIDTH/$1/g" "$tmp/tail.html"; } >"$tmp/frame.html"
    timeout 120 "$chromium" --headless --no-sandbox --disable-gpu --user-data-dir="$tmp/profile" --window-size=1400,3000 \
        --blink-settings=preferredColorScheme="$2" --virtual-time-budget=2000 --dump-dom "file://$tmp/frame.html" >"$tmp/dom" 2>"$tmp/err" ||
        { echo "skipped: chromium does not start here: $(tail -1 "$tmp/err")"; exit 77; }
    grep -q "FOUND $3" "$tmp/dom" || fail "$1 pixels, scheme $2: $(grep -o 'FOUND.*' "$tmp/dom" | head -c 300)"
}
see 390 1 "wide=0 touching=0 scheme=light contrast=fine columns=1 loaded=0"
see 390 0 "wide=0 touching=0 scheme=dark contrast=fine columns=1 loaded=0"
see 1280 1 "wide=0 touching=0 scheme=light contrast=fine columns=2 loaded=0"
finish
