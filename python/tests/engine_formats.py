# SPDX-License-Identifier: Apache-2.0
"""Experts that are exact in every checkpoint format, for the tests of the adapters to engines, and what a layer of them gives.

A format is made from random codes by the format's own definition, written here a second time: no part of moxie is used.
Scales are powers of two, so every weight is a bf16 number.
"""

import torch

FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


class Experts:
    """Dense weights [E, rows, columns] in float64, and the tensors of a checkpoint: {"0.gate_proj.weight": ...}."""

    def __init__(self, format, experts=4, hidden=256, intermediate=128, seed=0, group=32):
        self.random = torch.Generator().manual_seed(seed)
        self.group, self.tensors, self.format = group, {}, format
        self.experts, self.hidden, self.intermediate = experts, hidden, intermediate
        shapes = {"gate_proj": (intermediate, hidden), "up_proj": (intermediate, hidden), "down_proj": (hidden, intermediate)}
        self.dense = {name: [] for name in shapes}
        for e in range(experts):
            for name, (rows, cols) in shapes.items():
                values, parts = getattr(self, format)(rows, cols)
                self.dense[name].append(values.double())
                self.tensors |= {f"{e}.{name}.{part}": tensor for part, tensor in parts.items()}
        self.dense = {name: torch.stack(matrices) for name, matrices in self.dense.items()}

    def codes(self, low, high, *shape):
        return torch.randint(low, high, shape, generator=self.random)

    def powers(self, *shape, low=-9, high=-6):
        return 2.0 ** self.codes(low, high, *shape)

    def bf16(self, rows, cols):
        values = (torch.randn(rows, cols, generator=self.random) * 0.1).bfloat16()
        return values, {"weight": values}

    def fp8(self, scale):
        rows, cols = scale.shape
        codes = torch.randn(rows, cols, generator=self.random).clamp(-400, 400).to(torch.float8_e4m3fn)
        return codes.float() * scale, codes

    def fp8_block(self, rows, cols):
        scale = self.powers(-(-rows // 128), -(-cols // 128), low=-5, high=-2)
        values, codes = self.fp8(scale.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :cols])
        return values, {"weight": codes, "weight_scale_inv": scale}

    def fp8_tensor(self, rows, cols):
        scale = self.powers(1, low=-5, high=-2)
        values, codes = self.fp8(scale.expand(rows, cols))
        return values, {"weight": codes, "weight_scale": scale[0], "input_scale": torch.tensor(1 / 32)}

    def fp8_channel(self, rows, cols):
        scale = self.powers(rows, 1, low=-5, high=-2)
        values, codes = self.fp8(scale.expand(rows, cols))
        return values, {"weight": codes, "weight_scale": scale.bfloat16()}

    def grouped(self, rows, cols, bits):
        """Codes, zero points and scales of integers with a zero point for each group of columns."""
        codes, zeros = self.codes(0, 1 << bits, rows, cols), self.codes(1, 1 << bits, rows, cols // self.group)
        scale = self.powers(rows, cols // self.group, low=-8, high=-5) / (1 << (bits - 4))
        values = (codes - zeros.repeat_interleave(self.group, 1)) * scale.repeat_interleave(self.group, 1)
        return values, codes, zeros, scale

    def ct_int4(self, rows, cols, bits=4):
        codes = self.codes(0, 1 << bits, rows, cols)
        scale = self.powers(rows, cols // self.group) / (1 << (bits - 4))
        values = (codes - (1 << (bits - 1))) * scale.repeat_interleave(self.group, 1)
        return values, {"weight_packed": words(codes, bits), "weight_scale": scale.bfloat16(),
                        "weight_shape": torch.tensor([rows, cols])}

    def ct_int8(self, rows, cols):
        return self.ct_int4(rows, cols, 8)

    def ct_int4_zero(self, rows, cols):
        values, codes, zeros, scale = self.grouped(rows, cols, 4)
        return values, {"weight_packed": words(codes, 4), "weight_zero_point": words(zeros.T, 4).T.contiguous(),
                        "weight_scale": scale.bfloat16(), "weight_shape": torch.tensor([rows, cols])}

    def gptq(self, rows, cols, bits=4):
        """[columns / per word, rows]; zero points less one. Its v1 cannot store a zero point of 0."""
        values, codes, zeros, scale = self.grouped(rows, cols, bits)
        return values, {"qweight": words(codes, bits).T.contiguous(), "qzeros": words(zeros.T - 1, bits),
                        "scales": scale.T.half().contiguous(), "g_idx": torch.arange(cols, dtype=torch.int32) // self.group}

    def gptq_int8(self, rows, cols):
        return self.gptq(rows, cols, 8)

    def awq(self, rows, cols):
        """[columns, rows / 8], where a word holds rows 0, 2, 4, 6, 1, 3, 5, 7 from its low bits up."""
        values, codes, zeros, scale = self.grouped(rows, cols, 4)
        order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
        mixed = lambda matrix: matrix.T.reshape(matrix.shape[1], -1, 8)[:, :, order].reshape(matrix.shape[1], -1)  # noqa: E731
        return values, {"qweight": words(mixed(codes), 4), "qzeros": words(mixed(zeros), 4),
                        "scales": scale.T.half().contiguous()}

    def mxfp4(self, rows, cols):
        codes, exponents = self.codes(0, 16, rows, cols), self.codes(120, 124, rows, cols // 32)
        values = FP4[codes & 7] * torch.where(codes > 7, -1.0, 1.0) * 2.0 ** (exponents - 127).repeat_interleave(32, 1)
        return values, {"blocks": (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8), "scales": exponents.to(torch.uint8)}

    def stacked(self, part):
        """gpt-oss: one tensor for all experts, rows of gate and up alternating."""
        pick = lambda name: torch.stack([self.tensors[f"{e}.{name}.{part}"] for e in range(self.experts)])  # noqa: E731
        w13 = torch.stack([pick("gate_proj"), pick("up_proj")], 2)
        return w13.reshape(self.experts, 2 * self.intermediate, -1), pick("down_proj")


def words(codes, bits):
    """int32 words of the last axis, the first element in the low bits."""
    per = 32 // bits
    parts = codes.reshape(*codes.shape[:-1], -1, per).long() << (bits * torch.arange(per))
    return parts.sum(-1).to(torch.int32)  # wraps: the top element may set the sign


def swiglu(gate, up):
    return gate * torch.sigmoid(gate) * up


def swiglu_oai(gate, up):
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


def reference(experts, x, ids, weights, function=swiglu, bias=(0, 0, 0)):
    """(y, bound) in float64. The bound is for float32 sums, an activation rounded once to bf16 and a result rounded once.

    bias  of gate, up and down: [E, rows]
    """
    x, weights = x.double(), weights.double()
    y, bound = torch.zeros(2, *x.shape, dtype=torch.float64)
    unit, half = 2.0**-24, 2.0**-8  # rounding to nearest of float32 and bf16, relative
    for t in range(x.shape[0]):
        for k in range(ids.shape[1]):
            e = int(ids[t, k])
            if e < 0:
                continue
            gate, up, down = (experts.dense[name][e] for name in ("gate_proj", "up_proj", "down_proj"))
            g, u = (m @ x[t] + (b[e] if torch.is_tensor(b) else 0) for m, b in ((gate, bias[0]), (up, bias[1])))
            inner = function(g, u)
            sums = (x.shape[1] + 2) * unit * torch.maximum(gate.abs() @ x[t].abs(), up.abs() @ x[t].abs())
            # |d inner| <= |d gate| * 1.2 * (|up| + 1) + |d up| * |gate|: the slope of x * sigmoid(a x) stays below 1.2
            inner_error = sums * (1.2 * (u.abs() + 1) + g.abs()) + (half + 8 * unit) * inner.abs()
            out = down @ inner + (bias[2][e] if torch.is_tensor(bias[2]) else 0)
            spread = down.abs() @ inner.abs() * (experts.intermediate + 2) * unit
            y[t] += weights[t, k] * out
            bound[t] += weights[t, k].abs() * (down.abs() @ inner_error + spread + 8 * unit * out.abs())
    return y, bound + half * (y.abs() + bound) + 1e-30
