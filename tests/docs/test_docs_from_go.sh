#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/use-from-go.md, as written.
. "$(dirname "$0")/docs_lib.sh"
command -v go >/dev/null || skip "no go (apt-get install golang-go; half a minute, so CI does without)"
export GOCACHE="$tmp/go-cache" GOPROXY=off
install_it
run_page docs/use-from-go.md
