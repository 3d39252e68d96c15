/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_wgmma_lists.h - operand lists for inline assembly of a warpgroup MMA with N columns: its accumulators as text and
 * as constraints, and the text of the operands that follow them. Lists only.
 *
 *     MOX_REGS_<N>    "%0, ..., %(N/2 - 1)": the previous list and four more
 *     MOX_D_<N>       the same in braces
 *     MOX_AB_<N>      the two descriptors, A in shared memory
 *     MOX_KEEP_<N>    the flag behind them: 0 starts from zero
 *     MOX_RB_<N>      A in registers: four registers, one descriptor
 *     MOX_KEEP_R_<N>  the flag behind those
 *     MOX_BIND_<N>    d[0] ... d[N/2 - 1], read and written, each bound by MOX_WGMMA_D()
 */
#ifndef MOX_CUDA_PTX_WGMMA_LISTS_H
#define MOX_CUDA_PTX_WGMMA_LISTS_H

/* clang-format off */

#define MOX_REGS_8 "%0, %1, %2, %3"
#define MOX_D_8 "{" MOX_REGS_8 "}"
#define MOX_AB_8 "%4, %5"
#define MOX_KEEP_8 "%6"
#define MOX_RB_8 "{%4, %5, %6, %7}, %8"
#define MOX_KEEP_R_8 "%9"
#define MOX_BIND_8 MOX_WGMMA_D(d[0]), MOX_WGMMA_D(d[1]), MOX_WGMMA_D(d[2]), MOX_WGMMA_D(d[3])

#define MOX_REGS_16 MOX_REGS_8 ", %4, %5, %6, %7"
#define MOX_D_16 "{" MOX_REGS_16 "}"
#define MOX_AB_16 "%8, %9"
#define MOX_KEEP_16 "%10"
#define MOX_RB_16 "{%8, %9, %10, %11}, %12"
#define MOX_KEEP_R_16 "%13"
#define MOX_BIND_16 MOX_BIND_8, MOX_WGMMA_D(d[4]), MOX_WGMMA_D(d[5]), MOX_WGMMA_D(d[6]), MOX_WGMMA_D(d[7])

#define MOX_REGS_24 MOX_REGS_16 ", %8, %9, %10, %11"
#define MOX_D_24 "{" MOX_REGS_24 "}"
#define MOX_AB_24 "%12, %13"
#define MOX_KEEP_24 "%14"
#define MOX_RB_24 "{%12, %13, %14, %15}, %16"
#define MOX_KEEP_R_24 "%17"
#define MOX_BIND_24 MOX_BIND_16, MOX_WGMMA_D(d[8]), MOX_WGMMA_D(d[9]), MOX_WGMMA_D(d[10]), MOX_WGMMA_D(d[11])

#define MOX_REGS_32 MOX_REGS_24 ", %12, %13, %14, %15"
#define MOX_D_32 "{" MOX_REGS_32 "}"
#define MOX_AB_32 "%16, %17"
#define MOX_KEEP_32 "%18"
#define MOX_RB_32 "{%16, %17, %18, %19}, %20"
#define MOX_KEEP_R_32 "%21"
#define MOX_BIND_32 MOX_BIND_24, MOX_WGMMA_D(d[12]), MOX_WGMMA_D(d[13]), MOX_WGMMA_D(d[14]), MOX_WGMMA_D(d[15])

#define MOX_REGS_40 MOX_REGS_32 ", %16, %17, %18, %19"
#define MOX_D_40 "{" MOX_REGS_40 "}"
#define MOX_AB_40 "%20, %21"
#define MOX_KEEP_40 "%22"
#define MOX_RB_40 "{%20, %21, %22, %23}, %24"
#define MOX_KEEP_R_40 "%25"
#define MOX_BIND_40 MOX_BIND_32, MOX_WGMMA_D(d[16]), MOX_WGMMA_D(d[17]), MOX_WGMMA_D(d[18]), MOX_WGMMA_D(d[19])

