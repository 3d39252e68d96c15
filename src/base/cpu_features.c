/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu_features.c - finds which instructions the processor has and the system permits.
 *
 * x86-64: a feature counts when CPUID reports it and XCR0 (read by XGETBV) shows that the system saves its registers.
 * AMX also needs the system's permission for tile data, which is requested here, once per process. aarch64: the
 * system's hardware capability words; on macOS, where nothing has been tested, its sysctl names. Sources: Intel SDM
 * vol. 2A (CPUID) and vol. 1 ch. 13 (XCR0); Linux Documentation/arch/x86/xstate.rst; Linux
 * Documentation/arch/arm64/elf_hwcaps.rst; cgroup v2 "cpu.max".
 */
#include "base/cpu_features.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

static const char *const isa_names[] = {
    [MOX_ISA_SCALAR] = "scalar", [MOX_ISA_NEON] = "neon", [MOX_ISA_AVX2] = "avx2",
    [MOX_ISA_AVX512] = "avx512", [MOX_ISA_AMX] = "amx",
};
enum { ISA_COUNT = sizeof isa_names / sizeof *isa_names };

/* The classes of the architecture that this is built for, lowest first. */
#if defined(__x86_64__)
static const char architecture[] = "x86-64", class_names[] = "scalar, avx2, avx512 or amx";
static const bool has_class[ISA_COUNT] = {
    [MOX_ISA_SCALAR] = true, [MOX_ISA_AVX2] = true, [MOX_ISA_AVX512] = true, [MOX_ISA_AMX] = true
};
#elif defined(__aarch64__)
static const char architecture[] = "64-bit ARM", class_names[] = "scalar or neon";
static const bool has_class[ISA_COUNT] = { [MOX_ISA_SCALAR] = true, [MOX_ISA_NEON] = true };
#else
static const char architecture[] = "no architecture with vector kernels", class_names[] = "scalar";
static const bool has_class[ISA_COUNT] = { [MOX_ISA_SCALAR] = true };
#endif

static mox_cpu_features cpu;
static pthread_once_t cpu_once = PTHREAD_ONCE_INIT;
static moxie_error cap_error; /* why MOXIE_MAX_ISA names no class; code MOXIE_OK: it does, or is not set */
static const mox_cpu_features *replaced;
static _Thread_local const mox_cpu_features *assumed;

const char *mox_isa_name(mox_isa isa)
{
    return (unsigned)isa < ISA_COUNT ? isa_names[isa] : "?";
}

moxie_status mox_isa_from_name(const char *name, mox_isa *out, moxie_error *error)
{
    char shown[64];

    if (!name || !*name) {
        *out = (mox_isa)(ISA_COUNT - 1);
        return MOXIE_OK;
    }
    for (int isa = 0; isa < ISA_COUNT; isa++) {
        if (strcmp(name, isa_names[isa]) != 0)
            continue;
        MOX_FAIL_IF(!has_class[isa], MOXIE_ERR_ARGUMENT, error,
                    "\"%s\" is an instruction set class of another architecture, this is %s; give %s", name,
                    architecture, class_names);
        *out = (mox_isa)isa;
        return MOXIE_OK;
    }
    return mox_fail(MOXIE_ERR_ARGUMENT, error, "\"%s\" names no instruction set class; give %s",
                    mox_escape(shown, sizeof shown, name), class_names);
}

#if defined(__x86_64__)

static bool bit(uint32_t word, int index)
{
    return (word >> index) & 1;
}

