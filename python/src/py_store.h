/* SPDX-License-Identifier: Apache-2.0
 *
 * py_store.h - expert files (py_expert_file.c, py_expert_write.c) and stores (py_store.c): what they share, and what
 * Layer and Plan need of them.
 */
#ifndef PY_STORE_H
#define PY_STORE_H

#include "py_moxie.h"

#include <moxie/moxie_store.h>

extern PyObject *mpy_expert_file_type, *mpy_store_type;
extern PyType_Spec mpy_expert_file_spec, mpy_store_spec;

extern const mpy_record mpy_expert_target_record, mpy_expert_file_info_record, mpy_expert_record_record;
extern const mpy_record mpy_store_info_record, mpy_store_counters_record, mpy_read_engine_record, mpy_disk_rate_record;

/* The file of a moxie.ExpertFile, or of a layer of a moxie.Store; NULL with an exception for anything else, and for a
 * layer that the store does not have. */
const moxie_expert_file *mpy_stored_file(PyObject *source, int64_t layer);
/* A layer of it; the caller holds a reference to `source` as long as the layer lives. Without the GIL. */
moxie_status mpy_stored_layer(PyObject *source, int64_t layer, const moxie_layer_config *config,
                              const moxie_options *options, moxie_layer **out, moxie_error *error);
moxie_store *mpy_store_get(PyObject *object);

/* Static methods of ExpertFile (py_expert_write.c). */
PyObject *mpy_expert_file_write(PyObject *type, PyObject *args, PyObject *named);
PyObject *mpy_expert_file_replace(PyObject *type, PyObject *args, PyObject *named);

extern PyMethodDef mpy_store_functions[];

#endif /* PY_STORE_H */
