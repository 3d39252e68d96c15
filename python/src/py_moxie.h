/* SPDX-License-Identifier: Apache-2.0
 *
 * py_moxie.h - what the files of the extension module share. One file per object of Python:
 *
 *     py_module.c    the module: types, functions, exceptions       py_view.c      arrays in: buffer protocol, DLPack
 *     py_fields.c    C structs <-> Python objects, by tables        py_array.c     arrays out: moxie.Array
 *     py_tables.c    those tables                                   py_executor.c  threads, the options of a call
 *     py_model.c     Model                                          py_weights.c   Weights, py_stacked.c: from arrays
 *     py_layer.c     Layer                                          py_plan.c      Plan, py_run.c: its runs
 *     py_lists.c     presets, kernels, this machine, number formats py_scheme.c    vLLM's schemes
 *     py_checkpoint.c  lint, synth                                  py_routing.c   routing by a Python function
 *     py_comm.c      Comm, and two files more: py_comm.h            py_parallel.c  slot maps, vLLM's parallel configs
 *     py_adapters.c  Adapters: LoRA                                 py_mover.c     Mover: experts between ranks
 *     py_trace.c     routing traces
 *     py_workspace.c Workspace, memory that plans share             py_slices.c    what a rank holds and sends
 *     py_store.c     Store, and two files more: py_store.h
 *
 * Conventions. Functions that return PyObject * return a new reference, or NULL with an exception set. Functions that
 * return int return 0, or -1 with an exception set. Every call into libmoxie that can take long runs without the GIL.
 * Only the limited API of Python 3.11 is used, so one binary serves all later versions.
 */
#ifndef PY_MOXIE_H
#define PY_MOXIE_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include <moxie/moxie_adapters.h>
#include <moxie/moxie_ckpt.h>
#include <moxie/moxie_comm.h>
#include <moxie/moxie_parallel.h>
#include <moxie/moxie_scheme.h>

/* ---- errors (py_module.c) ------------------------------------------------------------------- */

/* Raises the exception that belongs to the error's status. When a callback of Python's raised before, that stays. */
void mpy_raise(const moxie_error *error);
/* Raises it for a failure that the binding itself found; the format is PyUnicode_FromFormat's. */
void mpy_fail(moxie_status status, const char *format, ...);
/* An attribute of a Python module of the package, for example ("moxie.records", "LayerInfo"). */
PyObject *mpy_import(const char *module, const char *name);

/* ---- arrays in (py_view.c) ------------------------------------------------------------------ */

enum { MPY_MAX_AXES = 8 };

/* Where an array's memory is, by DLPack's numbers. */
enum { MPY_HOST = 1, MPY_CUDA = 2, MPY_CUDA_HOST = 3, MPY_CUDA_MANAGED = 13 };

/* Somebody's array, borrowed until mpy_view_release(). `dtype` is what the array says that it holds; when it holds
 * plain unsigned integers they may be codes of another type of that size. */
typedef struct mpy_view {
    void *data;
    moxie_dtype dtype;
    int32_t axes;
    int32_t item_bytes;
    int64_t shape[MPY_MAX_AXES];
    int64_t strides[MPY_MAX_AXES]; /* in bytes */
    int32_t device_type, device;
    Py_buffer buffer;  /* one of these two holds the array */
    PyObject *capsule; /* DLPack's */
    bool has_buffer;
} mpy_view;

/* Looks into `object`: its buffer, else its __dlpack__; for number formats that neither can say, its view as unsigned
 * integers. `name` is for error texts. `stream`: on which CUDA stream the data will be used, for device memory. */
int mpy_view_get(PyObject *object, const char *name, bool writable, int64_t stream, mpy_view *out);
void mpy_view_release(mpy_view *view);
/* All elements in a row, last axis fastest. */
bool mpy_view_contiguous(const mpy_view *view);
/* Elements of a view: dtype, or unsigned integers of the same size, which are taken as its codes. */
bool mpy_view_holds(const mpy_view *view, moxie_dtype dtype);
bool mpy_view_on_gpu(const mpy_view *view);
/* "uint8 [4, 16] on the host" for error texts; a new reference. */
PyObject *mpy_view_words(const mpy_view *view);

/* ---- arrays out (py_array.c) ---------------------------------------------------------------- */

