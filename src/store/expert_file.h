/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_file.h - the bytes of an expert file (docs/expert-file.md has every rule), and what its parts share.
 *
 *     0      | header: sizes, layouts, table of sections                     | never changes
 *     4096   | seal of odd generations: where the index is, its checksum     | 512 bytes, written last
 *     8192   | seal of even generations                                      |
 *     12288  | sections: configuration, router, ... | records | index | records and indices of replacements ... |
 *
 * All begins on a page of 4096 bytes and is padded with zeros to one. A checksum is XXH3-64 of whole pages.
 *
 *     expert_config.c    configuration <-> text                  expert_write.c     the writer
 *     expert_arrays.c    its arrays and matrices <-> sections    expert_load.c      map, or read into memory
 *     expert_target.c    which layout a target's kernels read    expert_check.c     every rule, when a file is opened
 *     expert_layer.c     a layer of a file                       expert_weights.c   records <-> views
 *     expert_replace.c   one expert replaced in place
 */
#ifndef MOX_STORE_EXPERT_FILE_H
#define MOX_STORE_EXPERT_FILE_H

#include <moxie/moxie_store.h>

#include "layer/config/config.h"
#include "layer/config/tp_slice.h"

#define MOX_EXPERT_PAGE         4096u
#define MOX_EXPERT_MAGIC        "MOXIE-EF"
#define MOX_EXPERT_SEAL_MAGIC   "MOXIE-SL"
#define MOX_EXPERT_VERSION      1u
#define MOX_EXPERT_BYTE_ORDER   0x01020304u
#define MOX_EXPERT_MAX_SECTIONS 40
#define MOX_EXPERT_EXTRA        "x." /* names of the sections of whoever wrote the file */
#define MOX_EXPERT_FIRST        (3 * MOX_EXPERT_PAGE)

/* Bytes [offset, offset + bytes) of the file; the checksum covers the padding to a page, too. */
typedef struct mox_expert_range {
    uint64_t offset, bytes, checksum;
} mox_expert_range;

typedef struct mox_expert_section {
    char name[24]; /* ended by a zero byte */
    mox_expert_range range;
} mox_expert_section;

typedef struct mox_expert_header {
    char magic[8];
    uint32_t version, byte_order, page_bytes;
    uint32_t n_sections;
    uint32_t layout, shared_layout; /* mox_layout.number; shared_layout 0: no shared expert */
    char target[24], layout_name[24], shared_layout_name[24];
    int64_t layer, experts, held;
    uint64_t record_bytes, shared_bytes, source_xxh3;
    uint8_t zero[8];
    mox_expert_section sections[MOX_EXPERT_MAX_SECTIONS];
    uint8_t more_zero[2008];
    uint64_t checksum; /* of the 4088 bytes before it */
} mox_expert_header;
_Static_assert(sizeof(mox_expert_header) == MOX_EXPERT_PAGE, "the header is one page");

typedef struct mox_expert_seal {
    char magic[8];
    uint64_t generation;
    mox_expert_range index;
    uint64_t header_checksum, file_bytes, unused_bytes;
    uint8_t zero[440];
    uint64_t checksum; /* of the 504 bytes before it */
} mox_expert_seal;
_Static_assert(sizeof(mox_expert_seal) == 512, "the seal is one sector, which disks write whole");

/* One record; the index has E, by expert, and one more for the shared expert. Not in the file: offset and bytes are 0.
 */
typedef struct mox_expert_entry {
    int64_t expert; /* -1: the shared expert */
    mox_expert_range range;
    uint64_t generation, source_hash;
    float a13_scale, a2_scale;
    uint8_t zero[8];
} mox_expert_entry;
_Static_assert(sizeof(mox_expert_entry) == 64, "entries are read as they lie");

/* Rounds up to a page; the sizes of a file that passed its checks do not overflow. */
static inline uint64_t mox_expert_padded(uint64_t bytes)
{
    return (bytes + MOX_EXPERT_PAGE - 1) / MOX_EXPERT_PAGE * MOX_EXPERT_PAGE;
}

/* How records lie: of whole experts, or of the rows that one of tp_size ranks has (layer/config/tp_slice.h). */
typedef struct mox_expert_shapes {
    mox_tp_cut cut[MOX_EXPERT_KINDS];
    mox_record_shape whole[MOX_EXPERT_KINDS], mine[MOX_EXPERT_KINDS];
} mox_expert_shapes;

struct moxie_expert_file {
    char *path;
    uint8_t *data; /* all bytes up to seal.file_bytes */
    bool mapped, direct;
    int fd;                  /* of a mapped file */
    const char *read_engine; /* static; NULL: none read it */
    char read_why[512];
    mox_expert_seal seal;
    mox_expert_header header;
    const mox_expert_entry *index; /* [E + 1] */
    moxie_layer_config config;     /* its arrays are sections */
    mox_arena arena;
    const mox_layout *layouts[MOX_EXPERT_KINDS];
    mox_expert_shapes shapes;
    moxie_weights *weights; /* unpacked, in `weights_memory`; NULL: not asked for yet */
    void *weights_memory;
};

/* ---- configuration and text (expert_config.c) --------------------------------------------------- */

/* The configuration as lines "key value", without its arrays; NULL when out of memory. In the arena. */
char *mox_expert_config_text(const moxie_layer_config *config, mox_arena *arena, uint64_t *bytes);
/* The way back. The text is untrusted and needs no terminator. MOXIE_ERR_FORMAT names the line. */
moxie_status mox_expert_config_parse(const char *text, uint64_t bytes, const char *path, moxie_layer_config *out,
                                     moxie_error *error);

/* ---- arrays and matrices (expert_arrays.c) -------------------------------------------------------- */

