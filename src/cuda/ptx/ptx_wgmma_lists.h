/* SPDX-License-Identifier: Apache-2.0
 *
 * ptx_wgmma_lists.h - lists of operands for inline assembly: the accumulators of a warpgroup MMA with N columns, as the
 * text of their registers, of the operands behind them, and as the constraints that bind them. Lists only.
 *
 *     MOX_REGS_<N>  "%0, ..., %(N/2 - 1)", what the list before has and what is new
 *     MOX_D_<N>     the same in braces
 *     MOX_AB_<N>    the two descriptors behind them
 *     MOX_KEEP_<N>  the flag behind those: 0 starts from zero
 *     MOX_RB_<N>    in their place, where A is in registers: four of these, one descriptor
 *     MOX_KEEP_R_<N>  the flag behind those
 *     MOX_BIND_<N>  d[0] ... d[N/2 - 1], read and written
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
#define MOX_BIND_8 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])

#define MOX_REGS_16 MOX_REGS_8 ", %4, %5, %6, %7"
#define MOX_D_16 "{" MOX_REGS_16 "}"
#define MOX_AB_16 "%8, %9"
#define MOX_KEEP_16 "%10"
#define MOX_RB_16 "{%8, %9, %10, %11}, %12"
#define MOX_KEEP_R_16 "%13"
#define MOX_BIND_16 MOX_BIND_8, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])

#define MOX_REGS_24 MOX_REGS_16 ", %8, %9, %10, %11"
#define MOX_D_24 "{" MOX_REGS_24 "}"
#define MOX_AB_24 "%12, %13"
#define MOX_KEEP_24 "%14"
#define MOX_RB_24 "{%12, %13, %14, %15}, %16"
#define MOX_KEEP_R_24 "%17"
#define MOX_BIND_24 MOX_BIND_16, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])

#define MOX_REGS_32 MOX_REGS_24 ", %12, %13, %14, %15"
#define MOX_D_32 "{" MOX_REGS_32 "}"
#define MOX_AB_32 "%16, %17"
#define MOX_KEEP_32 "%18"
#define MOX_RB_32 "{%16, %17, %18, %19}, %20"
#define MOX_KEEP_R_32 "%21"
#define MOX_BIND_32 MOX_BIND_24, "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])

#define MOX_REGS_40 MOX_REGS_32 ", %16, %17, %18, %19"
#define MOX_D_40 "{" MOX_REGS_40 "}"
#define MOX_AB_40 "%20, %21"
#define MOX_KEEP_40 "%22"
#define MOX_RB_40 "{%20, %21, %22, %23}, %24"
#define MOX_KEEP_R_40 "%25"
#define MOX_BIND_40 MOX_BIND_32, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])

#define MOX_REGS_48 MOX_REGS_40 ", %20, %21, %22, %23"
#define MOX_D_48 "{" MOX_REGS_48 "}"
#define MOX_AB_48 "%24, %25"
#define MOX_KEEP_48 "%26"
#define MOX_RB_48 "{%24, %25, %26, %27}, %28"
#define MOX_KEEP_R_48 "%29"
#define MOX_BIND_48 MOX_BIND_40, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])

#define MOX_REGS_56 MOX_REGS_48 ", %24, %25, %26, %27"
#define MOX_D_56 "{" MOX_REGS_56 "}"
#define MOX_AB_56 "%28, %29"
#define MOX_KEEP_56 "%30"
#define MOX_RB_56 "{%28, %29, %30, %31}, %32"
#define MOX_KEEP_R_56 "%33"
#define MOX_BIND_56 MOX_BIND_48, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])

#define MOX_REGS_64 MOX_REGS_56 ", %28, %29, %30, %31"
#define MOX_D_64 "{" MOX_REGS_64 "}"
#define MOX_AB_64 "%32, %33"
#define MOX_KEEP_64 "%34"
#define MOX_RB_64 "{%32, %33, %34, %35}, %36"
#define MOX_KEEP_R_64 "%37"
#define MOX_BIND_64 MOX_BIND_56, "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])

#define MOX_REGS_72 MOX_REGS_64 ", %32, %33, %34, %35"
#define MOX_D_72 "{" MOX_REGS_72 "}"
#define MOX_AB_72 "%36, %37"
#define MOX_KEEP_72 "%38"
#define MOX_RB_72 "{%36, %37, %38, %39}, %40"
#define MOX_KEEP_R_72 "%41"
#define MOX_BIND_72 MOX_BIND_64, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])

#define MOX_REGS_80 MOX_REGS_72 ", %36, %37, %38, %39"
#define MOX_D_80 "{" MOX_REGS_80 "}"
#define MOX_AB_80 "%40, %41"
#define MOX_KEEP_80 "%42"
#define MOX_RB_80 "{%40, %41, %42, %43}, %44"
#define MOX_KEEP_R_80 "%45"
#define MOX_BIND_80 MOX_BIND_72, "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])

#define MOX_REGS_88 MOX_REGS_80 ", %40, %41, %42, %43"
#define MOX_D_88 "{" MOX_REGS_88 "}"
#define MOX_AB_88 "%44, %45"
#define MOX_KEEP_88 "%46"
#define MOX_RB_88 "{%44, %45, %46, %47}, %48"
#define MOX_KEEP_R_88 "%49"
#define MOX_BIND_88 MOX_BIND_80, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])

#define MOX_REGS_96 MOX_REGS_88 ", %44, %45, %46, %47"
#define MOX_D_96 "{" MOX_REGS_96 "}"
#define MOX_AB_96 "%48, %49"
#define MOX_KEEP_96 "%50"
#define MOX_RB_96 "{%48, %49, %50, %51}, %52"
#define MOX_KEEP_R_96 "%53"
#define MOX_BIND_96 MOX_BIND_88, "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])

#define MOX_REGS_104 MOX_REGS_96 ", %48, %49, %50, %51"
#define MOX_D_104 "{" MOX_REGS_104 "}"
#define MOX_AB_104 "%52, %53"
#define MOX_KEEP_104 "%54"
#define MOX_RB_104 "{%52, %53, %54, %55}, %56"
#define MOX_KEEP_R_104 "%57"
#define MOX_BIND_104 MOX_BIND_96, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])

#define MOX_REGS_112 MOX_REGS_104 ", %52, %53, %54, %55"
#define MOX_D_112 "{" MOX_REGS_112 "}"
#define MOX_AB_112 "%56, %57"
#define MOX_KEEP_112 "%58"
#define MOX_RB_112 "{%56, %57, %58, %59}, %60"
#define MOX_KEEP_R_112 "%61"
#define MOX_BIND_112 MOX_BIND_104, "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])

#define MOX_REGS_120 MOX_REGS_112 ", %56, %57, %58, %59"
#define MOX_D_120 "{" MOX_REGS_120 "}"
#define MOX_AB_120 "%60, %61"
#define MOX_KEEP_120 "%62"
#define MOX_RB_120 "{%60, %61, %62, %63}, %64"
#define MOX_KEEP_R_120 "%65"
#define MOX_BIND_120 MOX_BIND_112, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])

#define MOX_REGS_128 MOX_REGS_120 ", %60, %61, %62, %63"
#define MOX_D_128 "{" MOX_REGS_128 "}"
#define MOX_AB_128 "%64, %65"
#define MOX_KEEP_128 "%66"
#define MOX_RB_128 "{%64, %65, %66, %67}, %68"
#define MOX_KEEP_R_128 "%69"
#define MOX_BIND_128 MOX_BIND_120, "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])

#define MOX_REGS_136 MOX_REGS_128 ", %64, %65, %66, %67"
#define MOX_D_136 "{" MOX_REGS_136 "}"
#define MOX_AB_136 "%68, %69"
#define MOX_KEEP_136 "%70"
#define MOX_RB_136 "{%68, %69, %70, %71}, %72"
#define MOX_KEEP_R_136 "%73"
#define MOX_BIND_136 MOX_BIND_128, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])

#define MOX_REGS_144 MOX_REGS_136 ", %68, %69, %70, %71"
#define MOX_D_144 "{" MOX_REGS_144 "}"
#define MOX_AB_144 "%72, %73"
#define MOX_KEEP_144 "%74"
#define MOX_RB_144 "{%72, %73, %74, %75}, %76"
#define MOX_KEEP_R_144 "%77"
#define MOX_BIND_144 MOX_BIND_136, "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])

#define MOX_REGS_152 MOX_REGS_144 ", %72, %73, %74, %75"
#define MOX_D_152 "{" MOX_REGS_152 "}"
#define MOX_AB_152 "%76, %77"
#define MOX_KEEP_152 "%78"
#define MOX_RB_152 "{%76, %77, %78, %79}, %80"
#define MOX_KEEP_R_152 "%81"
#define MOX_BIND_152 MOX_BIND_144, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])

#define MOX_REGS_160 MOX_REGS_152 ", %76, %77, %78, %79"
#define MOX_D_160 "{" MOX_REGS_160 "}"
#define MOX_AB_160 "%80, %81"
#define MOX_KEEP_160 "%82"
#define MOX_RB_160 "{%80, %81, %82, %83}, %84"
#define MOX_KEEP_R_160 "%85"
#define MOX_BIND_160 MOX_BIND_152, "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])

#define MOX_REGS_168 MOX_REGS_160 ", %80, %81, %82, %83"
#define MOX_D_168 "{" MOX_REGS_168 "}"
#define MOX_AB_168 "%84, %85"
#define MOX_KEEP_168 "%86"
#define MOX_RB_168 "{%84, %85, %86, %87}, %88"
#define MOX_KEEP_R_168 "%89"
#define MOX_BIND_168 MOX_BIND_160, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])

#define MOX_REGS_176 MOX_REGS_168 ", %84, %85, %86, %87"
#define MOX_D_176 "{" MOX_REGS_176 "}"
#define MOX_AB_176 "%88, %89"
#define MOX_KEEP_176 "%90"
#define MOX_RB_176 "{%88, %89, %90, %91}, %92"
#define MOX_KEEP_R_176 "%93"
#define MOX_BIND_176 MOX_BIND_168, "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])

#define MOX_REGS_184 MOX_REGS_176 ", %88, %89, %90, %91"
#define MOX_D_184 "{" MOX_REGS_184 "}"
#define MOX_AB_184 "%92, %93"
#define MOX_KEEP_184 "%94"
#define MOX_RB_184 "{%92, %93, %94, %95}, %96"
#define MOX_KEEP_R_184 "%97"
#define MOX_BIND_184 MOX_BIND_176, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])

#define MOX_REGS_192 MOX_REGS_184 ", %92, %93, %94, %95"
#define MOX_D_192 "{" MOX_REGS_192 "}"
#define MOX_AB_192 "%96, %97"
#define MOX_KEEP_192 "%98"
#define MOX_RB_192 "{%96, %97, %98, %99}, %100"
#define MOX_KEEP_R_192 "%101"
#define MOX_BIND_192 MOX_BIND_184, "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])

#define MOX_REGS_200 MOX_REGS_192 ", %96, %97, %98, %99"
#define MOX_D_200 "{" MOX_REGS_200 "}"
#define MOX_AB_200 "%100, %101"
#define MOX_KEEP_200 "%102"
#define MOX_RB_200 "{%100, %101, %102, %103}, %104"
#define MOX_KEEP_R_200 "%105"
#define MOX_BIND_200 MOX_BIND_192, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])

#define MOX_REGS_208 MOX_REGS_200 ", %100, %101, %102, %103"
#define MOX_D_208 "{" MOX_REGS_208 "}"
#define MOX_AB_208 "%104, %105"
#define MOX_KEEP_208 "%106"
#define MOX_RB_208 "{%104, %105, %106, %107}, %108"
#define MOX_KEEP_R_208 "%109"
#define MOX_BIND_208 MOX_BIND_200, "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])

#define MOX_REGS_216 MOX_REGS_208 ", %104, %105, %106, %107"
#define MOX_D_216 "{" MOX_REGS_216 "}"
#define MOX_AB_216 "%108, %109"
#define MOX_KEEP_216 "%110"
#define MOX_RB_216 "{%108, %109, %110, %111}, %112"
#define MOX_KEEP_R_216 "%113"
#define MOX_BIND_216 MOX_BIND_208, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])

#define MOX_REGS_224 MOX_REGS_216 ", %108, %109, %110, %111"
#define MOX_D_224 "{" MOX_REGS_224 "}"
#define MOX_AB_224 "%112, %113"
#define MOX_KEEP_224 "%114"
#define MOX_RB_224 "{%112, %113, %114, %115}, %116"
#define MOX_KEEP_R_224 "%117"
#define MOX_BIND_224 MOX_BIND_216, "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])

#define MOX_REGS_232 MOX_REGS_224 ", %112, %113, %114, %115"
#define MOX_D_232 "{" MOX_REGS_232 "}"
#define MOX_AB_232 "%116, %117"
#define MOX_KEEP_232 "%118"
#define MOX_RB_232 "{%116, %117, %118, %119}, %120"
#define MOX_KEEP_R_232 "%121"
#define MOX_BIND_232 MOX_BIND_224, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])

#define MOX_REGS_240 MOX_REGS_232 ", %116, %117, %118, %119"
#define MOX_D_240 "{" MOX_REGS_240 "}"
#define MOX_AB_240 "%120, %121"
#define MOX_KEEP_240 "%122"
#define MOX_RB_240 "{%120, %121, %122, %123}, %124"
#define MOX_KEEP_R_240 "%125"
#define MOX_BIND_240 MOX_BIND_232, "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])

#define MOX_REGS_248 MOX_REGS_240 ", %120, %121, %122, %123"
#define MOX_D_248 "{" MOX_REGS_248 "}"
#define MOX_AB_248 "%124, %125"
#define MOX_KEEP_248 "%126"
#define MOX_RB_248 "{%124, %125, %126, %127}, %128"
#define MOX_KEEP_R_248 "%129"
#define MOX_BIND_248 MOX_BIND_240, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])

#define MOX_REGS_256 MOX_REGS_248 ", %124, %125, %126, %127"
#define MOX_D_256 "{" MOX_REGS_256 "}"
#define MOX_AB_256 "%128, %129"
#define MOX_KEEP_256 "%130"
#define MOX_RB_256 "{%128, %129, %130, %131}, %132"
#define MOX_KEEP_R_256 "%133"
#define MOX_BIND_256 MOX_BIND_248, "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

/* clang-format on */

#endif