/* XCR0: which register files the system saves on a context switch. */
static uint64_t saved_state(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool permit_tile_data(void)
{
    const long request_permission = 0x1023; /* ARCH_REQ_XCOMP_PERM */
    const long tile_data = 18;              /* XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

static void probe_brand(char brand[64])
{
    uint32_t words[12];
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t *w = words + 4 * i;
        if (!__get_cpuid(0x80000002u + i, &w[0], &w[1], &w[2], &w[3]))
            return;
    }
    memcpy(brand, words, sizeof words); /* 48 bytes; the rest of `brand` stays zero */
    mox_make_printable(brand, 64);      /* a virtual machine's may hold any bytes */
}

/* Zen 4 and 5 start as many VDPBF16PS per cycle as multiply-adds. Intel's processors since Sapphire Rapids start half
 * as many (uops.info), each with twice the work, so they gain nothing. */
static bool is_amd(void)
{
    uint32_t a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx && c == signature_AMD_ecx && d == signature_AMD_edx;
}

static void probe(mox_cpu_features *f)
{
    const uint64_t vector_state = 0x06, mask_state = 0xe0, tile_state = 0x60000;
    uint32_t a, b, c, d;

    probe_brand(f->brand);
    if (!__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 27)) /* OSXSAVE: XGETBV may be used */
        return;
    const uint64_t state = saved_state();
    const bool ymm = (state & vector_state) == vector_state;
    const bool zmm = ymm && (state & mask_state) == mask_state;
    f->fma = ymm && bit(c, 12);
    f->f16c = ymm && bit(c, 29);

    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return;
    f->avx2 = ymm && bit(b, 5);
    f->avx512 = zmm && bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31); /* F, DQ, BW, VL */
    f->avx512_vbmi = f->avx512 && bit(c, 1);
    f->avx512_vnni = f->avx512 && bit(c, 11);
    f->avx512_fp16 = f->avx512 && bit(d, 23);
    if (bit(d, 24))
        f->amx = (state & tile_state) != tile_state ? "disabled" : permit_tile_data() ? "permitted" : "refused";
    f->amx_tile = strcmp(f->amx, "permitted") == 0;
    f->amx_bf16 = f->amx_tile && bit(d, 22);
    f->amx_int8 = f->amx_tile && bit(d, 25);

    if (a < 1 || !__get_cpuid_count(7, 1, &a, &b, &c, &d))
        return;
    f->avx_vnni = f->avx2 && bit(a, 4);
    f->avx512_bf16 = f->avx512 && bit(a, 5);
    f->full_rate_bf16 = f->avx512_bf16 && is_amd();
    f->amx_fp16 = f->amx_tile && bit(a, 21);
}

#elif defined(__aarch64__) && defined(__APPLE__)

/* macOS has no capability words; each feature is a number that is 1 where it is there. */
static bool has(const char *name)
{
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value == 1;
}

static void probe(mox_cpu_features *f)
{
    snprintf(f->brand, sizeof f->brand, "aarch64");
    f->neon = true;
    f->dotprod = has("hw.optional.arm.FEAT_DotProd");
    f->i8mm = has("hw.optional.arm.FEAT_I8MM");
    f->neon_bf16 = has("hw.optional.arm.FEAT_BF16");
}

#elif defined(__aarch64__)

static void probe(mox_cpu_features *f)
{
    const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);

    snprintf(f->brand, sizeof f->brand, "aarch64");
    f->neon = first & HWCAP_ASIMD;
    f->dotprod = first & HWCAP_ASIMDDP;
    f->sve = first & HWCAP_SVE;
    f->i8mm = second & HWCAP2_I8MM;
    f->neon_bf16 = second & HWCAP2_BF16;
}

#else

static void probe(mox_cpu_features *f)
{
    snprintf(f->brand, sizeof f->brand, "unknown");
}

#endif

static mox_isa best_class(const mox_cpu_features *f)
{
    if (f->neon)
        return MOX_ISA_NEON;
    if (!f->avx2 || !f->fma || !f->f16c)
        return MOX_ISA_SCALAR;
    if (!f->avx512)
        return MOX_ISA_AVX2;
    if (!f->amx_tile || !f->amx_bf16 || !f->amx_int8 || !f->avx512_vbmi || !f->avx512_bf16)
        return MOX_ISA_AVX512;
    return MOX_ISA_AMX;
}

static void find_features(void)
{
    mox_isa cap = MOX_ISA_AMX; /* none */

    cpu.amx = "absent";
    probe(&cpu);
    cpu.processors = mox_processor_count();
    cpu.best = cpu.allowed = best_class(&cpu);
    if (mox_isa_from_name(secure_getenv("MOXIE_MAX_ISA"), &cap, &cap_error) != MOXIE_OK)
        cap = MOX_ISA_SCALAR;
    if (cap < cpu.best)
        cpu.allowed = cap;
}

const mox_cpu_features *mox_cpu(void)
{
    if (assumed != NULL)
        return assumed;
    if (replaced != NULL)
        return replaced;
    pthread_once(&cpu_once, find_features);
    return &cpu;
}

moxie_status mox_cpu_check_cap(moxie_error *error)
{
    pthread_once(&cpu_once, find_features);
    if (cap_error.code != MOXIE_OK && error != NULL) {
        *error = cap_error;
        (void)mox_fail_context(cap_error.code, error, "reading the environment variable MOXIE_MAX_ISA");
    }
    return cap_error.code;
}

