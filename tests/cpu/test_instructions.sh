#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An object holds only instructions that the processors which run it have:
#
#     _avx2.c, _avx512.c, _amx.c, _neon.c, ...    its class (cpu_features.h), and the extension that its suffix names
#     the few files in beyond()                   also extensions that the file itself checks for before it uses them
#     functions that check for extensions         only the class of their file
#     all other objects                           only the architecture's baseline
#
# The assembler checks this: it gets the disassembly back with only these extensions enabled. Emulators cannot check it,
# because none has AVX-512 without some of its extensions.
set -eu
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cc=${CC:-cc}
as=$($cc -print-prog-name=as) objdump=$($cc -print-prog-name=objdump)
case $($cc -dumpmachine) in
x86_64*) every=generic64 remark='#' ;;
aarch64*) every=armv8-a remark='//' ;;
*) echo "skipped: no extensions are listed for $($cc -dumpmachine)"; exit 77 ;;
esac
for tool in "$as" "$objdump"; do
    command -v "$tool" >/dev/null || { echo "skipped: no $tool here"; exit 77; }
done

# The assembler's names of the classes, and the extensions that an object's name adds.
avx2=generic64+avx2+fma+f16c
avx512=$avx2+avx512f+avx512bw+avx512dq+avx512vl
amx=$avx512+avx512vbmi+avx512_bf16+amx_tile+amx_bf16+amx_int8
class_of() {
    case $every:$1 in
    generic64:*_avx2 | generic64:*_avxvnni) echo $avx2 ;;
    generic64:*_avx512 | generic64:*_avx512_*) echo $avx512 ;;
    generic64:*_amx) echo $amx ;;
    armv8-a:*_neon_*) echo armv8.2-a ;; # these extensions begin there
    *) echo $every ;;
    esac
}
suffix_of() {
    case $every:$1 in
    generic64:*_avxvnni) echo +avx_vnni ;;
    generic64:*_avx512_vbmi) echo +avx512vbmi ;;
    generic64:*_avx512_bf16) echo +avx512_bf16+avx512vbmi ;;
    generic64:*_avx512_*) echo "+avx512_${1##*_}" ;;
    armv8-a:*_neon_i8mm) echo +dotprod+i8mm ;;
    armv8-a:*_neon_*) echo "+${1##*_}" ;;
    esac
}

# These are asked for first: by mox_cpu() after OSXSAVE, the probes with .present, amx_plan.c for kernel amx_bf16.
beyond() {
    case $every:$1 in
    generic64:cpu_features) echo +xsave ;;
    generic64:limits_avx2) echo +avx_vnni ;;
    generic64:limits_avx512) echo +avx512_vnni+avx512_bf16 ;;
    generic64:amx_bytes_amx | generic64:amx_int_dot_amx | generic64:amx_job_amx | \
        generic64:amx_nibbles_amx) echo +avx512_vnni+avx512_fp16 ;;
    esac
}

# The instructions of an object, or of its functions that match $2, each once. Left out: jumps and addresses, which name
# places that are not there, and padding. gcc writes __builtin_ctz of what is not 0 as `rep bsf`: tzcnt where there is BMI1,
# bsf elsewhere, with the same result.
instructions() {
    "$objdump" -d --no-show-raw-insn "$1" | awk -v only="${2:-.}" -v remark="[ \t]*$remark.*" '
        /^[0-9a-f]+ <.*>:$/ { wanted = $2 ~ only }
        wanted && sub(/^ *[0-9a-f]+:\t/, "") {
            sub(remark, "")
            sub(/<.*>/, "")
            sub(/^tzcnt/, "bsf")
            if ($0 !~ /^(j[a-z]+|call|loop|b|bl|b\.[a-z]+|cbn?z|tbn?z|adrp?)[ \t]|^(notrack|bnd|cs|data16|nop|udf)/)
                print
        }' | sort -u
}

# check OBJECT EXTENSIONS WHAT [FUNCTIONS]
failed=0 checked=0
check() {
    instructions "$1" "${4:-}" >"$tmp/code.s"
    checked=$((checked + $(wc -l <"$tmp/code.s")))
    if ! "$as" -march="$2" -o /dev/null "$tmp/code.s" 2>"$tmp/errors"; then
        echo "$3, with $2:"
        sed -n 's/^[^:]*:[0-9]*: Error: /    /p; s/^Fatal error: /    /p' "$tmp/errors" | sort | uniq -c | head -20
        failed=1
    fi
}

find "$build/CMakeFiles/moxie_objects.dir" -name '*.c.o' | sort >"$tmp/objects"
while read -r object; do
    name=$(basename "$object" .c.o)
    class=$(class_of "$name") more=$(suffix_of "$name")$(beyond "$name")
    check "$object" "$class$more" "$name"
    [ -z "$more" ] || check "$object" "$class" "$name, before it is asked for" '<has_'
done <"$tmp/objects"
echo "$checked instructions of $(wc -l <"$tmp/objects") objects"
[ "$checked" -gt 10000 ] || { echo "that is not all of them"; exit 1; }
exit $failed
