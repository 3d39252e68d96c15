/* SPDX-License-Identifier: Apache-2.0
 *
 * py_quantize.c - moxie.quantize(): a checkpoint's experts in another format.
 */
#include "py_moxie.h"

#include <stdlib.h>

#include <moxie/moxie_quantize.h>

#include "py_tables.h"

static const mpy_choice projections[] = {
    { "gate", MOXIE_PROJECTION_GATE }, { "up", MOXIE_PROJECTION_UP }, { "down", MOXIE_PROJECTION_DOWN }, { NULL, 0 }
};
static const mpy_choice scale_choices[] = { { "plain", MOXIE_SCALES_PLAIN },
                                            { "mse", MOXIE_SCALES_MSE },
                                            { "four-over-six", MOXIE_SCALES_FOUR_OVER_SIX },
                                            { NULL, 0 } };

static const mpy_field error_fields[] = { F(moxie_quantize_error, layer, I64),
                                          F(moxie_quantize_error, expert, I32),
                                          FM(moxie_quantize_error, projection, CHOICE, projections),
                                          F(moxie_quantize_error, squares, F64),
                                          F(moxie_quantize_error, weight_squares, F64),
                                          F(moxie_quantize_error, worst, F64),
                                          F(moxie_quantize_error, worst_row, I64),
                                          F(moxie_quantize_error, worst_col, I64),
                                          F(moxie_quantize_error, exact, FLAG),
                                          END };
const mpy_record mpy_matrix_record = { "QuantizeError", error_fields };

static const mpy_field summary_fields[] = {
    F(moxie_quantize_summary, layers, I64),        F(moxie_quantize_summary, resumed_layers, I64),
    F(moxie_quantize_summary, source_bytes, U64),  F(moxie_quantize_summary, expert_bytes, U64),
    F(moxie_quantize_summary, copied_bytes, U64),  F(moxie_quantize_summary, other_quantized, I64),
    F(moxie_quantize_summary, left_out, I64),      F(moxie_quantize_summary, tokens, I64),
    F(moxie_quantize_summary, no_tokenizer, TEXT), END
};
const mpy_record mpy_quantized_record = { "QuantizeReport", summary_fields };

/* The errors of all matrices; filled without the interpreter's lock. */
typedef struct gathered {
    moxie_quantize_error *at;
    size_t count, room;
    int failed;
} gathered;

static void gather(void *user, const moxie_quantize_error *error)
{
    gathered *g = user;
    if (g->count == g->room) {
        const size_t room = g->room > 0 ? 2 * g->room : 1024;
        moxie_quantize_error *grown = realloc(g->at, room * sizeof *grown);
        g->failed = g->failed || grown == NULL;
        if (grown == NULL)
            return;
        g->at = grown;
        g->room = room;
    }
    g->at[g->count++] = *error;
}

static PyObject *errors_of(const gathered *g)
{
    PyObject *list = g->failed ? PyErr_NoMemory() : PyList_New(0);
    for (size_t i = 0; list != NULL && i < g->count; i++) {
        PyObject *item = mpy_record_to_python(&mpy_matrix_record, &g->at[i], NULL, NULL);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static int show(void *user, uint64_t done, uint64_t total)
{
    return mpy_progress(user, (int64_t)done, (int64_t)total);
}

static PyObject *run(const char *dir, const char *out, moxie_quantize_options *options)
{
    moxie_quantize_summary summary = MOXIE_QUANTIZE_SUMMARY_INIT;
    gathered found = { NULL, 0, 0, 0 };
    moxie_error error = { 0 };
    moxie_status status;
    options->error = gather;
    options->error_user = &found;
    Py_BEGIN_ALLOW_THREADS status = moxie_quantize(dir, out, options, &summary, &error);
    Py_END_ALLOW_THREADS PyObject *made = NULL;
    if (status != MOXIE_OK) {
        mpy_raise(&error);
    } else {
        PyObject *list = errors_of(&found);
        made = list == NULL ? NULL : mpy_record_to_python(&mpy_quantized_record, &summary, NULL, list);
    }
    free(found.at);
    return made;
}

static PyObject *quantize(PyObject *module, PyObject *args, PyObject *named)
{
    static char *names[] = { "path",    "output",       "format",      "scales",   "input_amax13", "input_amax2",
                             "threads", "allow_unread", "allow_mixed", "progress", "imatrix",      NULL };
    moxie_quantize_options options = MOXIE_QUANTIZE_OPTIONS_INIT;
    mpy_option_args common = { 0 };
    mpy_options pool;
    const char *scales = "plain";
    PyObject *path = NULL, *output = NULL, *progress = Py_None, *imatrix = NULL, *made = NULL;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O&O&s|$sffOppOO&", names, PyUnicode_FSConverter, &path,
                                     PyUnicode_FSConverter, &output, &options.format, &scales, &options.input_amax13,
                                     &options.input_amax2, &common.threads, &options.allow_unread, &options.allow_mixed,
                                     &progress, mpy_path_or_none, &imatrix))
        return NULL;
    options.imatrix = imatrix != NULL ? PyBytes_AsString(imatrix) : NULL;
    if (mpy_choice_value(scale_choices, "scales", scales, &options.scales) == 0 &&
        mpy_options_get(&common, &pool) == 0) {
        options.executor = pool.c.executor;
        options.progress = progress != Py_None ? show : NULL;
        options.progress_user = progress;
        made = run(PyBytes_AsString(path), PyBytes_AsString(output), &options);
        mpy_options_release(&pool);
    }
    Py_DECREF(path);
    Py_DECREF(output);
    Py_XDECREF(imatrix);
    return made;
}

PyMethodDef mpy_quantize_functions[] = {
    { "quantize", (PyCFunction)(void (*)(void))quantize, METH_VARARGS | METH_KEYWORDS,
      "quantize(path, output, format, *, scales='plain', input_amax13=0.0, input_amax2=0.0, threads=None,\n"
      "         allow_unread=False, allow_mixed=False, progress=None, imatrix=None)\n--\n\n"
      "Writes a checkpoint with its routed experts in another number format: a QuantizeReport.\n\n"
      "`output` must be absent or empty; with a format \"gguf-...\" it is the file to make, and `path` may be a GGUF\n"
      "file. format: a name of formats(). scales: 'plain' by a group's largest magnitude,\n"
      "'mse' by least squared error, 'four-over-six' for NVFP4. input_amax13, input_amax2: largest magnitudes of "
      "hidden\n"
      "states and of W2's activations, for formats with static scales of activations. A call that was interrupted "
      "goes\n"
      "on where it was. allow_mixed: also when modules that are no experts are quantized, and the new configuration\n"
      "does not describe them. progress(done_bytes, total_bytes) ends the call by a true result. imatrix: a\n"
      "file of llama.cpp's importance matrix; it needs scales=\"mse\", or 'four-over-six'." },
    { NULL, NULL, 0, NULL }
};
