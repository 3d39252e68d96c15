#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tokenizer of a directory in its GGUF file: tokens, types, merges, special tokens and template, as llama.cpp's
# conversion writes them (with gguf-py its SpecialVocab is the reference, too); tokenizers that it has no keys for are left
# out, and the output says why.
. "$(dirname "$0")/cli_lib.sh"
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }

cat >"$tmp/tokenizer.py" <<'END'
import json, sys
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")
level = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': False, 'use_regex': False}
made = {
    'version': '1.0', 'normalizer': {'type': 'NFC'},
    'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [
        {'type': 'Split', 'pattern': {'Regex': QWEN2}, 'behavior': 'Isolated', 'invert': False}, level]},
    'post_processor': dict(level), 'decoder': dict(level),
    'model': {'type': 'BPE', 'byte_fallback': False, 'vocab': {'a': 0, 'b': 1, '\u0120': 2, 'ab': 3, '\u0120a': 4, '\u00e9"\\': 5},
              'merges': [['a', 'b'], [' ', 'a']]},
    'added_tokens': [{'id': 7, 'content': '<|end|>', 'special': False}, {'id': 6, 'content': '<tool>', 'special': False},
                     {'id': 9, 'content': '<s>', 'special': True}]}
settings = {'bos_token': None, 'eos_token': {'content': '<|end|>'}, 'pad_token': '<s>', 'add_bos_token': True,
            'added_tokens_decoder': {'8': {'content': 'only here', 'special': True}}}
dir, change = sys.argv[1], sys.argv[2]
config = json.load(open(dir + '/config.json'))
config |= {'vocab_size': 12, 'bos_token_id': 9, 'eos_token_id': 0}
if change == 'pattern':
    made['pre_tokenizer']['pretokenizers'][0]['pattern']['Regex'] = QWEN2.replace('N}|', 'N}{1,2}|')
elif change == 'wordpiece':
    made['model']['type'] = 'WordPiece'
elif change == 'adds':
    made['post_processor'] = {'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': '<s>'}}, {'Sequence': {'id': 'A'}}]}
elif change == 'past':
    config['vocab_size'] = 9
elif change == 'merge':
    made['model']['merges'][1] = ['a']
elif change == 'text merge':
    made['model']['merges'] = ['a b', 'ab']
elif change == 'merges':
    del made['model']['merges']
elif change == 'nameless':
    settings['added_tokens_decoder'][''] = {'content': 'in the place of a'}
elif change == 'normalizer':
    made['normalizer'] = {'type': 'Lowercase'}
json.dump(config, open(dir + '/config.json', 'w'))
json.dump(made, open(dir + '/tokenizer.json', 'w'), ensure_ascii=change == 'none')
json.dump(settings, open(dir + '/tokenizer_config.json', 'w'))
open(dir + '/chat_template.jinja', 'w').write('{{ messages }}\n\u00e9')
END
cat >"$tmp/metadata.py" <<'END'
import struct
SIZES = {0: 'B', 1: 'b', 2: 'H', 3: 'h', 4: 'I', 5: 'i', 6: 'f', 7: '?', 10: 'Q', 11: 'q', 12: 'd'}
class File:
    def __init__(self, path):
        self.data, self.at = open(path, 'rb').read(), 24
        self.pairs = [self.pair() for _ in range(struct.unpack_from('<Q', self.data, 16)[0])]
    def number(self, form):
        value = struct.unpack_from('<' + form, self.data, self.at)[0]
        self.at += struct.calcsize('<' + form)
        return value
    def text(self):
        size = self.number('Q')
        self.at += size
        return self.data[self.at - size:self.at].decode()
    def value(self, kind):
        if kind == 9:
            kind, count = self.number('I'), self.number('Q')
            return kind, [self.value(kind) for _ in range(count)]
        return self.text() if kind == 8 else self.number(SIZES[kind])
    def pair(self):
        return self.text(), self.value(self.number('I'))
