# SPDX-License-Identifier: Apache-2.0
"""Linear layers of checkpoints outside the experts, dequantized while transformers loads them.

    name.qweight, name.qzeros, name.scales (, name.g_idx)  --->  name.weight [out, in] of the model's type

    AWQ    qweight [in, out / 8], qzeros [groups, out / 8]: 4 bits, columns of a word in the order 0 2 4 6 1 3 5 7
    GPTQ   qweight [in * bits / 32, out], qzeros [groups, out * bits / 32]: 2, 3, 4 or 8 bits in a stream of words

transformers itself needs gptqmodel for these. Sources: the packing code of AutoAWQ and AutoGPTQ.

    FP8    by transformers; but a matrix whose last block is cut off (DeepSeek-V3: 576 rows, blocks of 128) it refuses, or
           shares its rows out evenly among the scales, which is wrong
"""

from __future__ import annotations

import ctypes
import math
import mmap

import torch
from transformers.core_model_loading import ConversionOps
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

_awq_order = [0, 4, 1, 5, 2, 6, 3, 7]  # where column 0, 1, ... of eight lies in its word


_page_out = 21  # MADV_PAGEOUT of Linux


def let_go(*tensors: torch.Tensor) -> None:
    """Asks the system to take back the pages of tensors that were read for the last time. transformers maps files as wholes,
    and one unquantized parameter keeps a file mapped: without this the packed tensors would stay in memory beside their
    dequantized ones. No number is lost if somebody reads them again."""
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    for tensor in tensors if advise is not None else ():
        if tensor.device.type == "cpu" and tensor.is_contiguous():
            begin = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
            end = (tensor.data_ptr() + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
            if begin < end:
                advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _page_out)


def unpack(words: torch.Tensor, bits: int) -> torch.Tensor:
    """[rows, n] int32 -> [rows, n * 32 / bits] uint8: the codes of each row, lowest bits first, across words."""
    period = bits // math.gcd(bits, 32)  # words after which codes begin at a word again
    words = words.reshape(words.shape[0], -1, period).to(torch.int64) & 0xFFFFFFFF
    codes = []
    for at in range(0, 32 * period, bits):
        word, shift = divmod(at, 32)
        code = words[..., word] >> shift
        if shift + bits > 32:
            code = code | words[..., word + 1] << (32 - shift)
        codes.append((code & (2**bits - 1)).to(torch.uint8))
    return torch.stack(codes, -1).reshape(words.shape[0], -1)


def dequantize(tensors: dict[str, torch.Tensor], method: str, bits: int, zero_add: int, dtype: torch.dtype) -> torch.Tensor:
    """The weight [out, in] of one linear layer."""
    scales = tensors["scales"].float()
    if method == "awq":
        codes, zeros = (unpack(tensors[n], 4).unflatten(1, (-1, 8))[..., _awq_order].flatten(1) for n in ("qweight", "qzeros"))
    else:
        codes = unpack(tensors["qweight"].T, bits).T
        zeros = unpack(tensors["qzeros"], bits)
    if "g_idx" in tensors:
        group = tensors["g_idx"].long()
    else:
        group = torch.arange(codes.shape[0]) // (codes.shape[0] // scales.shape[0])
    weight = torch.empty(codes.shape[1], codes.shape[0], dtype=dtype)
    for rows in torch.arange(codes.shape[0]).split(1024):  # the work space stays small
        of = group[rows]
        weight[:, rows] = ((codes[rows].float() - (zeros[of].float() + zero_add)) * scales[of]).T.to(dtype)
    return weight


class Dequantize(ConversionOps):
    """The step of transformers' loading that makes a weight from its packed tensors."""

    def __init__(self, hf_quantizer):
        self.hf_quantizer = hf_quantizer  # its presence keeps transformers from casting the packed tensors

    def convert(self, input_dict, full_layer_name=None, model=None, **more):
        tensors = {name: value[0] if isinstance(value, list) else value for name, value in input_dict.items()}
        of = self.hf_quantizer
        dtype = model.get_parameter_or_buffer(full_layer_name).dtype
        weight = dequantize(tensors, of.method, of.bits, of.zero_add, dtype)
        let_go(*tensors.values())
        return {full_layer_name: weight}


class _Packed(QuantizationConfigMixin):
    dequantize = True

    def __init__(self, described):
        self.quant_method = described["quant_method"]


class PackedLinears(HfQuantizer):
    """What transformers asks about such a checkpoint while it loads the linear layers."""

    serialized_names = {"weight": ["qweight", "qzeros", "scales", "g_idx"]}
    is_trainable = False

    def __init__(self, described: dict):
        super().__init__(_Packed(described))
        self.method, self.bits = described["quant_method"], int(described.get("bits", described.get("w_bit", 4)))
        self.zero_add = int(self.method == "gptq" and described.get("checkpoint_format", "gptq") != "gptq_v2")

    def is_serializable(self):
        return False

    def get_load_operations(self):
        return {"dequantize": Dequantize}


# ---- FP8 blocks -------------------------------------------------------------------------------------


class _AnyShape(Fp8Dequantize):
    """transformers' own, also of matrices whose last blocks are cut off: filled up for the time of the call."""

    def _dequantize_one(self, quantized, scales, output_dtype=None):
        weight = self._filled_up(quantized, scales, output_dtype)
        let_go(quantized)
        return weight

    def _filled_up(self, quantized, scales, output_dtype):
        block = self.hf_quantizer.quantization_config.weight_block_size
        rows, columns = quantized.shape[-2:]
        cut = block is not None and (rows % block[0] or columns % block[1])
        if not cut or [-(-rows // block[0]), -(-columns // block[1])] != list(scales.shape[-2:]):
            return super()._dequantize_one(quantized, scales, output_dtype)
        whole = quantized.new_zeros(*quantized.shape[:-2], scales.shape[-2] * block[0], scales.shape[-1] * block[1])
        whole[..., :rows, :columns] = quantized
        return super()._dequantize_one(whole, scales, output_dtype)[..., :rows, :columns].contiguous()


def take_any_shape(quantizer: HfQuantizer) -> HfQuantizer:
    """Lets a quantizer of transformers load FP8 matrices whose last blocks are cut off."""
    operations = quantizer.get_load_operations()
    if operations.get("dequantize") is Fp8Dequantize:
        quantizer.get_load_operations = lambda: {**operations, "dequantize": _AnyShape}
    return quantizer