#define MOX_REGS_48 MOX_REGS_40 ", %20, %21, %22, %23"
#define MOX_D_48 "{" MOX_REGS_48 "}"
#define MOX_AB_48 "%24, %25"
#define MOX_KEEP_48 "%26"
#define MOX_RB_48 "{%24, %25, %26, %27}, %28"
#define MOX_KEEP_R_48 "%29"
#define MOX_BIND_48 MOX_BIND_40, MOX_WGMMA_D(d[20]), MOX_WGMMA_D(d[21]), MOX_WGMMA_D(d[22]), MOX_WGMMA_D(d[23])

#define MOX_REGS_56 MOX_REGS_48 ", %24, %25, %26, %27"
#define MOX_D_56 "{" MOX_REGS_56 "}"
#define MOX_AB_56 "%28, %29"
#define MOX_KEEP_56 "%30"
#define MOX_RB_56 "{%28, %29, %30, %31}, %32"
#define MOX_KEEP_R_56 "%33"
#define MOX_BIND_56 MOX_BIND_48, MOX_WGMMA_D(d[24]), MOX_WGMMA_D(d[25]), MOX_WGMMA_D(d[26]), MOX_WGMMA_D(d[27])

#define MOX_REGS_64 MOX_REGS_56 ", %28, %29, %30, %31"
#define MOX_D_64 "{" MOX_REGS_64 "}"
#define MOX_AB_64 "%32, %33"
#define MOX_KEEP_64 "%34"
#define MOX_RB_64 "{%32, %33, %34, %35}, %36"
#define MOX_KEEP_R_64 "%37"
#define MOX_BIND_64 MOX_BIND_56, MOX_WGMMA_D(d[28]), MOX_WGMMA_D(d[29]), MOX_WGMMA_D(d[30]), MOX_WGMMA_D(d[31])

#define MOX_REGS_72 MOX_REGS_64 ", %32, %33, %34, %35"
#define MOX_D_72 "{" MOX_REGS_72 "}"
#define MOX_AB_72 "%36, %37"
#define MOX_KEEP_72 "%38"
#define MOX_RB_72 "{%36, %37, %38, %39}, %40"
#define MOX_KEEP_R_72 "%41"
#define MOX_BIND_72 MOX_BIND_64, MOX_WGMMA_D(d[32]), MOX_WGMMA_D(d[33]), MOX_WGMMA_D(d[34]), MOX_WGMMA_D(d[35])

#define MOX_REGS_80 MOX_REGS_72 ", %36, %37, %38, %39"
#define MOX_D_80 "{" MOX_REGS_80 "}"
#define MOX_AB_80 "%40, %41"
#define MOX_KEEP_80 "%42"
#define MOX_RB_80 "{%40, %41, %42, %43}, %44"
#define MOX_KEEP_R_80 "%45"
#define MOX_BIND_80 MOX_BIND_72, MOX_WGMMA_D(d[36]), MOX_WGMMA_D(d[37]), MOX_WGMMA_D(d[38]), MOX_WGMMA_D(d[39])

#define MOX_REGS_88 MOX_REGS_80 ", %40, %41, %42, %43"
#define MOX_D_88 "{" MOX_REGS_88 "}"
#define MOX_AB_88 "%44, %45"
#define MOX_KEEP_88 "%46"
#define MOX_RB_88 "{%44, %45, %46, %47}, %48"
#define MOX_KEEP_R_88 "%49"
#define MOX_BIND_88 MOX_BIND_80, MOX_WGMMA_D(d[40]), MOX_WGMMA_D(d[41]), MOX_WGMMA_D(d[42]), MOX_WGMMA_D(d[43])

#define MOX_REGS_96 MOX_REGS_88 ", %44, %45, %46, %47"
#define MOX_D_96 "{" MOX_REGS_96 "}"
#define MOX_AB_96 "%48, %49"
#define MOX_KEEP_96 "%50"
#define MOX_RB_96 "{%48, %49, %50, %51}, %52"
#define MOX_KEEP_R_96 "%53"
#define MOX_BIND_96 MOX_BIND_88, MOX_WGMMA_D(d[44]), MOX_WGMMA_D(d[45]), MOX_WGMMA_D(d[46]), MOX_WGMMA_D(d[47])

