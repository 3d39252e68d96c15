/* SPDX-License-Identifier: Apache-2.0
 *
 * shared_bias.c - the biases of a shared expert, from its tensors (shared_bias.h).
 */
#include "ckpt/model/shared_bias.h"

bool mox_bias_is_zero(const moxie_grid *bias)
{
    for (int64_t i = 0; i < bias->rows; i++)
        if (mox_grid_value(bias, i, 0) != 0)
            return false;
    return true;
}

moxie_status mox_find_shared_bias(const mox_layer_reader *reader, moxie_expert *e, bool has[2])
{
    moxie_matrix *const all[3] = { &e->gate, &e->up, &e->down };
    const char *const names[3] = { reader->names->shared_gate, reader->names->shared_up, reader->names->shared_down };
    bool zero[3];
    for (int i = 0; i < 3; i++)
        zero[i] = all[i]->bias.data == NULL || mox_bias_is_zero(&all[i]->bias);
    const bool has_gate = e->gate.bias.data != NULL, has_up = e->up.bias.data != NULL;
    if (names[0] && has_gate != has_up)
        return mox_fail_file(MOXIE_ERR_FORMAT, reader->error, "", -1,
                             "layer %lld: the shared expert's %s.bias exists, but %s.bias does not: gate and up have a "
                             "bias both or neither",
                             (long long)reader->layer, names[has_gate ? 0 : 1], names[has_gate ? 1 : 0]);
    has[0] = !zero[0] || !zero[1];
    has[1] = !zero[2];
    for (int i = 0; i < 3; i++)
        if (!has[i == 2])
            all[i]->bias = (moxie_grid) { 0 };
    return MOXIE_OK;
}
