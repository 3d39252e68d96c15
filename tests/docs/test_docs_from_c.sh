#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/use-from-c.md, as written.
. "$(dirname "$0")/docs_lib.sh"
install_it
run_page docs/use-from-c.md
