/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_reader.c - tensors of one layer by their name templates (families.def), and float tensors as grids.
 */
#include "ckpt/model/layer_reader.h"

#include <stdio.h>

moxie_status mox_layer_name(const mox_layer_reader *reader, const char *name, int64_t expert, char *buffer, size_t size)
{
    MOX_FAIL_IF(!mox_expand_name(buffer, size, reader->prefix, name, reader->layer, expert), MOXIE_ERR_FORMAT,
                reader->error, "the name of %s in layer %lld is too long", name, (long long)reader->layer);
    return MOXIE_OK;
}

const mox_file_tensor *mox_layer_find(const mox_layer_reader *reader, const char *name)
{
    char full[256];
    if (!name || !mox_expand_name(full, sizeof full, reader->prefix, name, reader->layer, -1))
        return NULL;
    return mox_tensor_set_find(reader->model->set, full);
}

bool mox_layer_has_images(const mox_layer_reader *reader)
{
    const mox_family *family = reader->model->family;
    return family->other_has_images && reader->names == &family->other_names;
}

void mox_layer_mark(const mox_layer_reader *reader, const mox_file_tensor *tensor)
{
    reader->read[tensor - mox_tensor_set_at(reader->model->set, 0)] = 1;
}

moxie_status mox_layer_fail_absent(const mox_layer_reader *reader, const char *name, const char *why)
{
    char full[256] = "";
    mox_expand_name(full, sizeof full, reader->prefix, name, reader->layer, -1);
    return mox_fail_file(MOXIE_ERR_FORMAT, reader->error, "", -1, "%s is absent, %s", full, why);
}

moxie_status mox_layer_fail_tensor(const mox_layer_reader *reader, const mox_file_tensor *tensor, moxie_status code,
                                   const char *expected)
{
    char name[200], shape[96];
    return mox_fail_file(code, reader->error, mox_tensor_set_file_name(reader->model->set, tensor->file),
                         (int64_t)tensor->offset, "%s is %s %s, expected %s",
                         mox_escape(name, sizeof name, tensor->name), tensor->file_dtype,
                         mox_shape_text(tensor->view.shape, tensor->view.rank, shape, sizeof shape), expected);
}

static bool is_float(moxie_dtype dtype)
{
    return dtype == MOXIE_F32 || dtype == MOXIE_F16 || dtype == MOXIE_BF16;
}

/* True for [rows, cols]. When one of them is 1, that axis may be missing. */
static bool has_axes(const moxie_tensor *view, int64_t rows, int64_t cols)
{
    if (view->rank == 2)
        return (view->shape[0] == rows && view->shape[1] == cols) ||
               (cols == 1 && view->shape[0] == 1 && view->shape[1] == rows);
    return view->rank == 1 && (rows == 1 || cols == 1) && view->shape[0] == rows * cols;
}

moxie_status mox_layer_floats(const mox_layer_reader *reader, const mox_file_tensor *tensor, int64_t rows, int64_t cols,
                              moxie_grid *out)
{
    char expected[96];
    snprintf(expected, sizeof expected, "F32, BF16 or F16 [%lld, %lld]", (long long)rows, (long long)cols);
    MOX_TRY(mox_file_tensor_check(reader->model->set, tensor, reader->error));
    if (!is_float(tensor->view.dtype))
        return mox_layer_fail_tensor(reader, tensor, MOXIE_ERR_UNSUPPORTED, expected);
    if (!has_axes(&tensor->view, rows, cols))
        return mox_layer_fail_tensor(reader, tensor, MOXIE_ERR_MISMATCH, expected);
    mox_layer_mark(reader, tensor);
    *out = mox_grid_dense(tensor->view.data, tensor->view.dtype, rows, cols);
    return MOXIE_OK;
}