void mox_cpu_replace(const mox_cpu_features *features)
{
    replaced = features;
}

void mox_cpu_assume(const mox_cpu_features *features)
{
    assumed = features;
}

#define USUAL_AVX2 .avx2 = true, .fma = true, .f16c = true
#define USUAL_AVX512                                                                                                   \
    USUAL_AVX2, .avx512 = true, .avx512_vnni = true, .avx512_vbmi = true /* AVX-512 without VNNI is of 2017 only */
#define USUAL_AMX                                                                                                      \
    USUAL_AVX512, .avx_vnni = true, .avx512_bf16 = true, .avx512_fp16 = true, .amx_tile = true, .amx_bf16 = true,      \
                  .amx_int8 = true

const mox_cpu_features *mox_cpu_usual(const char *name)
{
#define USUAL(class, amx_state, ...)                                                                                   \
    [class] = {.best = class, .allowed = class, .amx = amx_state, .processors = 1, __VA_ARGS__ }
    static const mox_cpu_features usual[ISA_COUNT] = {
        USUAL(MOX_ISA_SCALAR, "absent", .neon = false),
        USUAL(MOX_ISA_NEON, "absent", .neon = true, .dotprod = true, .neon_bf16 = true, .i8mm = true),
        USUAL(MOX_ISA_AVX2, "absent", USUAL_AVX2),
        USUAL(MOX_ISA_AVX512, "absent", USUAL_AVX512),
        USUAL(MOX_ISA_AMX, "permitted", USUAL_AMX),
    };
    for (int isa = 0; name != NULL && isa < ISA_COUNT; isa++)
        if (has_class[isa] && strcmp(name, isa_names[isa]) == 0)
            return &usual[isa];
    return NULL;
}

/* The cgroup's CPU quota in processors, rounded up; 0 when there is none. Reads the path where a container sees its own
 * group. */
static int32_t quota_processors(void)
{
    char text[64];
    long long quota, period;
    const int file = open("/sys/fs/cgroup/cpu.max", O_RDONLY | O_CLOEXEC);

    if (file < 0)
        return 0;
    const ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    if (sscanf(text, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0)
        return 0; /* "max 100000": no limit */
    const long long processors = quota / period + (quota % period != 0);
    return processors < INT32_MAX ? (int32_t)processors : INT32_MAX;
}

int32_t mox_processor_count(void)
{
    /* Room for 65536 processors: cpu_set_t holds 1024, and the call fails on a machine with more. */
    union {
        cpu_set_t set;
        unsigned char bytes[8192];
    } mask;
    int32_t count = 0;

    if (sched_getaffinity(0, sizeof mask, &mask.set) == 0)
        count = CPU_COUNT_S(sizeof mask, &mask.set);
    const int32_t quota = quota_processors();
    if (quota > 0 && quota < count)
        count = quota;
    return count > 0 ? count : 1;
}

void mox_cpu_feature_names(const mox_cpu_features *features, char *buffer, uint64_t size)
{
    const struct {
        bool found;
        const char *name;
    } list[] = {
        { features->avx2, "avx2" },
        { features->fma, "fma" },
        { features->f16c, "f16c" },
        { features->avx_vnni, "avx_vnni" },
        { features->avx512, "avx512" },
        { features->avx512_vnni, "avx512_vnni" },
        { features->avx512_bf16, "avx512_bf16" },
        { features->full_rate_bf16, "full_rate_bf16" },
        { features->avx512_vbmi, "avx512_vbmi" },
        { features->avx512_fp16, "avx512_fp16" },
        { features->amx_tile, "amx_tile" },
        { features->amx_bf16, "amx_bf16" },
        { features->amx_int8, "amx_int8" },
        { features->amx_fp16, "amx_fp16" },
        { features->neon, "neon" },
        { features->dotprod, "dotprod" },
        { features->sve, "sve" },
        { features->neon_bf16, "neon_bf16" },
        { features->i8mm, "i8mm" },
    };
    uint64_t used = 0;

    if (size == 0)
        return;
    buffer[0] = '\0';
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const uint64_t bytes = strlen(list[i].name) + (used > 0);
        if (!list[i].found || used + bytes >= size)
            continue;
        snprintf(buffer + used, (size_t)(size - used), "%s%s", used > 0 ? " " : "", list[i].name);
        used += bytes;
    }
}
