#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/check-a-checkpoint.md, as written.
. "$(dirname "$0")/docs_lib.sh"
install_it
run_page docs/check-a-checkpoint.md
