#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads expert files by docs/expert-file.md alone: every range, every checksum, every record's header.

    expert_file_reader.py FILE...     a line for each file; exit code 1 and what is wrong at the first that is refused
"""
import struct
import sys

PAGE, MASK = 4096, (1 << 64) - 1
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64 = [0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5]
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)

def need(condition, what):
    if not condition:
        raise ValueError(what)

# ---- XXH3-64, seed 0: of 9 to 16 bytes, and of more than 240 ------------------------------------------------------

def word(data, at):
    return int.from_bytes(data[at : at + 8], "little")

def fold(a, b):
    return (a * b & MASK) ^ (a * b >> 64)

def avalanche(h):
    h ^= h >> 37
    h = h * 0x165667919E3779F9 & MASK
    return h ^ h >> 32

def short_hash(data):
    low = word(data, 0) ^ word(SECRET, 24) ^ word(SECRET, 32)
    high = word(data, len(data) - 8) ^ word(SECRET, 40) ^ word(SECRET, 48)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return avalanche((len(data) + swapped + high + fold(low, high)) & MASK)

def accumulate(acc, lanes, key):
    for i in range(8):
        mixed = lanes[i] ^ key[i]
        acc[i ^ 1] += lanes[i]
        acc[i] = (acc[i] + (mixed & 0xFFFFFFFF) * (mixed >> 32)) & MASK

def xxh3(data):
    if len(data) <= 16:
        return short_hash(data)
    acc = [P32_3, P64[0], P64[1], P64[2], P64[3], P32_2, P64[4], P32_1]
    keys = [struct.unpack_from("<8Q", SECRET, 8 * n) for n in range(16)]
    scramble = struct.unpack_from("<8Q", SECRET, 128)
    for stripe in range((len(data) - 1) // 64):
        accumulate(acc, struct.unpack_from("<8Q", data, 64 * stripe), keys[stripe % 16])
        if stripe % 16 == 15:
            acc = [((a & MASK) ^ (a & MASK) >> 47 ^ s) * P32_1 & MASK for a, s in zip(acc, scramble)]
    accumulate(acc, struct.unpack_from("<8Q", data, len(data) - 64), struct.unpack_from("<8Q", SECRET, 121))
    acc = [a & MASK for a in acc]
    h = len(data) * P64[0] & MASK
    for i in range(4):
        h += fold(acc[2 * i] ^ word(SECRET, 11 + 16 * i), acc[2 * i + 1] ^ word(SECRET, 19 + 16 * i))
    return avalanche(h & MASK)

# ---- the file ------------------------------------------------------------------------------------------------------

def text(field):
    need(b"\0" in field, "a name without an end")
    return field.split(b"\0")[0].decode()

class ExpertFile:
    def __init__(self, path):
        with open(path, "rb") as stream:
            self.data = stream.read()
        need(len(self.data) >= 3 * PAGE, "too short")
        self.read_header()
        self.read_seal()
        self.used = []
        self.sections = {}
        for i in range(self.n_sections):
            name = text(self.data[160 + 48 * i : 184 + 48 * i])
            need(name not in self.sections, f"section {name} twice")
            self.sections[name] = self.take(struct.unpack_from("<3Q", self.data, 184 + 48 * i), f"section {name}")
        need("config" in self.sections, "no configuration")
        self.config = dict(line.split(" ") for line in self.sections["config"].decode().splitlines())
        need(int(self.config["experts"]) == self.experts, "another number of experts in the configuration")
        self.read_records(self.take(self.index, "index"))
        self.used.sort()
        need(all(a[1] <= b[0] for a, b in zip(self.used, self.used[1:])), "two ranges overlap")

    def read_header(self):
        d = self.data
        need(d[:8] == b"MOXIE-EF", "another magic")
        version, order, page, self.n_sections, self.layout, self.shared_layout = struct.unpack_from("<6I", d, 8)
        need((version, order, page) == (1, 0x01020304, PAGE), "another version, byte order or page")
        self.target, self.layout_name, _ = (text(d[at : at + 24]) for at in (32, 56, 80))
        self.layer, self.experts, self.held = struct.unpack_from("<3q", d, 104)
        self.record_bytes, self.shared_bytes, self.fingerprint = struct.unpack_from("<3Q", d, 128)
        self.checksum = word(d, PAGE - 8)
        need(xxh3(d[: PAGE - 8]) == self.checksum, "the header's checksum differs")
        need(self.n_sections <= 40, "too many sections")

    def read_seal(self):
        best = None
        for page in (1, 2):
            seal = self.data[page * PAGE : page * PAGE + 512]
            if seal == bytes(512):
                continue
            need(seal[:8] == b"MOXIE-SL" and xxh3(seal[:504]) == word(seal, 504), "a seal is damaged")
            need(word(seal, 40) == self.checksum and word(seal, 8) % 2 == page % 2, "a seal of another file")
            best = seal if best is None or word(seal, 8) > word(best, 8) else best
        need(best is not None, "no seal")
        self.generation, self.bytes = word(best, 8), word(best, 48)
        self.index = struct.unpack_from("<3Q", best, 16)
        need(len(self.data) >= self.bytes, "cut short")

    def take(self, place, what):
        offset, size, checksum = place
        end = offset + (size + PAGE - 1) // PAGE * PAGE
        need(offset % PAGE == 0 and offset >= 3 * PAGE and end <= self.bytes, f"{what} lies elsewhere")
        need(xxh3(self.data[offset:end]) == checksum if size else True, f"{what}: the checksum differs")
        self.used += [(offset, end)] if size else []
        return self.data[offset : offset + size]

    def read_records(self, index):
        need(len(index) == 64 * (self.experts + 1), "an index of another length")
        self.records, h = {}, 0
        for i in range(self.experts + 1):
            expert, offset, size, checksum, generation, source = struct.unpack_from("<q5Q", index, 64 * i)
            need(expert == (i if i < self.experts else -1) and generation <= self.generation, f"entry {i}")
            if size == 0:
                continue
            need(size == (self.record_bytes if i < self.experts else self.shared_bytes), f"size of record {i}")
            record = self.records[expert] = self.take((offset, size, checksum), f"record {expert}")
            head = struct.unpack_from("<IIqQ", record)
            layout = self.layout if i < self.experts else self.shared_layout
            need(head == (0x3152584D, layout, expert, size), f"record {expert} is another's")
            h = xxh3(struct.pack("<QQ", h, source)) if i < self.experts else h
        need(sum(e >= 0 for e in self.records) == self.held, "another number of experts than the header's")
        need(h == self.fingerprint or self.generation > 1, "another fingerprint")

for name in sys.argv[1:]:
    try:
        f = ExpertFile(name)
    except ValueError as refused:
        sys.exit(f"{name}: {refused}")
    print(f"{name}: layer {f.layer}, {f.held} of {f.experts} experts, {f.target}, {f.layout_name}, {len(f.sections)} sections")