#define MOX_REGS_104 MOX_REGS_96 ", %48, %49, %50, %51"
#define MOX_D_104 "{" MOX_REGS_104 "}"
#define MOX_AB_104 "%52, %53"
#define MOX_KEEP_104 "%54"
#define MOX_RB_104 "{%52, %53, %54, %55}, %56"
#define MOX_KEEP_R_104 "%57"
#define MOX_BIND_104 MOX_BIND_96, MOX_WGMMA_D(d[48]), MOX_WGMMA_D(d[49]), MOX_WGMMA_D(d[50]), MOX_WGMMA_D(d[51])

#define MOX_REGS_112 MOX_REGS_104 ", %52, %53, %54, %55"
#define MOX_D_112 "{" MOX_REGS_112 "}"
#define MOX_AB_112 "%56, %57"
#define MOX_KEEP_112 "%58"
#define MOX_RB_112 "{%56, %57, %58, %59}, %60"
#define MOX_KEEP_R_112 "%61"
#define MOX_BIND_112 MOX_BIND_104, MOX_WGMMA_D(d[52]), MOX_WGMMA_D(d[53]), MOX_WGMMA_D(d[54]), MOX_WGMMA_D(d[55])

#define MOX_REGS_120 MOX_REGS_112 ", %56, %57, %58, %59"
#define MOX_D_120 "{" MOX_REGS_120 "}"
#define MOX_AB_120 "%60, %61"
#define MOX_KEEP_120 "%62"
#define MOX_RB_120 "{%60, %61, %62, %63}, %64"
#define MOX_KEEP_R_120 "%65"
#define MOX_BIND_120 MOX_BIND_112, MOX_WGMMA_D(d[56]), MOX_WGMMA_D(d[57]), MOX_WGMMA_D(d[58]), MOX_WGMMA_D(d[59])

#define MOX_REGS_128 MOX_REGS_120 ", %60, %61, %62, %63"
#define MOX_D_128 "{" MOX_REGS_128 "}"
#define MOX_AB_128 "%64, %65"
#define MOX_KEEP_128 "%66"
#define MOX_RB_128 "{%64, %65, %66, %67}, %68"
#define MOX_KEEP_R_128 "%69"
#define MOX_BIND_128 MOX_BIND_120, MOX_WGMMA_D(d[60]), MOX_WGMMA_D(d[61]), MOX_WGMMA_D(d[62]), MOX_WGMMA_D(d[63])

#define MOX_REGS_136 MOX_REGS_128 ", %64, %65, %66, %67"
#define MOX_D_136 "{" MOX_REGS_136 "}"
#define MOX_AB_136 "%68, %69"
#define MOX_KEEP_136 "%70"
#define MOX_RB_136 "{%68, %69, %70, %71}, %72"
#define MOX_KEEP_R_136 "%73"
#define MOX_BIND_136 MOX_BIND_128, MOX_WGMMA_D(d[64]), MOX_WGMMA_D(d[65]), MOX_WGMMA_D(d[66]), MOX_WGMMA_D(d[67])

#define MOX_REGS_144 MOX_REGS_136 ", %68, %69, %70, %71"
#define MOX_D_144 "{" MOX_REGS_144 "}"
#define MOX_AB_144 "%72, %73"
#define MOX_KEEP_144 "%74"
#define MOX_RB_144 "{%72, %73, %74, %75}, %76"
#define MOX_KEEP_R_144 "%77"
#define MOX_BIND_144 MOX_BIND_136, MOX_WGMMA_D(d[68]), MOX_WGMMA_D(d[69]), MOX_WGMMA_D(d[70]), MOX_WGMMA_D(d[71])

#define MOX_REGS_152 MOX_REGS_144 ", %72, %73, %74, %75"
#define MOX_D_152 "{" MOX_REGS_152 "}"
#define MOX_AB_152 "%76, %77"
#define MOX_KEEP_152 "%78"
#define MOX_RB_152 "{%76, %77, %78, %79}, %80"
#define MOX_KEEP_R_152 "%81"
#define MOX_BIND_152 MOX_BIND_144, MOX_WGMMA_D(d[72]), MOX_WGMMA_D(d[73]), MOX_WGMMA_D(d[74]), MOX_WGMMA_D(d[75])