extern PyObject *mpy_array_type;
/* A new moxie.Array, contiguous, at a multiple of 64 bytes; its memory is not cleared. */
PyObject *mpy_array_new(moxie_dtype dtype, int32_t axes, const int64_t *shape);
/* A new array [count] of int64 or f64 from an iterable of `count` numbers; `name`: for the exception. */
PyObject *mpy_array_of_numbers(PyObject *object, const char *name, moxie_dtype dtype, int64_t count);
/* The same as a view of memory that `owner` keeps alive; read-only. `on_device`: only its address can be had here. */
PyObject *mpy_array_view(moxie_dtype dtype, int32_t axes, const int64_t *shape, const void *data, bool on_device,
                         PyObject *owner);
void *mpy_array_data(PyObject *array);
/* A moxie.Array of `dtype` with a copy of any array, or of a sequence of numbers. */
PyObject *mpy_array_from(PyObject *object, const char *name, moxie_dtype dtype);
/* Its shape; returns the number of axes. */
int32_t mpy_array_shape(PyObject *array, const int64_t **shape);
extern PyType_Spec mpy_array_spec;

/* ---- structs by tables (py_fields.c, py_tables.c) ------------------------------------------- */

typedef enum mpy_kind {
    MPY_I32,
    MPY_I64,
    MPY_U64,
    MPY_F32,
    MPY_F64,
    MPY_FLAG,    /* int32_t <-> bool */
    MPY_DTYPE,   /* moxie_dtype <-> its name, "" for none */
    MPY_CHOICE,  /* int32_t <-> a name of the list `more` */
    MPY_TEXT,    /* const char * -> str */
    MPY_CHARS,   /* char[] -> str */
    MPY_TEXTS,   /* const char *const * -> tuple of str; their number is the int32_t at `count` */
    MPY_PAIR,    /* int32_t[2] <-> tuple */
    MPY_STRUCT,  /* nested; `more` is its record */
    MPY_ARRAY,   /* const float * or const int32_t * <-> moxie.Array or None; `more` says which */
    MPY_ROUTE,   /* moxie_route_fn and its user <-> a callable or None; `more` is unused */
    MPY_SLOT_MAP /* const moxie_slot_map * <-> moxie.SlotMap or None */
} mpy_kind;

typedef struct mpy_choice {
    const char *name; /* NULL ends the list */
    int32_t value;
} mpy_choice;

typedef struct mpy_array_kind {
    moxie_dtype dtype;
    int64_t (*length)(const moxie_layer_config *config); /* entries that the array must have; NULL: see py_fields.c */
} mpy_array_kind;

typedef struct mpy_field {
    const char *name; /* of the attribute; NULL ends the table */
    mpy_kind kind;
    size_t offset;
    const void *more;
    size_t count;
} mpy_field;

/* A C struct and the class of moxie.records that mirrors it: the same fields in the same order. */
typedef struct mpy_record {
    const char *class_name;
    const mpy_field *fields;
} mpy_record;

extern const mpy_record mpy_layer_config_record, mpy_quant_record, mpy_activation_record, mpy_routing_record;
extern const mpy_record mpy_model_info_record, mpy_layer_info_record, mpy_step_record, mpy_stage_record;
extern const mpy_record mpy_difference_record, mpy_machine_record, mpy_kernel_record, mpy_limits_record;
extern const mpy_record mpy_preset_record, mpy_family_record, mpy_format_record, mpy_scheme_record;
extern const mpy_record mpy_scheme_args_record, mpy_finding_record, mpy_lint_info_record, mpy_rule_record;
extern const mpy_record mpy_cuda_info_record, mpy_cuda_device_record;
extern const mpy_record mpy_transport_info_record, mpy_losses_record, mpy_phase_record, mpy_mover_report_record;
extern const mpy_record mpy_parallel_args_record, mpy_parallel_record, mpy_fused_moe_args_record;
extern const mpy_record mpy_fused_moe_record, mpy_parallel_layer_record, mpy_all2all_record;
extern const mpy_record mpy_matrix_record, mpy_quantized_record;
/* Every record, NULL at the end. */
extern const mpy_record *const mpy_records[];
extern const mpy_choice mpy_backends[], mpy_modes[], mpy_token_layouts[], mpy_degraded[], mpy_expert_maps[];

/* The Python object of a C struct. `config` gives the lengths of arrays; NULL: the struct has none. `extra`, if not
 * NULL, becomes the value of one more field after the last; its reference is taken in any case. */
PyObject *mpy_record_to_python(const mpy_record *record, const void *data, const moxie_layer_config *config,
                               PyObject *extra);
