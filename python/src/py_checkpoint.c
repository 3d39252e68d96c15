/* SPDX-License-Identifier: Apache-2.0
 *
 * py_checkpoint.c - whole checkpoints: what is wrong in one (lint), a made-up one (synth).
 */
#include "py_moxie.h"

#include <moxie/moxie_lint.h>

static PyObject *findings_of(const moxie_lint *lint)
{
    moxie_finding finding = MOXIE_FINDING_INIT;
    PyObject *list = PyList_New(0);
    for (int64_t i = 0; list != NULL && moxie_lint_finding_at(lint, i, &finding); i++) {
        PyObject *item = mpy_record_to_python(&mpy_finding_record, &finding, NULL, NULL);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *run_lint(const char *dir, const moxie_lint_options *options)
{
    moxie_lint *report = NULL;
    moxie_lint_info info = MOXIE_LINT_INFO_INIT;
    moxie_error error = { 0 };
    moxie_status status;
    Py_BEGIN_ALLOW_THREADS status = moxie_lint_run(dir, options, &report, &error);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK) status = moxie_lint_get_info(report, &info, &error);
    if (status != MOXIE_OK) {
        moxie_lint_free(report);
        mpy_raise(&error);
        return NULL;
    }
    PyObject *findings = findings_of(report);
    PyObject *made = findings == NULL ? NULL : mpy_record_to_python(&mpy_lint_info_record, &info, NULL, findings);
    moxie_lint_free(report);
    return made;
}

static PyObject *lint(PyObject *module, PyObject *args, PyObject *named)
{
    static char *names[] = { "path", "deep", "first_layer", "last_layer", "only", "progress", "model", NULL };
    moxie_lint_options options = MOXIE_LINT_OPTIONS_INIT;
    PyObject *path = NULL, *model = NULL, *progress = Py_None;
    int deep = 0;
    long long first = -1, last = -1;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O&|$pLLzOO&", names, PyUnicode_FSConverter, &path, &deep, &first,
                                     &last, &options.only, &progress, mpy_path_or_none, &model))
        return NULL;
    options.deep = deep;
    options.some_layers = first >= 0 || last >= 0;
    options.first_layer = first < 0 ? 0 : first;
    options.last_layer = last < 0 ? first : last;
    if (progress != Py_None) {
        options.progress = mpy_progress;
        options.progress_user = progress;
    }
    options.model = model != NULL ? PyBytes_AsString(model) : NULL;
    PyObject *report = run_lint(PyBytes_AsString(path), &options);
    Py_DECREF(path);
    Py_XDECREF(model);
    return report;
}

static PyObject *lint_rules(PyObject *module, PyObject *none)
{
    moxie_lint_rule rule = MOXIE_LINT_RULE_INIT;
    PyObject *list = PyList_New(0);
    (void)module, (void)none;
    for (int32_t i = 0; list != NULL && moxie_lint_rule_at(i, &rule); i++) {
        PyObject *item = mpy_record_to_python(&mpy_rule_record, &rule, NULL, NULL);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static int synth_progress(void *user, uint64_t done, uint64_t total)
{
    return mpy_progress(user, (int64_t)done, (int64_t)total);
}

static PyObject *synth(PyObject *module, PyObject *args, PyObject *named)
{
    static char *names[] = { "preset",       "path", "format",      "layers",   "experts", "hidden",
                             "intermediate", "seed", "shard_bytes", "progress", NULL };
    moxie_synth_options options = MOXIE_SYNTH_OPTIONS_INIT;
    const char *preset;
    PyObject *path = NULL, *progress = Py_None;
    long long layers = 0, experts = 0, hidden = 0, intermediate = 0;
    unsigned long long seed = 0, shard_bytes = 0;
    moxie_error error = { 0 };
    moxie_status status;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, named, "sO&|$zLLLLKKO", names, &preset, PyUnicode_FSConverter, &path,
                                     &options.format, &layers, &experts, &hidden, &intermediate, &seed, &shard_bytes,
                                     &progress))
        return NULL;
    options.layers = layers, options.experts = experts, options.hidden = hidden, options.intermediate = intermediate;
    options.seed = seed, options.shard_bytes = shard_bytes;
    if (progress != Py_None) {
        options.progress = synth_progress;
        options.progress_user = progress;
    }
    const char *dir = PyBytes_AsString(path);
    Py_BEGIN_ALLOW_THREADS status = moxie_synth_write(preset, dir, &options, &error);
    Py_END_ALLOW_THREADS Py_DECREF(path);
    if (status == MOXIE_OK)
        Py_RETURN_NONE;
    mpy_raise(&error);
    return NULL;
}

PyMethodDef mpy_checkpoint_functions[] = {
    { "lint", (PyCFunction)(void (*)(void))lint, METH_VARARGS | METH_KEYWORDS,
      "lint(path, *, deep=False, first_layer=-1, last_layer=-1, only=None, progress=None, model=None)\n--\n\n"
      "What is wrong or suspicious in a checkpoint directory, or in a LoRA adapter's: a LintReport.\n\n"
      "deep=True reads the numbers, too, not only the files' headers. first_layer and last_layer restrict it to some\n"
      "layers, `only` to one rule (lint_rules() lists them). progress(done, total) ends the call by a true result.\n"
      "model: of an adapter, the model whose layers and sizes it must have." },
    { "lint_rules", lint_rules, METH_NOARGS, "lint_rules()\n--\n\nEvery rule of lint(): a list of LintRule." },
    { "synth", (PyCFunction)(void (*)(void))synth, METH_VARARGS | METH_KEYWORDS,
      "synth(preset, path, *, format=None, layers=0, experts=0, hidden=0, intermediate=0, seed=0,\n"
      "      shard_bytes=0, progress=None)\n--\n\n"
      "Writes a checkpoint with a real model's names, shapes and config.json, and random weights.\n\n"
      "`path` must be absent or empty. format: a name of formats(), None for the preset's first. layers, experts, "
      "hidden,\n"
      "intermediate: 0 for the model's own. Equal arguments give equal bytes. progress(done_bytes, total_bytes) ends "
      "the\n"
      "call by a true result." },
    { NULL, NULL, 0, NULL }
};