#define MOX_REGS_160 MOX_REGS_152 ", %76, %77, %78, %79"
#define MOX_D_160 "{" MOX_REGS_160 "}"
#define MOX_AB_160 "%80, %81"
#define MOX_KEEP_160 "%82"
#define MOX_RB_160 "{%80, %81, %82, %83}, %84"
#define MOX_KEEP_R_160 "%85"
#define MOX_BIND_160 MOX_BIND_152, MOX_WGMMA_D(d[76]), MOX_WGMMA_D(d[77]), MOX_WGMMA_D(d[78]), MOX_WGMMA_D(d[79])

#define MOX_REGS_168 MOX_REGS_160 ", %80, %81, %82, %83"
#define MOX_D_168 "{" MOX_REGS_168 "}"
#define MOX_AB_168 "%84, %85"
#define MOX_KEEP_168 "%86"
#define MOX_RB_168 "{%84, %85, %86, %87}, %88"
#define MOX_KEEP_R_168 "%89"
#define MOX_BIND_168 MOX_BIND_160, MOX_WGMMA_D(d[80]), MOX_WGMMA_D(d[81]), MOX_WGMMA_D(d[82]), MOX_WGMMA_D(d[83])

#define MOX_REGS_176 MOX_REGS_168 ", %84, %85, %86, %87"
#define MOX_D_176 "{" MOX_REGS_176 "}"
#define MOX_AB_176 "%88, %89"
#define MOX_KEEP_176 "%90"
#define MOX_RB_176 "{%88, %89, %90, %91}, %92"
#define MOX_KEEP_R_176 "%93"
#define MOX_BIND_176 MOX_BIND_168, MOX_WGMMA_D(d[84]), MOX_WGMMA_D(d[85]), MOX_WGMMA_D(d[86]), MOX_WGMMA_D(d[87])

#define MOX_REGS_184 MOX_REGS_176 ", %88, %89, %90, %91"
#define MOX_D_184 "{" MOX_REGS_184 "}"
#define MOX_AB_184 "%92, %93"
#define MOX_KEEP_184 "%94"
#define MOX_RB_184 "{%92, %93, %94, %95}, %96"
#define MOX_KEEP_R_184 "%97"
#define MOX_BIND_184 MOX_BIND_176, MOX_WGMMA_D(d[88]), MOX_WGMMA_D(d[89]), MOX_WGMMA_D(d[90]), MOX_WGMMA_D(d[91])

#define MOX_REGS_192 MOX_REGS_184 ", %92, %93, %94, %95"
#define MOX_D_192 "{" MOX_REGS_192 "}"
#define MOX_AB_192 "%96, %97"
#define MOX_KEEP_192 "%98"
#define MOX_RB_192 "{%96, %97, %98, %99}, %100"
#define MOX_KEEP_R_192 "%101"
#define MOX_BIND_192 MOX_BIND_184, MOX_WGMMA_D(d[92]), MOX_WGMMA_D(d[93]), MOX_WGMMA_D(d[94]), MOX_WGMMA_D(d[95])

#define MOX_REGS_200 MOX_REGS_192 ", %96, %97, %98, %99"
#define MOX_D_200 "{" MOX_REGS_200 "}"
#define MOX_AB_200 "%100, %101"
#define MOX_KEEP_200 "%102"
#define MOX_RB_200 "{%100, %101, %102, %103}, %104"
#define MOX_KEEP_R_200 "%105"
#define MOX_BIND_200 MOX_BIND_192, MOX_WGMMA_D(d[96]), MOX_WGMMA_D(d[97]), MOX_WGMMA_D(d[98]), MOX_WGMMA_D(d[99])

