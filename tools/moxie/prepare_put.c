/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_put.c - the last step for an expert that was packed or unpacked: writes its pieces to the file and hashes its
 * bytes in the checkpoint, at the same time.
 *
 *     task 0          hash of the spans
 *     task 1 .. n     one piece each: written, and summed for the seal
 *
 * All threads that packed do this too, so none waits for a single writer. Writing while the next expert is packed would
 * need a second expert's memory.
 */
#include <stdatomic.h>

#include "prepare.h"

typedef struct put_work {
    moxie_sealed_writer *writer;
    const prepare_piece *pieces;
    const prepare_span *spans;
    int n_spans;
    uint64_t hash;
    atomic_flag failed; /* the first failure fills the error */
    moxie_status status;
    moxie_error *error;
} put_work;

static void one_task(void *context, int64_t task, int32_t worker)
{
    (void)worker;
    put_work *w = context;
    if (task == 0) {
        w->hash = prepare_span_hash(w->spans, w->n_spans);
        return;
    }
    moxie_error error;
    const prepare_piece *piece = &w->pieces[task - 1];
    const moxie_status status = moxie_sealed_writer_put(w->writer, piece->tensor, piece->piece, piece->data, &error);
    if (status != MOXIE_OK && !atomic_flag_test_and_set(&w->failed)) {
        w->status = status;
        *w->error = error;
    }
}

moxie_status prepare_put(moxie_sealed_writer *writer, const prepare_piece *pieces, int64_t count,
                         const prepare_span *spans, int n_spans, uint64_t *hash, const moxie_executor *executor,
                         moxie_error *error)
{
    put_work w = { .writer = writer,
                   .pieces = pieces,
                   .spans = spans,
                   .n_spans = n_spans,
                   .failed = ATOMIC_FLAG_INIT,
                   .status = MOXIE_OK,
                   .error = error };
    executor->run(executor->self, 1 + count, one_task, &w);
    *hash = w.hash;
    return w.status;
}
