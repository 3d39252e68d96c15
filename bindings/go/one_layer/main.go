// SPDX-License-Identifier: Apache-2.0

// one_layer: the first MoE layer of a checkpoint on four tokens of made-up hidden states, as examples/one_layer.c:
//
//	one_layer DIR
//
// cgo calls libmoxie as it is. Two rules of cgo shape the program. C may keep no pointer to Go memory, and memory that C
// reads may hold none either: so what a struct points to (names, rows, workspace) is C memory. And results come by
// out-parameters, which are C variables' addresses.
package main

/*
#cgo pkg-config: moxie
#include <stdlib.h>
#include <moxie/moxie_ckpt.h>

// The _INIT macros are initialisers, which cgo cannot see.
static moxie_model_layer_info new_layer_info(void) { return (moxie_model_layer_info)MOXIE_MODEL_LAYER_INFO_INIT; }
static moxie_options new_options(void) { return (moxie_options)MOXIE_OPTIONS_INIT; }
static moxie_run_args new_run_args(void) { return (moxie_run_args)MOXIE_RUN_ARGS_INIT; }
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"
)

const (
	tokens = 4
	shown  = 6
)

// failed turns a status into an error with the library's text; nil when all is well.
func failed(status C.moxie_status, e *C.moxie_error) error {
	if status == C.MOXIE_OK {
		return nil
	}
	text := C.GoString(&e.text[0])
	if file := C.GoString(&e.file[0]); file != "" {
		text = file + ": " + text
	}
	return errors.New(text)
}

// numbers gives those of one_layer.c, from -0.5 up to 0.5.
type numbers uint32

func (n *numbers) next() float32 {
	*n = *n*1664525 + 1013904223
	return float32(*n>>8)/16777216 - 0.5
}

// layer is a prepared layer with a plan for runs of up to `tokens` tokens.
type layer struct {
	raw    *C.moxie_layer
	plan   *C.moxie_plan
	config C.moxie_layer_config
}

func (l *layer) free() {
	C.moxie_plan_destroy(l.plan)
	C.moxie_layer_destroy(l.raw)
}

// prepare packs the first MoE layer of the checkpoint in `dir`. Model and views go: the layer owns its experts.
func prepare(dir string) (l layer, err error) {
	var e C.moxie_error
	var model *C.moxie_model
	var loaded *C.moxie_model_layer
	info, options := C.new_layer_info(), C.new_options()
	options.max_tokens = tokens // the workspace is for so many, not for 4096
	name := C.CString(dir)
	defer C.free(unsafe.Pointer(name))
	if err = failed(C.moxie_model_open(name, nil, &model, &e), &e); err != nil {
		return
	}
	defer C.moxie_model_close(model)
	if err = failed(C.moxie_model_describe_layer(model, 0, &info, &e), &e); err != nil {
		return
	}
	if err = failed(C.moxie_model_load_layer(model, info.layer, &loaded, &e), &e); err != nil {
		return
	}
	defer C.moxie_model_layer_free(loaded)
	config := C.moxie_model_layer_config(loaded)
	l.config = *config
	if err = failed(C.moxie_layer_create(config, &options, &l.raw, &e), &e); err != nil {
		return
	}
	if err = failed(C.moxie_layer_prepare(l.raw, C.moxie_model_layer_weights(loaded), nil, &e), &e); err != nil {
		return
	}
	err = failed(C.moxie_plan_create(l.raw, &options, &l.plan, &e), &e)
	return
}

// rows is C memory of `count` elements of the layer's own type, which has 2 or 4 bytes.
type rows struct {
	data  unsafe.Pointer
	dtype C.moxie_dtype
	count int
}

func newRows(dtype C.moxie_dtype, count int) rows {
	return rows{C.calloc(C.size_t(count), 4), dtype, count}
}

func (r rows) set(i int, value float32) {
	code := C.moxie_encode(r.dtype, C.float(value))
	if r.dtype == C.MOXIE_F32 {
		unsafe.Slice((*uint32)(r.data), r.count)[i] = uint32(code)
	} else {
		unsafe.Slice((*uint16)(r.data), r.count)[i] = uint16(code)
	}
}

func (r rows) at(i int) float32 {
	if r.dtype == C.MOXIE_F32 {
		return float32(C.moxie_decode(r.dtype, C.uint32_t(unsafe.Slice((*uint32)(r.data), r.count)[i])))
	}
	return float32(C.moxie_decode(r.dtype, C.uint32_t(unsafe.Slice((*uint16)(r.data), r.count)[i])))
}

func run(dir string) error {
	l, err := prepare(dir)
	defer l.free()
	if err != nil {
		return err
	}
	width, topK := int(l.config.hidden), int(l.config.top_k)
	hidden, output := newRows(l.config.dtype, tokens*width), newRows(l.config.dtype, tokens*width)
	defer C.free(hidden.data)
	defer C.free(output.data)
	state := numbers(1)
	for i := 0; i < hidden.count; i++ {
		hidden.set(i, state.next())
	}
	ids := (*C.int32_t)(C.calloc(C.size_t(tokens*topK), 4))
	tokenIDs := (*C.int32_t)(C.calloc(tokens, 4)) // read only where a table of token ids routes
	defer C.free(unsafe.Pointer(ids))
	defer C.free(unsafe.Pointer(tokenIDs))

	args := C.new_run_args()
	args.tokens = tokens
	args.hidden, args.output = hidden.data, output.data
	args.token_ids, args.ids_out = tokenIDs, ids
	args.workspace_bytes = C.moxie_plan_workspace_bytes(l.plan)
	args.workspace = C.aligned_alloc(64, C.size_t(args.workspace_bytes))
	defer C.free(args.workspace)
	var e C.moxie_error
	if err = failed(C.moxie_plan_run(l.plan, &args, &e), &e); err != nil {
		return err
	}
	for t := 0; t < tokens; t++ {
		fmt.Printf("token %d, first expert %d:", t, unsafe.Slice(ids, tokens*topK)[t*topK])
		for i := 0; i < shown && i < width; i++ {
			fmt.Printf(" %9.5f", output.at(t*width+i))
		}
		fmt.Println()
	}
	return nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintf(os.Stderr, "usage: %s MODEL_DIRECTORY\n", os.Args[0])
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
