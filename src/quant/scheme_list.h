/* SPDX-License-Identifier: Apache-2.0
 *
 * scheme_list.h - the rows of schemes.def as tables, and the checks of a constructor's arguments against its row.
 *
 *     moxie_scheme_args  ->  scheme_list.c: accepted? legal? which dtypes?  ->  scheme.c: descriptors, moxie_quant
 *
 * Only scheme.c and scheme_list.c include this file.
 */
#ifndef MOX_QUANT_SCHEME_LIST_H
#define MOX_QUANT_SCHEME_LIST_H

#include <stdbool.h>

#include <moxie/moxie_scheme.h>

#include "base/status.h"

#define MOX_SCHEME(...)
#define MOX_SCHEME_DTYPE(id, name, is_string, weight, act) id,
typedef enum mox_scheme_dtype_id {
#include "quant/schemes.def"
    DTYPES,
    /* Not dtypes: how a constructor finds its dtype. */
    BY_ARGUMENT,
    BY_BITS,
    BY_BLOCK
} mox_scheme_dtype_id;
#undef MOX_SCHEME_DTYPE
#undef MOX_SCHEME

typedef struct mox_scheme_dtype {
    const char *name;
    bool is_string;
    moxie_quant weight, act;
} mox_scheme_dtype;

typedef enum mox_scheme_shape { NO_SHAPE, FLAGS, BLOCK, GROUP } mox_scheme_shape;
/* USUAL: there unless the argument says otherwise. */
typedef enum mox_scheme_presence { NO, YES, ARG, USUAL } mox_scheme_presence;

enum {
    TAKE_PER_TOKEN = 1 << 0,
    TAKE_PER_OUT_CH = 1 << 1,
    TAKE_BLOCK = 1 << 2,
    TAKE_BITS = 1 << 3,
    TAKE_GROUP = 1 << 4,
    TAKE_TYPES = 1 << 5,
    TAKE_ZERO = 1 << 6,
    TAKE_BIAS = 1 << 7,
    TAKE_A_SCALE = 1 << 8,
    TAKE_GSCALE = 1 << 9,
    TAKE_FORMAT = 1 << 10,
    TAKE_LINEAR = 1 << 11,
    TAKE_PRECISION = 1 << 12,
    TAKE_ALPHAS = 1 << 13,
    TAKE_W_SCALE = 1 << 14,
    TAKE_TRANSPOSED = 1 << 15,
    TAKE_OCP_ONLY = 1 << 16 /* not an argument: quant_dtype must be an OCP MX type */
};

typedef struct mox_scheme_row {
    const char *name;
    uint32_t accepts;
    struct {
        mox_scheme_dtype_id dtype;
        mox_scheme_shape shape;
        mox_scheme_presence scale, gscale;
    } act;
    struct {
        mox_scheme_dtype_id dtype;
        mox_scheme_shape shape;
        mox_scheme_presence scale, alphas, zero, bias;
    } weight;
    moxie_quant computes;
} mox_scheme_row;

extern const mox_scheme_dtype mox_scheme_dtypes[DTYPES];

/* Row i; NULL past the last. */
const mox_scheme_row *mox_scheme_row_at(int32_t i);
/* NULL when no constructor has this name; *error says which there are. */
const mox_scheme_row *mox_scheme_row_by_name(const char *name, moxie_error *error);
/* {0,0} is no block. */
bool mox_scheme_has_block(const moxie_scheme_args *args);
/* Only arguments that the row accepts are set, and each has a legal value. */
moxie_status mox_scheme_check_args(const mox_scheme_row *row, const moxie_scheme_args *args, moxie_error *error);
/* The dtypes of activations and weights that these arguments ask for. */
moxie_status mox_scheme_resolve_dtypes(const mox_scheme_row *row, const moxie_scheme_args *args,
                                       mox_scheme_dtype_id *act, mox_scheme_dtype_id *weight, moxie_error *error);

#endif
