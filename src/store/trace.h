/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.h - writing and reading trace files: the bodies of moxie_trace_* (moxie_trace.h). Structs are the library's own
 * size; pointers are checked.
 */
#ifndef MOX_STORE_TRACE_H
#define MOX_STORE_TRACE_H

#include <moxie/moxie_trace.h>

#include "base/status.h"

/* trace_writer.c */
moxie_status mox_trace_writer_create(const char *path, const moxie_trace_info *info, moxie_trace_writer **out,
                                     moxie_error *error);
moxie_status mox_trace_writer_add(moxie_trace_writer *writer, const moxie_trace_step *step, moxie_error *error);
moxie_status mox_trace_writer_finish(moxie_trace_writer *writer, moxie_error *error);
void mox_trace_writer_destroy(moxie_trace_writer *writer);

/* trace_reader.c */
int mox_trace_is_trace(const char *path);
moxie_status mox_trace_open(const char *path, moxie_trace **out, moxie_error *error);
void mox_trace_close(moxie_trace *trace);
const moxie_trace_info *mox_trace_info_of(const moxie_trace *trace);
moxie_status mox_trace_read(moxie_trace *trace, int64_t index, moxie_trace_step *step, moxie_error *error);

#endif
