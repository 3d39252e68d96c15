#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Go program, built by cgo against an installed copy, does what the C one does. gofmt and vet find nothing.
. "$(dirname "$0")/bindings_lib.sh"
command -v go >/dev/null || skip "no go (apt-get install golang-go; half a minute, so CI does without)"
install_it
export GOCACHE="$tmp/go-cache" GOFLAGS=-mod=mod GOPROXY=off CGO_ENABLED=1
cd bindings/go
[ -z "$(gofmt -l .)" ] || fail "gofmt: $(gofmt -d .)"
go vet ./... || fail "go vet"
go build -o "$tmp/one_layer" ./one_layer || fail "go build"
cd "$root"
same_as_c "$tmp/one_layer"
