/* SPDX-License-Identifier: Apache-2.0
 *
 * layer.h - one layer's prepared weights: slots that hold records, the slot map, and what belongs to no expert.
 *
 *     slot_of[e]:   0  1 -1 -1  2 ...        global expert -> slot, or -1 when another rank owns it
 *     expert_of[s]: 0  1  4 ...              slot -> global expert
 *     slab:     | record of slot 0 | record of slot 1 | ... | the shared expert's record |    records[s] points into it
 *
 * The slab of a layer on a GPU is device memory. So are the copies of everything else that kernels read (`arrays`).
 *
 * In the flow: config -> select -> [layer] -> plan -> run. A layer is immutable while plans run on it; prepare and
 * update_expert need exclusive access.
 *
 *     layer_create.c    allocates a layer for a configuration and frees it
 *     layer_prepare.c   packs experts into their slots, replaces one
 *     layer_records.c   the slab, and which layouts its records have
 *     layer_given.c     a layer whose records exist already, in an expert file
 *     layer_arrays.c    the arrays that kernels read besides records
 */
#ifndef MOX_LAYER_LAYER_H
#define MOX_LAYER_LAYER_H

#include "backend/cuda/device.h"
#include "cpu/expert_gemm/expert_gemm.h"
#include "layer/config/tp_slice.h"

/* Slots that a layer has memory for. */
#define MOX_LAYER_ROOM(layer) ((layer)->max_slots > 0 ? (layer)->max_slots : (layer)->slots)

/* What static activation quantization reads from the weights: one number for each expert. */
typedef struct mox_static_scale {
    bool needed;
    float *raw;      /* [E] as in the checkpoint; 0: the expert has none */
    float *resolved; /* [slots] raw, or a fallback for an expert without one (static_scale.h) */
    bool uniform;    /* all slots have the same */
} mox_static_scale;

/* A plain matrix of the layer itself, widened to f32. */
typedef struct mox_dense_matrix {
    int64_t rows, cols;
    float *weight; /* [rows, cols] */
    float *bias;   /* [rows] or NULL */
} mox_dense_matrix;

#define MOX_DEVICE_ARRAYS 32 /* allocations that layer_arrays.c makes, at most */

/* What kernels read besides records, in the memory where they run. On the host these are the layer's own arrays, on a
 * device copies of them. NULL where the layer has none. */
typedef struct mox_layer_arrays {
    int32_t *slot_of;       /* [E] */
    int64_t *expert_of;     /* [slots] */
    float *static_scale[2]; /* [slots], by mox_projection */
    float *router, *router_bias, *shared_gate, *router_norm, *expert_norm;
    moxie_routing routing;
    moxie_activation activation;
    float *tables;                  /* device only: values of all codes, [formats, 256] */
    void *owned[MOX_DEVICE_ARRAYS]; /* device memory to free with the layer */
    int32_t n_owned;
} mox_layer_arrays;

/* How records that were packed before came to a GPU (device_fill.h). All zero: they did not. */
typedef struct mox_fill_times {
    uint64_t bytes, pinned_bytes; /* of records; of the ring of pinned memory */
    double slab_seconds;          /* of allocating the slab */
    double pin_seconds;           /* of making the ring; 0: it was there */
    double fill_seconds;          /* from the first read to the end of the last copy */
    int32_t workers;
} mox_fill_times;

struct moxie_layer {
    moxie_layer_config config; /* its arrays are in config_arrays */
    mox_arena config_arrays;
    mox_record_shape routed_shape, shared_shape;
    mox_record_shape whole_shape;                /* of a routed expert with the parts of all tensor parallel ranks */
    mox_record_shape whole_shared_shape;         /* the same of the shared one */
    mox_tp_cut tp_cut, shared_cut;               /* how routed experts are cut, and the shared one */
    const mox_layout *layouts[MOX_EXPERT_KINDS]; /* shared: NULL when this rank has no shared expert */
    int32_t slots;                               /* that hold experts */
    int32_t max_slots;  /* with spare ones for a mover (mover.h), which are the last; 0: there are none */
    int32_t *slot_of;   /* [E] */
    int64_t *expert_of; /* [room for slots] */
    uint64_t record_bytes, shared_bytes;
    void *slab;          /* all records in one block; the packing threads touch its pages first. NULL after a failed
                          * allocation, until the next preparation */
    void **own_records;  /* [slots] of a layer whose records are an expert file's (layer_given.h): memory of those that
                          * were updated; NULL for a layer with a slab */
    void **records;      /* [room for slots] */
    int32_t nodes;       /* of memory that records are spread over: slot s is on node s % nodes; 0 and 1: on any */
    void *shared_record; /* or NULL */
    mox_static_scale static_scale[2]; /* routed experts, by mox_projection */
    float shared_static_scale[2];
    mox_dense_matrix router, shared_gate;      /* weight NULL when absent */
    mox_dense_matrix router_norm, expert_norm; /* [1, N], the same */
    const struct mox_record_source *source; /* fetches the records of routed experts (record_source.h); NULL: they are
                                             * where `records` says */
    const struct mox_device_source *device_source; /* the same for a layer on a GPU (device_source.h) */
    moxie_layer *beside; /* on the host: it computes experts that the device source leaves there; NULL: none */
    bool fetched; /* on a GPU: the slab has the shared expert alone, and `records` are NULL: a source fetches them */
    bool prepared;
    uint64_t changes;  /* how often slots or numbers changed that runs pass to kernels by value */
    bool has_comm;     /* created for ranks that exchange rows: the shared expert is here, whatever the rank */
    mox_device device; /* where records and arrays are */
    struct mox_ring_pool *rings; /* of the device, for a layer of an expert file (pinned_ring.h); NULL: not held */
    mox_fill_times fill_times;
    mox_layer_arrays arrays;
};

#endif