#define MOX_REGS_208 MOX_REGS_200 ", %100, %101, %102, %103"
#define MOX_D_208 "{" MOX_REGS_208 "}"
#define MOX_AB_208 "%104, %105"
#define MOX_KEEP_208 "%106"
#define MOX_RB_208 "{%104, %105, %106, %107}, %108"
#define MOX_KEEP_R_208 "%109"
#define MOX_BIND_208 MOX_BIND_200, MOX_WGMMA_D(d[100]), MOX_WGMMA_D(d[101]), MOX_WGMMA_D(d[102]), MOX_WGMMA_D(d[103])

#define MOX_REGS_216 MOX_REGS_208 ", %104, %105, %106, %107"
#define MOX_D_216 "{" MOX_REGS_216 "}"
#define MOX_AB_216 "%108, %109"
#define MOX_KEEP_216 "%110"
#define MOX_RB_216 "{%108, %109, %110, %111}, %112"
#define MOX_KEEP_R_216 "%113"
#define MOX_BIND_216 MOX_BIND_208, MOX_WGMMA_D(d[104]), MOX_WGMMA_D(d[105]), MOX_WGMMA_D(d[106]), MOX_WGMMA_D(d[107])

#define MOX_REGS_224 MOX_REGS_216 ", %108, %109, %110, %111"
#define MOX_D_224 "{" MOX_REGS_224 "}"
#define MOX_AB_224 "%112, %113"
#define MOX_KEEP_224 "%114"
#define MOX_RB_224 "{%112, %113, %114, %115}, %116"
#define MOX_KEEP_R_224 "%117"
#define MOX_BIND_224 MOX_BIND_216, MOX_WGMMA_D(d[108]), MOX_WGMMA_D(d[109]), MOX_WGMMA_D(d[110]), MOX_WGMMA_D(d[111])

#define MOX_REGS_232 MOX_REGS_224 ", %112, %113, %114, %115"
#define MOX_D_232 "{" MOX_REGS_232 "}"
#define MOX_AB_232 "%116, %117"
#define MOX_KEEP_232 "%118"
#define MOX_RB_232 "{%116, %117, %118, %119}, %120"
#define MOX_KEEP_R_232 "%121"
#define MOX_BIND_232 MOX_BIND_224, MOX_WGMMA_D(d[112]), MOX_WGMMA_D(d[113]), MOX_WGMMA_D(d[114]), MOX_WGMMA_D(d[115])

#define MOX_REGS_240 MOX_REGS_232 ", %116, %117, %118, %119"
#define MOX_D_240 "{" MOX_REGS_240 "}"
#define MOX_AB_240 "%120, %121"
#define MOX_KEEP_240 "%122"
#define MOX_RB_240 "{%120, %121, %122, %123}, %124"
#define MOX_KEEP_R_240 "%125"
#define MOX_BIND_240 MOX_BIND_232, MOX_WGMMA_D(d[116]), MOX_WGMMA_D(d[117]), MOX_WGMMA_D(d[118]), MOX_WGMMA_D(d[119])

#define MOX_REGS_248 MOX_REGS_240 ", %120, %121, %122, %123"
#define MOX_D_248 "{" MOX_REGS_248 "}"
#define MOX_AB_248 "%124, %125"
#define MOX_KEEP_248 "%126"
#define MOX_RB_248 "{%124, %125, %126, %127}, %128"
#define MOX_KEEP_R_248 "%129"
#define MOX_BIND_248 MOX_BIND_240, MOX_WGMMA_D(d[120]), MOX_WGMMA_D(d[121]), MOX_WGMMA_D(d[122]), MOX_WGMMA_D(d[123])

#define MOX_REGS_256 MOX_REGS_248 ", %124, %125, %126, %127"
#define MOX_D_256 "{" MOX_REGS_256 "}"
#define MOX_AB_256 "%128, %129"
#define MOX_KEEP_256 "%130"
#define MOX_RB_256 "{%128, %129, %130, %131}, %132"
#define MOX_KEEP_R_256 "%133"
#define MOX_BIND_256 MOX_BIND_248, MOX_WGMMA_D(d[124]), MOX_WGMMA_D(d[125]), MOX_WGMMA_D(d[126]), MOX_WGMMA_D(d[127])

/* clang-format on */

#endif