END
cat >"$tmp/check.py" <<'END'
import importlib.util, sys
from metadata import File
pairs = File(sys.argv[2]).pairs
found = dict(pairs)
assert len(found) == len(pairs)
found = {k: v for k, v in found.items() if k.startswith('tokenizer.')}
g = 'tokenizer.ggml.'
assert found == {
    g + 'model': 'gpt2', g + 'pre': 'qwen2',
    g + 'tokens': (8, ['a', 'b', '\u0120', 'ab', '\u0120a', '\u00e9"\\', '<tool>', '<|end|>', 'only here', '<s>', '[PAD10]', '[PAD11]']),
    g + 'token_type': (5, [1] * 6 + [4, 3, 3, 3, 5, 5]), g + 'merges': (8, ['a b', '\u0120 a']),
    g + 'bos_token_id': 9, g + 'eos_token_id': 7, g + 'padding_token_id': 9, g + 'add_bos_token': False, g + 'add_eos_token': False,
    'tokenizer.chat_template': '{{ messages }}\n\u00e9'}, found
if importlib.util.find_spec('gguf'):
    import gguf
    v = gguf.SpecialVocab(sys.argv[1], load_merges=True)
    assert v.merges == found[g + 'merges'][1] and v.chat_template == found['tokenizer.chat_template']
    names = {'bos': 'bos', 'eos': 'eos', 'unk': 'unknown', 'sep': 'seperator', 'pad': 'padding', 'cls': 'cls', 'mask': 'mask'}
    ids = {g + names[k] + '_token_id': n for k, n in v.special_token_ids.items()}
    assert ids == {k: n for k, n in found.items() if k.endswith('_token_id')}
END

synth qwen3-30b-a3b bf16 "$tmp/src" --layers 1
with() { python3 "$tmp/tokenizer.py" "$tmp/src" "$1"; }
expect 0 "no tokenizer was written.*there is no tokenizer.json" "$moxie" quantize "$tmp/src" --format gguf-bf16 -o "$tmp/none.gguf"
with none
expect 0 "tokenizer: 12 tokens" "$moxie" quantize "$tmp/src" --format gguf-bf16 -o "$tmp/a.gguf"
python3 "$tmp/check.py" "$tmp/src" "$tmp/a.gguf" || fail "the tokenizer is not what llama.cpp's conversion writes"
expect 0 "0 errors, 0 warnings" "$moxie" lint "$tmp/a.gguf" --deep
# The file that is made of a file with a tokenizer has the same one, byte for byte.
expect 0 "root mean square" "$moxie" quantize "$tmp/a.gguf" --format gguf-q8_0 -o "$tmp/b.gguf"
expect 0 "root mean square" "$moxie" quantize "$tmp/src" --format gguf-q8_0 -o "$tmp/c.gguf"
cmp "$tmp/b.gguf" "$tmp/c.gguf" || fail "a directory and the GGUF file of it give other bytes"
with text # other escapes in the JSON, the same text
expect 0 "tokenizer: 12 tokens" "$moxie" quantize "$tmp/src" --format gguf-bf16 -o "$tmp/d.gguf"
cmp "$tmp/a.gguf" "$tmp/d.gguf" || fail "escapes of JSON are read as something else"

left_out() {
    with "$1"
    rm -f "$tmp/x.gguf"
    expect 0 "no tokenizer was written.*$2" "$moxie" quantize "$tmp/src" --format gguf-bf16 -o "$tmp/x.gguf"
    if grep -q tokenizer "$tmp/x.gguf"; then fail "$1: keys of a tokenizer are written"; fi
}
left_out pattern "pre-tokenizer is none that is known"
left_out wordpiece "no byte-level BPE"
left_out adds "adds tokens"
left_out past "past config.json's vocab_size"
left_out 'text merge' "no pair of texts"
left_out merge "no pair of texts"
left_out normalizer "other than NFC"
left_out merges "has no merges"
left_out nameless "token without text"
with none
echo '{' >"$tmp/src/tokenizer_config.json"
expect 0 "no tokenizer was written.*tokenizer_config.json cannot be read" "$moxie" quantize "$tmp/src" --format gguf-bf16 -o "$tmp/z.gguf"
echo '{"model": {' >"$tmp/src/tokenizer.json"
expect 0 "cannot be read" "$moxie" quantize "$tmp/src" --format gguf-bf16 -o "$tmp/y.gguf" --json
finish