/* A section to be written: `data` is f32 or i32, in memory of the arena or of the configuration. */
typedef struct mox_expert_part {
    const char *name;
    const void *data;
    uint64_t bytes;
} mox_expert_part;
enum { MOX_EXPERT_PARTS = 16 };
/* The arrays of a checked configuration, and its matrices in `weights`, widened to f32. Returns how many, or -1 with
 * `error`. */
int mox_expert_parts(const moxie_layer_config *config, const moxie_weights *weights, mox_arena *arena,
                     mox_expert_part parts[MOX_EXPERT_PARTS], moxie_error *error);
/* Points a parsed configuration at its sections. MOXIE_ERR_FORMAT when one is missing, or has another size. */
moxie_status mox_expert_take_arrays(moxie_expert_file *file, moxie_error *error);
/* Views of the matrices that `config` has; absent ones stay as they are. MOXIE_ERR_MISMATCH when the file lacks one. */
moxie_status mox_expert_take_matrices(const moxie_expert_file *file, const moxie_layer_config *config,
                                      moxie_weights *out, moxie_error *error);
/* The section of that name, or NULL. */
const mox_expert_section *mox_expert_find_section(const mox_expert_header *header, const char *name);

/* ---- targets (expert_target.c) -------------------------------------------------------------------- */

/* The layouts that the kernels of `target` read for a checked configuration: for moxie-auto those of this machine.
 * *name: the target's own. */
moxie_status mox_expert_choose(const char *target, const moxie_layer_config *config, int32_t mode, const char **name,
                               const mox_layout *layouts[MOX_EXPERT_KINDS], moxie_error *error);

/* The shapes of a checked configuration, in a file for that target. */
mox_expert_shapes mox_expert_shapes_of(const moxie_layer_config *config, const char *target);

/* Target i: its name and summary, static; NULL past the last. */
const char *mox_expert_target_at(int32_t i, const char **summary);

/* ---- packing (expert_write.c) --------------------------------------------------------------------- */

/* Packs the share of one whole expert (-1: the shared one) into `record`, on the executor's workers. */
moxie_status mox_expert_pack(const moxie_layer_config *config, const mox_expert_shapes *shapes,
                             const mox_layout *layout, int64_t index, const moxie_expert *expert, void *record,
                             const moxie_executor *executor, moxie_error *error);
/* The static scales of one expert's activations (-1: the shared one): a layer would refuse the file for a wrong one. */
moxie_status mox_expert_check_scales(const moxie_layer_config *config, int64_t expert, const moxie_expert *view,
                                     moxie_error *error);
/* Fills in the checksum of a seal, or of a header. */
void mox_expert_end_seal(mox_expert_seal *seal);

/* ---- loading and checking ------------------------------------------------------------------------- */

/* Reads header and seal, and maps the rest or reads it in (expert_load.c). */
moxie_status mox_expert_load(moxie_expert_file *file, const moxie_expert_file_options *options, moxie_error *error);
void mox_expert_unload(moxie_expert_file *file);
/* MOXIE_ERR_MISMATCH unless the file at `mirror` has the same header and seals, and so the same index and checksums. */
moxie_status mox_expert_check_mirror(const moxie_expert_file *file, const char *mirror, moxie_error *error);
/* Checks a loaded file, and fills the rest of it (expert_check.c). */
moxie_status mox_expert_check(moxie_expert_file *file, moxie_error *error);

/* Bodies of the calls of moxie_store.h; structs are the library's. */
moxie_status mox_expert_writer_open(const char *path, const moxie_layer_config *config, const moxie_weights *weights,
                                    const moxie_expert_writer_options *options, moxie_expert_writer **out,
                                    moxie_error *error);
moxie_status mox_expert_writer_put(moxie_expert_writer *writer, int64_t expert, uint64_t source_hash,
                                   moxie_error *error);
moxie_status mox_expert_writer_finish(moxie_expert_writer *writer, moxie_error *error);
void mox_expert_writer_abandon(moxie_expert_writer *writer);
moxie_status mox_expert_file_open(const char *path, const moxie_expert_file_options *options, moxie_expert_file **out,
                                  moxie_error *error);
void mox_expert_file_close(moxie_expert_file *file);
moxie_status mox_expert_file_verify(const moxie_expert_file *file, const moxie_executor *executor, moxie_error *error);
moxie_status mox_expert_file_unpack(const moxie_expert_file *file, int64_t expert, moxie_expert *views,
                                    moxie_error *error);
moxie_status mox_expert_file_weights(moxie_expert_file *file, const moxie_executor *executor, const moxie_weights **out,
                                     moxie_error *error);
moxie_status mox_expert_file_replace(const char *path, int64_t expert, const moxie_expert *weights,
                                     uint64_t source_hash, const moxie_executor *executor, moxie_error *error);
moxie_status mox_layer_open_file(const moxie_expert_file *file, const moxie_layer_config *config,
                                 const moxie_options *options, moxie_layer **out, moxie_error *error);
/* The same on a GPU without records of routed experts: a store brings them (store_device.h). */
moxie_status mox_layer_open_fetched(const moxie_expert_file *file, const moxie_layer_config *config,
                                    const moxie_options *options, moxie_layer **out, moxie_error *error);
moxie_status mox_expert_file_explain(const moxie_expert_file *file, const moxie_layer_config *config,
                                     const moxie_options *options, moxie_plan **out, moxie_error *error);

/* The index's entry of an expert; -1: the shared one. */
static inline const mox_expert_entry *mox_expert_entry_of(const moxie_expert_file *file, int64_t expert)
{
    return &file->index[expert < 0 ? file->header.experts : expert];
}
static inline mox_expert_kind mox_expert_kind_of(int64_t expert)
{
    return expert < 0 ? MOX_SHARED_EXPERT : MOX_ROUTED;
}

#endif