/* Fills a C struct from a Python object with these attributes. Arrays are copied; `keep`, a list, holds the copies. */
int mpy_record_from_python(const mpy_record *record, PyObject *object, void *data, PyObject *keep);
/* A layer configuration, whose arrays have the lengths that it asks for. */
int mpy_config_from_python(PyObject *object, moxie_layer_config *config, PyObject *keep);
/* A moxie_slot_map from a moxie.SlotMap; `keep` holds it and its arrays. NULL with an exception. */
const moxie_slot_map *mpy_slot_map_from(PyObject *object, PyObject *keep);
PyObject *mpy_slot_map_to(const moxie_slot_map *map);
/* Routing by a Python callable (py_routing.c): fills custom and custom_user; `keep` holds what they need. */
int mpy_route_set(moxie_routing *routing, PyObject *callable, PyObject *keep);
void mpy_route_sizes(moxie_routing *routing, const moxie_layer_config *config);
/* The callable, borrowed; None where there is none of Python's. */
PyObject *mpy_route_get(const moxie_routing *routing);
int mpy_choice_value(const mpy_choice *list, const char *what, const char *name, int32_t *out);

/* ---- options of a call (py_executor.c) ------------------------------------------------------ */

extern PyObject *mpy_executor_type;
extern PyType_Spec mpy_executor_spec;

/* Options with what they point to. */
typedef struct mpy_options {
    moxie_options c;
    char isa[16], device[32];
    PyObject *executor; /* a reference */
    PyObject *progress; /* borrowed */
    PyObject *comm;     /* borrowed, and in use until mpy_options_release() */
} mpy_options;

/* The keywords of a call that takes options, all optional; their formats for PyArg_ParseTupleAndKeywords, and where the
 * values go. */
#define MPY_OPTION_KEYWORDS                                                                                            \
    "backend", "mode", "isa", "max_tokens", "threads", "device", "progress", "comm", "token_layout",                   \
        "max_adapter_rank", "exchange_capacity", "degraded", "spare_slots", "exchange_chunk", "exchange_streams",      \
        "call_graphs"
#define MPY_OPTION_FORMATS "zzzLOzOOziLziLLL"
#define MPY_OPTION_TARGETS(o)                                                                                          \
    &(o).backend, &(o).mode, &(o).isa, &(o).max_tokens, &(o).threads, &(o).device, &(o).progress, &(o).comm,           \
        &(o).token_layout, &(o).max_adapter_rank, &(o).exchange_capacity, &(o).degraded, &(o).spare_slots,             \
        &(o).exchange_chunk, &(o).exchange_streams, &(o).call_graphs
typedef struct mpy_option_args {
    const char *backend, *mode, *isa, *device, *token_layout, *degraded;
    long long max_tokens, exchange_capacity, exchange_chunk, exchange_streams, call_graphs;
    int max_adapter_rank, spare_slots;
    PyObject *threads, *progress, *comm;
} mpy_option_args;
int mpy_options_get(const mpy_option_args *args, mpy_options *out);
void mpy_options_release(mpy_options *options);
/* For moxie_progress_fn: calls `user`, a callable of (done, total); true or an exception ends the work. */
int mpy_progress(void *user, int64_t done, int64_t total);
/* Converter of "O&" for an unsigned long long: a whole number from 0 on, or OverflowError. */
int mpy_size_get(PyObject *object, void *out);
/* For "O&": None is NULL, a path a new reference to its bytes. */
int mpy_path_or_none(PyObject *object, void *out);

/* ---- ranks (py_comm.c) ---------------------------------------------------------------------- */

typedef struct mpy_comm mpy_comm;
extern PyObject *mpy_comm_type, *mpy_mover_type;
extern PyType_Spec mpy_comm_spec, mpy_mover_spec;
/* The C comm of a moxie.Comm; NULL with an exception for anything else, and for a closed one. */
moxie_comm *mpy_comm_get(PyObject *object);
/* One run or operation at a time; without the GIL. `self` may be NULL. */
void mpy_comm_lock(mpy_comm *self);
void mpy_comm_unlock(mpy_comm *self);
/* So many users more; with the GIL. close() refuses while there are some. `self` may be NULL. */
void mpy_comm_use(mpy_comm *self, int32_t users);
/* mpy_raise() for a call that used the comm: an exception of its transport is the cause. `self` may be NULL. */
void mpy_comm_raise(mpy_comm *self, const moxie_error *error);
/* A call succeeded in spite of the transport's exceptions. */
void mpy_comm_forget(mpy_comm *self);

