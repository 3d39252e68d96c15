# SPDX-License-Identifier: Apache-2.0
# Tensors of safetensors files, without any package: what tests of the command-line tool compare.
import glob
import json
import struct


def read(path):
    """{name: (dtype, shape, bytes)} of a file."""
    with open(path, 'rb') as f:
        header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = f.read()
    return {name: (t['dtype'], t['shape'], data[t['data_offsets'][0]:t['data_offsets'][1]])
            for name, t in header.items() if name != '__metadata__'}


def read_all(dir):
    """The same of all files of a directory; of two tensors with one name that of the last file."""
    out = {}
    for path in sorted(glob.glob(dir + '/*.safetensors')):
        out.update(read(path))
    return out
