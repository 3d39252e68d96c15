/* SPDX-License-Identifier: Apache-2.0
 *
 * store.h - a store: the layers of a model in less memory than they need (docs/store.md).
 *
 *     file of layer l --record_reader--> buffer --fetch--> run of layer l
 *
 *     buffers | record | record | ... |     one block; each holds a record of any layer, or is free
 *
 * An expert that the layer's cache keeps (expert_cache.h) has a buffer for as long as it is kept: that buffer is its
 * slot. The others are read buffers: a run reads an expert there, computes it and gives the buffer back. So there are
 * layers x slots + read buffers, and never more kept experts than layers x slots.
 *
 *     free --claim--> reading --> ready --release--> free, unless the expert is kept
 *     free --prefetch--> reading --> ready: a guess, until a run of the layer claims it or goes without it
 *
 * One mutex guards all of it. Reads go on without it; one thread at a time waits for them (store_buffers.c), the others
 * wait for that one's news.
 *
 *     store_open.c      files, budget, layers; and the way back
 *     store_buffers.c   buffers and their reads
 *     store_fetch.c     the record source of a layer: one session for each run
 *     store_prefetch.c  guesses
 *     store_counters.c  what runs did
 *     store_device.c    the tier on a GPU: copies out of these buffers (store_device.h)
 *     store_host.c      a store beside it: experts that CPU kernels compute where they lie
 */
#ifndef MOX_STORE_STORE_H
#define MOX_STORE_STORE_H

#include <pthread.h>

#include "layer/weights/device_source.h"
#include "layer/weights/record_source.h"
#include "store/expert_cache.h"
#include "store/expert_file.h"
#include "store/record_reader.h"

typedef struct mox_store_device mox_store_device;

typedef enum mox_buffer_state {
    MOX_BUFFER_FREE,
    MOX_BUFFER_READING,
    MOX_BUFFER_READY,
    MOX_BUFFER_FAILED
} mox_buffer_state;

typedef struct mox_buffer {
    void *data;
    mox_buffer_state state;
    int32_t layer, expert; /* of what it holds */
    int32_t claims;        /* sessions that will compute it, or do */
    bool guess;            /* prefetched, and no run asked for it yet */
    uint64_t order;        /* of reads: which one it was */
    bool damaged;          /* FAILED: the bytes came, with another checksum */
    mox_read_request request;
} mox_buffer;

typedef struct mox_store_layer mox_store_layer;
struct mox_store_layer {
    moxie_store *store;
    moxie_expert_file *file;
    int32_t number;            /* in the store */
    mox_expert_entry *entries; /* [E + 1] the index, copied: a file that is cut off loses mapped pages */
    mox_expert_cache *cache;
    int64_t warm_left;       /* runs until the cache has learned; -1: it has */
    int32_t *buffer_of;      /* [E] -1: none */
    int32_t guesses;         /* buffers that hold some */
    mox_cache_place *places; /* [E] scratch of a step */
    bool *used;              /* [E] scratch of a step */
    void *shared_record;     /* or NULL */
    mox_record_source source;
    /* On a GPU (store_device.h). */
    mox_expert_cache *device_cache;
    int64_t device_warm_left;
    int32_t *device_holds; /* [device_slots] the expert whose record is in a slot; -1: none */
    mox_device_source device_source;
    mox_store_layer *beside; /* the same layer in store->host; NULL: the GPU computes all experts */
    moxie_store_counters total, last;
};

struct moxie_store {
    pthread_mutex_t mutex;
    pthread_cond_t news; /* a read ended, or a buffer became free */
    bool locks;          /* both were made */
    bool waits;          /* a thread waits for reads */
    bool prefetches, verifies;
    const mox_cache_policy *policy; /* of the slots, on a GPU where there is a tier of one */
    mox_reader *reader;
    mox_store_layer *layers; /* [n_layers] by number */
    int32_t n_layers;
    int32_t slots;         /* of each layer */
    int32_t read_buffers;  /* buffers besides them */
    uint64_t record_bytes; /* of a buffer */
    uint64_t shared_bytes;
    void *memory;        /* pinned where there is a tier on a GPU */
    mox_buffer *buffers; /* [n_buffers] */
    int32_t n_buffers;
    int32_t *free; /* [n_free] of room for n_buffers */
    int32_t n_free;
    int32_t reading;          /* buffers that are being read */
    uint64_t n_reads;         /* begun so far */
    mox_store_device *device; /* the tier on a GPU (store_device.h); NULL: there is none */
    int32_t device_slots;     /* of each layer */
    int32_t device_buffers;   /* for copies, besides them */
    uint64_t device_record_bytes, device_shared_bytes;
    moxie_store *host; /* of experts without a slot on the GPU, which the CPU computes; NULL: it computes none */
    bool is_host;      /* this is such a store: the GPU computes the shared experts */
};