/* ---- LoRA (py_adapters.c) ------------------------------------------------------------------- */

extern PyObject *mpy_adapters_type;
extern PyType_Spec mpy_adapters_spec;
/* What runs get; NULL with an exception for what is no moxie.Adapters. */
const moxie_adapters *mpy_adapters_get(PyObject *object);

/* ---- objects -------------------------------------------------------------------------------- */

extern PyObject *mpy_model_type, *mpy_weights_type, *mpy_weights_class, *mpy_layer_type, *mpy_plan_type;
extern PyType_Spec mpy_model_spec, mpy_weights_spec, mpy_layer_spec, mpy_plan_spec;

typedef struct mpy_weights {
    PyObject_HEAD const moxie_weights *weights; /* the layer's of a model, or `own` */
    const moxie_layer_config *config;
    moxie_model_layer *loaded; /* of a model */
    PyObject *owner;           /* of a model or an expert file, which it keeps open */
    moxie_weights own;
    moxie_layer_config own_config;
    moxie_expert *experts; /* [n_experts] and, behind them, the shared one */
    mpy_view *views;
    int32_t n_views;
    PyObject *keep; /* list of the arrays that own_config points to */
} mpy_weights;

/* The C model of a moxie.Model. */
const moxie_model *mpy_model_get(PyObject *object);

PyObject *mpy_weights_of_model(PyObject *model, moxie_model_layer *loaded);
/* Weights that `owner` keeps alive, such as an expert file's. */
PyObject *mpy_weights_of(PyObject *owner, const moxie_weights *weights, const moxie_layer_config *config);
/* Fills self->own from the arrays of the mapping (py_stacked.c). */
int mpy_weights_stack(mpy_weights *self, PyObject *arrays);

/* Sizes that runs need. */
typedef struct mpy_sizes {
    moxie_dtype dtype;
    int64_t experts; /* with zero experts: the width of logits */
    int64_t top_k, hidden, router_width;
} mpy_sizes;
mpy_sizes mpy_sizes_of(const moxie_layer_config *config);

typedef struct mpy_layer mpy_layer;
const moxie_layer *mpy_layer_get(const mpy_layer *layer);
const mpy_sizes *mpy_layer_sizes(const mpy_layer *layer);
/* Runs share the layer; what changes its experts has it alone. Both are called without the GIL. */
moxie_layer *mpy_layer_change(mpy_layer *layer);
void mpy_layer_alone(mpy_layer *layer);
void mpy_layer_share(mpy_layer *layer);
void mpy_layer_done(mpy_layer *layer);

/* Host memory that plans share (py_workspace.c). */
typedef struct mpy_workspace mpy_workspace;
extern PyObject *mpy_workspace_type;
extern PyType_Spec mpy_workspace_spec;
int mpy_workspace_reserve(mpy_workspace *self, uint64_t bytes);
/* Its memory, for one run; without the GIL. */
void *mpy_workspace_lock(mpy_workspace *self);
void mpy_workspace_unlock(mpy_workspace *self);

typedef struct mpy_plan mpy_plan;
struct mpy_plan {
    PyObject_HEAD moxie_plan *plan;
    mpy_layer *layer; /* a reference; NULL for an explained plan */
    PyObject *executor;
    mpy_comm *comm; /* a reference; NULL: this rank alone */
    mpy_sizes sizes;
    bool on_gpu;
    int32_t device; /* its number, on a GPU */
    uint64_t workspace_bytes;
    void *host_workspace;
    mpy_workspace *shared;   /* a reference; NULL: host_workspace */
    PyObject *gpu_workspace; /* an array of the caller's, or one made in the first run */
    void *lock;              /* one run at a time */
};
/* Host memory for runs; NULL with an exception when there is none. */
void *mpy_plan_workspace(uint64_t bytes);
/* Methods of Plan that run it (py_run.c). */
PyObject *mpy_plan_run(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *mpy_plan_route(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *mpy_plan_lookahead(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *mpy_plan_experts(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *mpy_plan_combine(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *mpy_plan_check(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
PyObject *mpy_plan_run_pointers(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
int mpy_run_init(void);

/* Functions of the module, each file's table ends with a NULL name. */
extern PyMethodDef mpy_list_functions[], mpy_scheme_functions[], mpy_checkpoint_functions[], mpy_quantize_functions[];
extern PyMethodDef mpy_comm_functions[], mpy_parallel_functions[], mpy_slice_functions[], mpy_trace_functions[];

#endif /* PY_MOXIE_H */
