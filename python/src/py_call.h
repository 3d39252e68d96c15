/* SPDX-License-Identifier: Apache-2.0
 *
 * py_call.h - the arrays of one run: from Python's arguments to moxie_run_args (py_call.c), for the methods in
 * py_run.c.
 */
#ifndef PY_CALL_H
#define PY_CALL_H

#include "py_moxie.h"

typedef enum mpy_operand {
    HIDDEN,
    ROUTER_HIDDEN,
    LOGITS,
    TOKEN_IDS,
    IDS,
    WEIGHTS,
    OUT,
    IDS_OUT,
    WEIGHTS_OUT,
    LOGITS_OUT,
    PADDING,
    BIAS_CHOICE,
    ADAPTER_IDS,
    ROWS, /* of experts and combine */
    N_OPERANDS,
    STREAM = N_OPERANDS,
    ADAPTERS,
    N_ARGUMENTS
} mpy_operand;

/* One call: what was given, the views of it, and what the library gets. */
typedef struct mpy_call {
    mpy_plan *plan;
    PyObject *given[N_ARGUMENTS]; /* borrowed; NULL: not given */
    PyObject *made[N_OPERANDS];   /* references to outputs made here */
    mpy_view views[N_OPERANDS];
    int used[N_OPERANDS], n_used;
    moxie_run_args args;
    void *rows;
    bool rows_written; /* rows are a result, not an operand */
    bool on_device;
    int64_t stream;
} mpy_call;

/* Positional arguments stand for `order`; the rest come by name, each of them one of `allowed` (bits). */
int mpy_call_arguments(mpy_call *c, PyObject *const *args, Py_ssize_t n, PyObject *keywords, const mpy_operand *order,
                       int n_order, uint32_t allowed);
/* Views all arrays that were given; `first` must be, and says how many tokens there are. */
int mpy_call_take(mpy_call *c, mpy_operand first);
/* An output that was given, or a new one of the kind of `like`; a borrowed reference. */
PyObject *mpy_call_output(mpy_call *c, mpy_operand id, PyObject *like);
/* Workspace where the other arrays are. */
int mpy_call_workspace(mpy_call *c, PyObject *like);
void mpy_call_release(mpy_call *c);

#endif /* PY_CALL_H */