/* ---- buffers; the caller holds the mutex (store_buffers.c) ------------------------------------------ */

/* Why an expert is read. A guess may be refused (store_buffers.c); a run that is stuck, since it has nothing to
 * compute, takes the buffer of the oldest guess when none is free. */
typedef enum mox_store_why { MOX_STORE_GUESS, MOX_STORE_NEEDED, MOX_STORE_STUCK } mox_store_why;
/* Begins to read an expert; its buffer, or -1: there is none now. */
int32_t mox_store_read(mox_store_layer *layer, int32_t expert, mox_store_why why);
/* Takes back a claim, and frees the buffer if nobody needs it. */
void mox_store_release(moxie_store *store, int32_t buffer);
/* Frees the buffer of an expert unless it is claimed, kept, a guess or being read. */
void mox_store_settle(moxie_store *store, int32_t buffer);
/* The buffer holds no guess any more. */
void mox_store_end_guess(moxie_store *store, mox_buffer *buffer);
/* Whether the layer's cache keeps what the buffer holds. */
bool mox_store_is_kept(const moxie_store *store, const mox_buffer *buffer);
/* Notes the reads that have ended. */
void mox_store_poll(moxie_store *store);
/* Lets go of the mutex until there are news: a read ended, or a buffer became free. */
void mox_store_wait(moxie_store *store);
/* What went wrong with a FAILED buffer. */
moxie_status mox_store_failure(const moxie_store *store, const mox_buffer *buffer, moxie_error *error);

/* The index's entry of an expert; -1: the shared one. */
static inline const mox_expert_entry *mox_store_entry(const mox_store_layer *layer, int64_t expert)
{
    return &layer->entries[expert < 0 ? layer->file->header.experts : expert];
}

/* ---- the rest -------------------------------------------------------------------------------------- */

/* The functions of a layer's source (store_fetch.c). */
void mox_store_set_source(mox_store_layer *layer);
/* Of a session for a layer of so many experts. */
uint64_t mox_store_session_bytes(int64_t experts);
/* The layer of that number, or MOXIE_ERR_ARGUMENT with those that there are. */
moxie_status mox_store_find(const moxie_store *store, int64_t number, mox_store_layer **out, moxie_error *error);
/* Begins to read every expert that the cache keeps and that has no buffer. The caller holds the mutex. */
void mox_store_read_kept(mox_store_layer *layer);

/* ---- experts that the CPU computes beside a GPU (store_host.c) -------------------------------------- */

/* The options of store->host, in what the store's own buffers leave of the budget. */
moxie_store_options mox_store_host_options(const moxie_store *store, const moxie_store_options *options);
/* Whether store->host has the same experts, made of the same weights; links the layers. */
moxie_status mox_store_host_link(moxie_store *store, moxie_error *error);
/* Gives the layer on the GPU the one beside it, if the store has one. */
moxie_status mox_store_host_layer(const mox_store_layer *from, const moxie_options *options, moxie_layer *layer,
                                  moxie_error *error);
/* The source's functions for it. */
void mox_store_host_set_source(mox_device_source *source);
/* Adds what the layer beside did since the last call to *to. */
void mox_store_host_count(mox_store_layer *beside, moxie_store_counters *to);

/* ---- calls ----------------------------------------------------------------------------------------- */

/* Bodies of the calls of moxie_store.h; structs are the library's. `reader`: what options do not say; NULL. */
moxie_status mox_store_open(const char *const *paths, int64_t n_paths, const moxie_store_options *options,
                            const mox_reader_options *reader, moxie_store **out, moxie_error *error);
moxie_status mox_store_describe(const char *const *paths, int64_t n_paths, const moxie_store_options *options,
                                moxie_store_info *out, moxie_error *error);
void mox_store_close(moxie_store *store);
void mox_store_get_info(const moxie_store *store, moxie_store_info *out);
moxie_status mox_store_layer_open(moxie_store *store, int64_t number, const moxie_layer_config *config,
                                  const moxie_options *options, moxie_layer **out, moxie_error *error);
moxie_status mox_store_prefetch(moxie_store *store, int64_t number, const int32_t *ids, int64_t count,
                                moxie_error *error);
moxie_status mox_store_lookahead(const moxie_plan *plan, const moxie_run_args *args, moxie_error *error);
moxie_status mox_store_get_counters(moxie_store *store, int64_t number, bool last_run, moxie_store_counters *out,
                                    moxie_error *error);
/* *to += *from, field by field. */
void mox_store_add_counters(moxie_store_counters *to, const moxie_store_counters *from);

#endif
