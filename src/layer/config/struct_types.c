/* SPDX-License-Identifier: Apache-2.0
 *
 * struct_types.c - where the fields of public structs begin and end, from public_structs.def.
 */
#include <moxie/moxie_adapters.h>
#include <moxie/moxie_ckpt.h>
#include <moxie/moxie_comm.h>
#include <moxie/moxie_cuda.h>
#include <moxie/moxie_lint.h>
#include <moxie/moxie_parallel.h>
#include <moxie/moxie_prepare.h>
#include <moxie/moxie_quantize.h>
#include <moxie/moxie_scheme.h>
#include <moxie/moxie_store.h>
#include <moxie/moxie_topology.h>
#include <moxie/moxie_trace.h>

#include "layer/config/struct_size.h"

/* Braces that a macro opens and another one closes. */
/* clang-format off */
#define PLACE(type, f)                                                                                                 \
    { #f, offsetof(type, f), offsetof(type, f) + sizeof((const type *)0)->f, __alignof__(((const type *)0)->f) }
#define COUNT(list) (uint32_t)(sizeof(list) / sizeof(list)[0])

#define MOX_STRUCT_BEGIN(type)        static const mox_struct_field fields_of_##type[] = { PLACE(type, struct_size),
#define MOX_STRUCT_FIELD(type, field) PLACE(type, field),
#define MOX_STRUCT_END(type)          };
#include "layer/config/public_structs.def"
#undef MOX_STRUCT_BEGIN
#undef MOX_STRUCT_FIELD
#undef MOX_STRUCT_END

const mox_struct_type mox_struct_types[] = {
#define MOX_STRUCT_BEGIN(type)        { #type, sizeof(type), COUNT(fields_of_##type), fields_of_##type },
#define MOX_STRUCT_FIELD(type, field)
#define MOX_STRUCT_END(type)
#include "layer/config/public_structs.def"
#undef MOX_STRUCT_BEGIN
#undef MOX_STRUCT_FIELD
#undef MOX_STRUCT_END
};
/* clang-format on */
