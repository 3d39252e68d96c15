#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every command with every kind of wrong input: the exit code is the documented one, and the message says what was asked,
# what was found, and what to try. Nothing is written, and nothing takes long.
#
# A row of the table:   code ~ what was asked ~ what was found ~ what to try ~ arguments
# Codes are those of `moxie --help`; the three are extended regular expressions for standard error. In arguments, words
# of the shell: $tmp and what is made below; an assignment in front is for the environment.
. "$(dirname "$0")/cli_lib.sh"
command -v timeout >/dev/null || { echo "skipped: no timeout(1)"; exit 77; }
cd "$tmp"
case "$moxie" in /*) ;; *) moxie=$OLDPWD/$moxie ;; esac

# ---- what goes in ----
synth granite-3.1-1b-a400m mxfp4-ct model --layers 2
synth granite-3.1-1b-a400m int4-ct-g32 int4 --intermediate 256
synth deepseek-v3 fp8-block other --intermediate 256
"$moxie" run model --tokens 2 -o run.safetensors >/dev/null
"$moxie" prepare int4 --layout trtllm-mxint4 -o made >/dev/null
mkdir empty gguf pickles hub hub/snapshots hub/snapshots/1a2b full pipeline pipeline/text
: >emptyfile
: >gguf/model-Q4_K_M.gguf
: >pickles/pytorch_model.bin
: >full/mine
echo '{}' | tee hub/snapshots/1a2b/config.json pipeline/model_index.json pipeline/text/config.json >/dev/null
mkfifo fifo
truncate -s 1T huge
printf 'no such thing, only text that is long enough for a header' >text
cp -r model cut && truncate -s -100 cut/model.safetensors
cp -r model badjson && printf '{"model_type": ' >badjson/config.json
cp -r made damaged
printf '\125\252' | dd of="damaged/$(ls damaged | grep layer- | head -1)" bs=1 seek=3000 conv=notrunc 2>/dev/null
head -c 2000 model/model.safetensors >cut.safetensors
# tensor FILE SHAPE DTYPE BYTES [NAME]: a file with one tensor of zeros, or of ones where BYTES ends in "x".
tensor() {
    header=$(printf '{"%s":{"dtype":"%s","shape":[%s],"data_offsets":[0,%d]}}' "${5:-hidden_states}" "$3" "$2" "$4")
    length=${#header}
    printf "\\$(printf %o "$((length % 256))")\\$(printf %o "$((length / 256))")\\0\\0\\0\\0\\0\\0%s" "$header" >"$1"
    head -c "$4" /dev/zero >>"$1"
}
tensor wide.safetensors 2,300 BF16 1200
tensor int.safetensors 2,256 I32 2048
tensor rank.safetensors 2,2,64 BF16 512
tensor named.safetensors 2,256 BF16 1024 activations
tensor ids5.safetensors 2,5 I32 40 topk_ids
tensor idsf.safetensors 2,8 F32 64 topk_ids
printf '0 1 2 3 4 5 6 99\n' >beyond
printf '0 1 two 3 4 5 6 7\n' >words
odd=$(printf 'x\033[31m\351y')
long=$(head -c 5000 /dev/zero | tr '\0' a)
if [ "$(uname -m)" = aarch64 ]; then foreign=avx2; else foreign=neon; fi

# ---- a row ----
rows=0
row() {
    code=$1 asked=$2 found=$3 try=$4 environment=
    shift 4
    rows=$((rows + 1))
    while :; do
        case "$1" in
        *=*) environment="$environment $1" ;;
        *) break ;;
        esac
        shift
    done
    got=0
    # shellcheck disable=SC2086 # assignments
    env $environment timeout 200 "$moxie" "$@" >out 2>err </dev/null || got=$?
    what="moxie $(printf '%.200s' "$*" | cat -v)"
    [ "$got" = "$code" ] || fail "exit code $got instead of $code: $what -- $(head -c 500 err | cat -v)"
    grep -qiE -- "$asked" err || fail "not what was asked (\"$asked\"): $what -- $(head -c 700 err | cat -v)"
    grep -qiE -- "$found" err || fail "not what was found (\"$found\"): $what -- $(head -c 700 err | cat -v)"
    grep -qiE -- "$try" err || fail "not what to try (\"$try\"): $what -- $(head -c 700 err | cat -v)"
    LC_ALL=C tr -d '\n' <err | LC_ALL=C grep -q "[[:cntrl:]]" && fail "control bytes: $what -- $(cat -v err)"
    for left in new new.partial new.moxie.tmp new.safetensors new.svg; do
        [ ! -e "$left" ] || { fail "$left was left: $what" && rm -rf "$left"; }
    done
    return 0
}
table() {
    while IFS='~' read -r code asked found try arguments; do
        case "$code" in '' | '#'*) continue ;; esac
        code=$(echo "$code" | tr -d ' ')
        trim() { echo "$1" | sed 's/^ *//; s/ *$//'; }
        eval "row $code '$(trim "$asked")' '$(trim "$found")' '$(trim "$try")' $arguments"
    done
}

# ---- info ----
table <<'ROWS'
# unknown option, misspelled, without its value, empty value, value where there is none, argument, odd bytes
2 ~ --frobnicate ~ no option ~ Try .moxie info --help ~ info --frobnicate
2 ~ --mesure ~ no option ~ did you mean --measure ~ info --mesure
2 ~ -x ~ no option ~ --help ~ info -x
2 ~ --threads takes N ~ nothing was given ~ after the option ~ info --threads
2 ~ --limits takes FILE ~ nothing was given ~ after the option ~ info --limits ""
2 ~ --measure ~ "3" was given ~ leave it out ~ info --measure=3
2 ~ options only ~ extra ~ --help ~ info extra
2 ~ an argument ~ is empty ~ variable ~ info ""
2 ~ --threads takes a whole number ~ x.x1b.31m.xe9y ~ from 1 to 4096 ~ info --measure --threads "$odd"
# numbers: negative, zero, huge, overflow, none
2 ~ --threads ~ -1 ~ from 1 to 4096 ~ info --measure --threads -1
2 ~ --threads ~ "0" ~ from 1 to 4096 ~ info --measure --threads 0
2 ~ --threads ~ 5000 ~ from 1 to 4096 ~ info --measure --threads 5000
2 ~ --threads ~ 99999999999999999999 ~ from 1 to 4096 ~ info --measure --threads 99999999999999999999
2 ~ --threads ~ 2.5 ~ whole number ~ info --measure --threads 2.5
2 ~ --threads ~ "two" ~ whole number ~ info --measure --threads two
# conflicts
2 ~ --kernels ~ --measure ~ leave one ~ info --kernels --measure
2 ~ --limits FILE measures ~ --measure in any case ~ leave one ~ info --measure --limits new
2 ~ --threads ~ measuring ~ give --measure ~ info --threads 2
# files of limits: a directory, pipe, device, empty, other text, huge, other JSON, one that cannot be made
3 ~ empty: ~ found a directory ~ give a file ~ info --limits empty
3 ~ fifo: ~ device, pipe or socket ~ give a file ~ info --limits fifo
3 ~ /dev/zero: ~ device, pipe or socket ~ give a file ~ info --limits /dev/zero
3 ~ emptyfile: ~ expected ~ remove this one ~ info --limits emptyfile
3 ~ text: ~ expected ~ name another ~ info --limits text
3 ~ huge: ~ 1099511627776 bytes ~ name another ~ info --limits huge
3 ~ config.json: ~ holds no limits ~ name another ~ info --limits model/config.json
3 ~ no/such/limits ~ No such file ~ directory that can be written ~ info --limits no/such/limits
3 ~ emptyfile/limits ~ Not a directory ~ give a file|can be written ~ info --limits emptyfile/limits
# the environment
2 ~ MOXIE_MAX_ISA ~ "foo" ~ there are scalar ~ MOXIE_MAX_ISA=foo info
2 ~ MOXIE_MAX_ISA ~ "avx51" ~ did you mean avx512|there are scalar ~ MOXIE_MAX_ISA=avx51 info
2 ~ MOXIE_MAX_ISA ~ is an instruction set of ~ --help ~ MOXIE_MAX_ISA=$foreign info
ROWS

# ---- synth ----
table <<'ROWS'
2 ~ --frobnicate ~ no option ~ --help ~ synth gpt-oss-20b -o new --frobnicate
2 ~ --layer5 ~ no option ~ did you mean --layers ~ synth gpt-oss-20b -o new --layer5 1
2 ~ --output takes DIR ~ nothing was given ~ after the option ~ synth gpt-oss-20b -o
2 ~ a preset is needed ~ none is named ~ synth --list ~ synth
2 ~ -o DIR is needed ~ none is given ~ name a directory ~ synth gpt-oss-20b
2 ~ --output takes DIR ~ nothing was given ~ after the option ~ synth gpt-oss-20b -o ""
2 ~ --format takes NAME ~ nothing was given ~ after the option ~ synth gpt-oss-20b -o new --format ""
2 ~ --layers ~ -2 ~ from 1 to ~ synth gpt-oss-20b -o new --layers -2
2 ~ --layers ~ "0" ~ from 1 to ~ synth gpt-oss-20b -o new --layers 0
2 ~ 25 layers were asked for ~ has 24 ~ give 1 to 24 ~ synth gpt-oss-20b -o new --layers 25
2 ~ --layers ~ 1e3 ~ whole number ~ synth gpt-oss-20b -o new --layers 1e3
2 ~ --seed ~ 99999999999999999999 ~ from 0 to ~ synth gpt-oss-20b -o new --seed 99999999999999999999
2 ~ --shard-bytes ~ nothing was given ~ takes N ~ synth gpt-oss-20b -o new --shard-bytes ""
2 ~ 2 experts were asked for ~ chooses 4 ~ give 4 to 1024 ~ synth gpt-oss-20b -o new --experts 2
2 ~ 1 expert was asked for ~ chooses 4 ~ give 4 to 1024 ~ synth gpt-oss-20b -o new --experts 1
2 ~ --experts ~ 2000 ~ from 1 to 1024 ~ synth gpt-oss-20b -o new --experts 2000
2 ~ 17 experts ~ 8 groups ~ multiple of 8 ~ synth deepseek-v3 -o new --experts 17
2 ~ --hidden ~ "0" ~ from 1 to ~ synth gpt-oss-20b -o new --hidden 0
4 ~ a .154, 31. matrix ~ 31 is not a multiple ~ multiple of 2 ~ synth gpt-oss-20b -o new --hidden 31 --intermediate 77 --experts 4 --layers 1
2 ~ preset "gpt-oss" ~ there is no ~ did you mean gpt-oss-20b. ~ synth gpt-oss -o new
2 ~ preset "nonsense" ~ there is no ~ synth --list ~ synth nonsense -o new
2 ~ format "mxpf4" ~ there is no ~ did you mean mxfp ~ synth gpt-oss-20b -o new --format mxpf4
2 ~ format "what" ~ there is no ~ there are bf16, ~ synth gpt-oss-20b -o new --format what
2 ~ preset "x.x1b ~ there is no ~ synth --list ~ synth "$odd" -o new
3 ~ full: ~ not empty ~ name a new one ~ synth granite-3.1-1b-a400m -o full
3 ~ emptyfile: ~ Not a directory ~ name a new directory ~ synth granite-3.1-1b-a400m -o emptyfile
3 ~ emptyfile/new ~ Not a directory ~ name ~ synth granite-3.1-1b-a400m -o emptyfile/new
3 ~ no/such/new ~ No such file ~ directory that can be written ~ synth granite-3.1-1b-a400m -o no/such/new
3 ~ fifo: ~ Not a directory ~ name a new directory ~ synth granite-3.1-1b-a400m -o fifo
2 ~ --list ~ gpt-oss-20b is for writing ~ leave one ~ synth gpt-oss-20b --list
2 ~ --list ~ -o DIR is for writing ~ leave one ~ synth --list -o new
2 ~ one preset at a time ~ gpt-oss-120b ~ leave one ~ synth gpt-oss-20b gpt-oss-120b -o new
2 ~ MOXIE_MAX_ISA ~ "foo" ~ there are scalar ~ MOXIE_MAX_ISA=foo synth gpt-oss-20b -o new
2 ~ directory ~ too long ~ name ~ synth granite-3.1-1b-a400m -o "$long"
ROWS

# ---- inspect ----
table <<'ROWS'
2 ~ --frobnicate ~ no option ~ --help ~ inspect model --frobnicate
2 ~ --jsno ~ no option ~ did you mean --json ~ inspect model --jsno
2 ~ --layer ~ no option ~ --help ~ inspect model --layer 0
2 ~ directory is needed ~ none is given ~ config.json ~ inspect
2 ~ an argument ~ is empty ~ variable ~ inspect ""
2 ~ --json ~ "1" was given ~ leave it out ~ inspect model --json=1
2 ~ one directory at a time ~ other ~ leave one ~ inspect model other
3 ~ nowhere: ~ no such directory ~ give a directory with config.json ~ inspect nowhere
3 ~ openai/gpt-oss-20b ~ no such directory ~ download ~ inspect openai/gpt-oss-20b
3 ~ emptyfile: ~ this is a file ~ give a directory ~ inspect emptyfile
3 ~ emptyfile/x ~ no such directory|Not a directory ~ give a directory ~ inspect emptyfile/x
3 ~ empty: ~ config.json is missing ~ give a directory ~ inspect empty
3 ~ fifo: ~ device, pipe or socket ~ give a directory ~ inspect fifo
3 ~ /dev/zero: ~ device, pipe or socket ~ give a directory ~ inspect /dev/zero
3 ~ gguf: ~ opened by name ~ give one ~ inspect gguf
3 ~ model-Q4_K_M.gguf ~ does not begin with ~ damaged ~ inspect gguf/model-Q4_K_M.gguf
4 ~ pickles: ~ pickled by PyTorch ~ save them as safetensors ~ inspect pickles
3 ~ hub: ~ Hugging Face cache ~ give "hub/snapshots/1a2b" ~ inspect hub
3 ~ pipeline: ~ diffusers ~ give one of them, such as "pipeline/text" ~ inspect pipeline
3 ~ model.safetensors: ~ one file of it ~ give "model" ~ inspect model/model.safetensors
3 ~ tensor "model.layers.*lies at ~ the file has ~ copy or download it again ~ inspect cut
3 ~ badjson/config.json: ~ line 1 ~ damaged or cut short ~ inspect badjson
3 ~ x.x1b.31m.xe9y: ~ no such directory ~ give a directory ~ inspect "$odd"
3 ~ aaaa ~ too long ~ give a directory ~ inspect "$long"
2 ~ MOXIE_MAX_ISA ~ "foo" ~ there are scalar ~ MOXIE_MAX_ISA=foo inspect model
ROWS

# ---- explain ----
hand="--experts 8 --top-k 2 --hidden 64 --intermediate 96"
table <<'ROWS'
2 ~ --frobnicate ~ no option ~ --help ~ explain model --frobnicate
2 ~ --presets ~ no option ~ did you mean --preset ~ explain --presets gpt-oss-20b
2 ~ --preset takes NAME ~ nothing was given ~ after the option ~ explain --preset
2 ~ one layer is needed ~ none is named ~ give a checkpoint.s directory, --preset NAME ~ explain
2 ~ described by hand ~ needs all of ~ --hidden and --intermediate ~ explain --experts 8
2 ~ --preset takes NAME ~ nothing was given ~ after the option ~ explain --preset ""
2 ~ --experts ~ -8 ~ from 1 to ~ explain --experts -8 --top-k 2 --hidden 64 --intermediate 96
2 ~ --top-k ~ "0" ~ from 1 to ~ explain --experts 8 --top-k 0 --hidden 64 --intermediate 96
2 ~ --hidden ~ 9999999999999 ~ from 1 to ~ explain --experts 8 --top-k 2 --hidden 9999999999999 --intermediate 96
2 ~ --tokens ~ "many" ~ whole number from 1 ~ explain $hand --tokens 1,many
2 ~ top_k is 9 ~ only 8 ~ at least 9 ~ explain --experts 8 --top-k 9 --hidden 64 --intermediate 96
2 ~ experts is 4000 ~ 4000 ~ from 1 to 1024 ~ explain --experts 4000 --top-k 2 --hidden 64 --intermediate 96
2 ~ mxfp4_w4a16 ~ takes no block ~ leave it ~ explain $hand --scheme mxfp4_w4a16 --group 7
2 ~ preset "gpt-oss20b" ~ there is no ~ did you mean gpt-oss-20b ~ explain --preset gpt-oss20b
2 ~ format "nothing" ~ there is no ~ there are bf16 ~ explain --preset gpt-oss-20b --format nothing
2 ~ back end "gpu" ~ there is no ~ there are auto ~ explain $hand --backend gpu
2 ~ instruction set "sse9" ~ there is no ~ there are scalar ~ explain $hand --isa sse9
2 ~ --isa ~ is an instruction set of ~ --help ~ explain $hand --isa $foreign
2 ~ mode "throughput" ~ there is no ~ there are exact, fast ~ explain $hand --mode throughput
2 ~ mode "invariant" ~ there is no ~ there are exact, fast ~ explain $hand --mode invariant
2 ~ scheme constructor "fp8" ~ there is no ~ did you mean fp8_w8a8 ~ explain $hand --scheme fp8
2 ~ routing method "top" ~ there is no ~ did you mean topk ~ explain $hand --routing top
2 ~ activation "swish" ~ there is no ~ there are silu ~ explain $hand --activation swish
2 ~ dtype .*"i8" ~ there is no ~ there are bf16, f16, f32 ~ explain $hand --dtype i8
2 ~ GPU architecture "sm_70" ~ there is no ~ sm_80, sm_86 ~ explain $hand --device sm_70
2 ~ --device ~ --backend cpu ~ leave one ~ explain $hand --device sm_90 --backend cpu
2 ~ --isa ~ oracle ~ leave one ~ explain $hand --backend ref --isa scalar
2 ~ --isa ~ for a GPU ~ leave one ~ explain $hand --device sm_90 --isa scalar
2 ~ --isa ~ for a GPU ~ leave one ~ explain model --budget-ram 1G --budget-gpu 1G --isa scalar
2 ~ --group goes with --scheme ~ not given ~ no groups ~ explain $hand --group 64
2 ~ ocp_mx has groups ~ --group 64 ~ leave ~ explain $hand --scheme ocp_mx --group 64
2 ~ mxfp4_mxfp8 has groups ~ --group 32 ~ leave ~ explain $hand --scheme mxfp4_mxfp8 --group 32
2 ~ fp8_w8a8 has groups ~ --group -1 ~ leave ~ explain $hand --scheme fp8_w8a8 --group -1
2 ~ --activations ~ described by hand ~ leave it out ~ explain $hand --scheme fp8_w8a8 --activations 16bit
2 ~ --allow-unread ~ not given ~ goes with a directory ~ explain $hand --allow-unread
2 ~ --allow-unread ~ not given ~ goes with a directory ~ explain --preset gpt-oss-20b --allow-unread
2 ~ --exchange-chunk ~ beside --exchange-capacity ~ leave one ~ explain $hand --ranks 2 --exchange-capacity 4 --exchange-chunk 2
2 ~ --numa ~ runs nothing ~ leave it out ~ explain $hand --numa off
2 ~ --threads ~ --budget-ram, which is not given ~ leave them out ~ explain $hand --threads 1
2 ~ --disk-gb-s ~ --read-depth ~ leave them out ~ explain model --budget-ram 1G --disk-gb-s 2 --read-depth 4
2 ~ set of kernels "sm_80" ~ there is no ~ sm80, sm86 ~ explain $hand --device sm_90 --device-kernels sm_80
4 ~ MOXIE_CUDA_LIBRARY is ~ cannot be opened ~ use backend cpu ~ MOXIE_CUDA_LIBRARY=$tmp/none explain $hand --backend cuda
2 ~ a directory and --preset ~ "model" ~ leave ~ explain model --preset gpt-oss-20b
2 ~ a checkpoint has sizes ~ --experts ~ leave ~ explain model --experts 8
2 ~ a preset has sizes ~ --experts ~ leave ~ explain --preset gpt-oss-20b --experts 8
2 ~ --format goes with --preset ~ not given ~ --preset NAME ~ explain model --format bf16
2 ~ --layer goes with a directory ~ not given ~ directory ~ explain --preset gpt-oss-20b --layer 0
2 ~ layer 7 ~ there are 2 ~ give one of them ~ explain model --layer 7
2 ~ --layer ~ -7 ~ from 0 to ~ explain model --layer -7
2 ~ --disk-gb-s needs a number above 0 ~ "1e-320" ~ least above 0 is 1e-12 ~ explain model --budget-ram 1M --disk-gb-s 1e-320 --memory-gb-s 1 --json
2 ~ --copy-gb-s ~ --budget-gpu, which is not given ~ nothing is copied ~ explain model --budget-ram 1M --copy-gb-s 9
2 ~ --memory-gb-s ~ --limits ~ leave one ~ explain model --budget-ram 1M --memory-gb-s 9 --limits x
2 ~ --memory-gb-s needs a number above 0 ~ "1e300" ~ largest 1e.12 ~ explain model --budget-ram 1M --disk-gb-s 1 --memory-gb-s 1e300
3 ~ nowhere: ~ no such directory ~ give a directory ~ explain nowhere
3 ~ emptyfile: ~ this is a file ~ give a directory ~ explain emptyfile
3 ~ gguf: ~ opened by name ~ give one ~ explain gguf
3 ~ lies at ~ the file has ~ copy or download it again ~ explain cut
2 ~ one directory at a time ~ other ~ leave one ~ explain model other
2 ~ preset "x.x1b ~ there is no ~ synth --list ~ explain --preset "$odd"
2 ~ MOXIE_MAX_ISA ~ "foo" ~ there are scalar ~ MOXIE_MAX_ISA=foo explain $hand
ROWS

# ---- run ----
table <<'ROWS'
2 ~ --input FILE ~ --seed is for random ones ~ leave one ~ run model --input run.safetensors --seed 1
2 ~ --frobnicate ~ no option ~ --help ~ run model --frobnicate
2 ~ --treads ~ no option ~ did you mean --threads ~ run model --treads 2
2 ~ --ranks ~ "0" ~ from 1 to 1024 ~ run model --ranks 0
2 ~ --tp ~ "two" ~ whole number ~ run model --ranks 2 --tp two
2 ~ --tp ~ is not given ~ goes with --ranks ~ run model --tp 2
2 ~ --ranks 3 ~ no multiple ~ --tp 2 ~ run model --ranks 3 --tp 2
2 ~ --ep-map ~ "lnear" ~ did you mean linear ~ run model --ranks 2 --ep-map lnear
2 ~ layout of tokens ~ "shared" ~ did you mean sharded ~ run model --ranks 2 --tokens-as shared
2 ~ --comm|comm ~ "tcp" ~ local ~ run model --comm tcp
3 ~ emptyfile ~ JSON|empty|expected ~ map|JSON|balance|line ~ run model --ranks 2 --ep-map emptyfile
2 ~ --tokens takes T ~ nothing was given ~ after the option ~ run model --tokens
2 ~ one layer is needed ~ none is named ~ --preset NAME ~ run
2 ~ an argument ~ is empty ~ variable ~ run ""
2 ~ --input takes FILE ~ nothing was given ~ after the option ~ run model --input ""
2 ~ --tokens ~ -1 ~ from 0 to ~ run model --tokens -1
2 ~ --threads ~ "0" ~ from 1 to ~ run model --threads 0
2 ~ --tokens ~ 99999999999999999999 ~ from 0 to ~ run model --tokens 99999999999999999999
2 ~ --seed ~ "x" ~ whole number ~ run model --seed x
2 ~ back end "cud" ~ there is no ~ did you mean cuda ~ run model --backend cud
2 ~ instruction set "avx3" ~ there is no ~ did you mean avx2 ~ run model --isa avx3
2 ~ --isa ~ is an instruction set of ~ --help ~ run model --isa $foreign
2 ~ mode "throughput" ~ there is no ~ there are exact, fast ~ run model --mode throughput
2 ~ --activations "8bit" ~ there is no ~ 16bit ~ run model --activations 8bit
2 ~ --states "odd" ~ there is no ~ normal, outliers ~ run model --states odd
2 ~ preset "gpt-oss" ~ there is no ~ did you mean gpt-oss-20b ~ run --preset gpt-oss
2 ~ format "mxfp5" ~ there is no ~ did you mean mxfp ~ run --preset gpt-oss-20b --format mxfp5
2 ~ --device sm_90 ~ architecture ~ give its number ~ run model --device sm_90
2 ~ --device ~ "first" ~ from 0 on ~ run model --device first
2 ~ --device ~ --backend ref ~ leave one ~ run model --backend ref --device 0
2 ~ --isa ~ for a GPU ~ leave one ~ run model --backend cuda --isa scalar
2 ~ --allow-unread ~ not given ~ goes with a directory ~ run --preset gpt-oss-20b --allow-unread
4 ~ MOXIE_CUDA_LIBRARY is ~ cannot be opened ~ use backend cpu ~ MOXIE_CUDA_LIBRARY=$tmp/none run model --backend cuda
2 ~ a directory and --preset ~ "model" ~ leave ~ run model --preset gpt-oss-20b
2 ~ --experts goes with --preset ~ not given ~ a checkpoint has its own ~ run model --experts 8
2 ~ --layer goes with a directory ~ preset ~ leave --layer out ~ run --preset gpt-oss-20b --layer 0
2 ~ --input ~ --tokens ~ leave one ~ run model --input run.safetensors --tokens 2
2 ~ --input ~ --states ~ leave one ~ run model --input run.safetensors --states outliers
2 ~ --no-shared ~ no shared expert ~ leave --no-shared out ~ run --preset gpt-oss-20b --no-shared
2 ~ layer 7 ~ there are 2 ~ give one of them ~ run model --layer 7
2 ~ layer 7 ~ there is one, layer 0 ~ give that ~ run int4 --layer 7
2 ~ 17 experts ~ 8 groups ~ multiple of 8 ~ run --preset deepseek-v3 --experts 17
2 ~ top_k is 4 ~ only 2 ~ at least 4 ~ run --preset gpt-oss-20b --experts 2
3 ~ nowhere: ~ no such directory ~ give a directory ~ run nowhere
3 ~ empty: ~ config.json is missing ~ give a directory ~ run empty
3 ~ fifo: ~ device, pipe or socket ~ give a directory ~ run fifo
3 ~ gguf: ~ opened by name ~ give one ~ run gguf
3 ~ lies at ~ the file has ~ copy or download it again ~ run cut
3 ~ config.json: ~ line 1 ~ damaged or cut short ~ run badjson
3 ~ none.safetensors: ~ No such file ~ give a file ~ run model --input none.safetensors
3 ~ empty: ~ found a directory ~ give a file ~ run model --input empty
3 ~ fifo: ~ device, pipe or socket ~ give a file ~ run model --input fifo
3 ~ emptyfile: ~ 0 bytes ~ a safetensors file has ~ run model --input emptyfile
3 ~ huge: ~ header ~ no safetensors file ~ run model --input huge
3 ~ text: ~ header ~ no safetensors file ~ run model --input text
3 ~ lies at ~ the file has ~ copy or download it again ~ run model --input cut.safetensors
3 ~ hidden_states must be .2,256. ~ shape .2,300. ~ must be ~ run model --input wide.safetensors
3 ~ hidden_states must be ~ dtype i32 ~ bf16, f16 or f32 ~ run model --input int.safetensors
3 ~ hidden_states must be ~ rank 3 ~ .T,H. ~ run model --input rank.safetensors
3 ~ "hidden_states" ~ the first is "activations" ~ name the input so ~ run model --input named.safetensors
3 ~ empty: ~ Is a directory ~ name a file in it ~ run model --tokens 1 -o empty
3 ~ no/such/new ~ No such file ~ directory that can be written ~ run model --tokens 1 -o no/such/new
3 ~ emptyfile/new ~ Not a directory ~ directory that can be written ~ run model --tokens 1 -o emptyfile/new
3 ~ fifo: ~ device, pipe or socket ~ name a file ~ run model --tokens 1 -o fifo
2 ~ one directory at a time ~ other ~ leave one ~ run model other
3 ~ x.x1b.31m.xe9y: ~ No such file ~ give a file ~ run model --input "$odd"
2 ~ MOXIE_MAX_ISA ~ "foo" ~ there are scalar ~ MOXIE_MAX_ISA=foo run model
ROWS

# ---- diff ----
table <<'ROWS'
2 ~ --frobnicate ~ no option ~ --help ~ diff model --frobnicate
2 ~ --agianst ~ no option ~ did you mean --against ~ diff model --agianst other
2 ~ --a takes BACKEND ~ nothing was given ~ after the option ~ diff model --a
2 ~ directory is needed ~ none is given ~ moxie synth ~ diff
2 ~ --against takes DIR2 ~ nothing was given ~ after the option ~ diff model --against ""
2 ~ an argument ~ is empty ~ variable ~ diff ""
2 ~ --tokens ~ -1 ~ from 0 to ~ diff model --tokens -1
2 ~ --threads ~ "0" ~ from 1 to ~ diff model --threads 0
2 ~ --tokens ~ 1.5 ~ whole number ~ diff model --tokens 1.5
2 ~ --seed ~ 99999999999999999999 ~ from 0 to ~ diff model --seed 99999999999999999999
2 ~ "auto" ~ there is no ~ there are ref, cpu, cuda ~ diff model --a auto
2 ~ "cpuu" ~ there is no ~ did you mean cpu ~ diff model --b cpuu
2 ~ instruction set "avx" ~ there is no ~ did you mean avx2|there are scalar ~ diff model --isa avx
2 ~ mode "x" ~ there is no ~ there are exact, fast ~ diff model --mode x
2 ~ --states "odd" ~ there is no ~ normal, outliers ~ diff model --states odd
4 ~ MOXIE_CUDA_LIBRARY is ~ cannot be opened ~ use backend cpu ~ MOXIE_CUDA_LIBRARY=$tmp/none diff model --a cuda
2 ~ --device ~ neither side is cuda ~ give --a cuda ~ diff model --device 0
2 ~ --against ~ --tokens is for running ~ leave one ~ diff model --against other --tokens 3
2 ~ --against ~ --a is for running ~ leave one ~ diff model --against other --a cpu
2 ~ --against ~ --mode is for running ~ leave one ~ diff model --against other --mode fast
2 ~ --against ~ --threads is for running ~ leave one ~ diff model --against other --threads 1
2 ~ --isa ~ oracle ~ leave one ~ diff model --a ref --isa scalar
2 ~ --isa ~ for a GPU ~ leave one ~ diff model --a cuda --isa scalar
2 ~ layer 7 ~ there are 2 ~ give one of them ~ diff model --layer 7
2 ~ layer 1 ~ there is one ~ give that ~ diff model --layer 1 --against int4
2 ~ --layer ~ "first" ~ whole number ~ diff model --layer first
3 ~ nowhere: ~ no such directory ~ give a directory ~ diff nowhere
3 ~ nowhere: ~ no such directory ~ give a directory ~ diff model --against nowhere
3 ~ int4: ~ shape .*expected|expected ~ same sizes and format ~ diff model --against int4 --layer 0
3 ~ gguf: ~ opened by name ~ give one ~ diff model --against gguf
3 ~ emptyfile: ~ this is a file ~ give a directory ~ diff model --against emptyfile
3 ~ lies at ~ the file has ~ copy or download it again ~ diff cut
3 ~ fifo: ~ device, pipe or socket ~ give a directory ~ diff fifo
2 ~ one directory at a time ~ other ~ leave one ~ diff model other
3 ~ x.x1b.31m.xe9y: ~ no such directory ~ give a directory ~ diff model --against "$odd"
2 ~ MOXIE_MAX_ISA ~ "foo" ~ there are scalar ~ MOXIE_MAX_ISA=foo diff model
ROWS

# ---- bench ----
printf '{"kind": "moxie limits", "cpu": "x", "isa": "y"' >halflimits
table <<'ROWS'
2 ~ --frobnicate ~ no option ~ --help ~ bench model --frobnicate
2 ~ --token5 ~ no option ~ did you mean --tokens ~ bench model --token5 1
2 ~ --tokens takes LIST ~ nothing was given ~ after the option ~ bench model --tokens
2 ~ one layer is needed ~ none is named ~ synth --list ~ bench
2 ~ --routing takes NAME ~ nothing was given ~ after the option ~ bench model --routing ""
2 ~ an argument ~ is empty ~ variable ~ bench ""
2 ~ --tokens ~ -8 ~ from 1 to ~ bench model --tokens 1,-8
2 ~ --repeats ~ "0" ~ from 1 to ~ bench model --repeats 0
2 ~ --tokens ~ 99999999 ~ from 1 to ~ bench model --tokens 99999999
2 ~ --tokens ~ "" ~ whole number ~ bench model --tokens 1,,8
2 ~ --seed ~ 99999999999999999999 ~ from 0 to ~ bench model --seed 99999999999999999999
2 ~ --trace FILE is the routing ~ names another ~ leave one ~ bench model --routing zipf --trace beyond
2 ~ --trace FILE is the routing ~ names another ~ leave one ~ bench model --trace beyond --routing uniform
2 ~ --experts ~ 5000 ~ from 1 to 1024 ~ bench --preset gpt-oss-20b --experts 5000
2 ~ top_k is 4 ~ only 2 ~ at least 4 ~ bench --preset gpt-oss-20b --experts 2
2 ~ preset "gpt-os-20b" ~ there is no ~ did you mean gpt-oss-20b ~ bench --preset gpt-os-20b
2 ~ format "bf61" ~ there is no ~ did you mean bf16 ~ bench --preset gpt-oss-20b --format bf61
2 ~ constructor "mxfp9" ~ there is no ~ there are .*fp8_w8a8 ~ bench --preset gpt-oss-20b --acts-of mxfp9
2 ~ back end "gpu" ~ there is no ~ there are auto ~ bench model --backend gpu
2 ~ instruction set "sse9" ~ there is no ~ there are scalar ~ bench model --isa sse9
2 ~ "ziph" ~ neither a routing nor a file ~ did you mean zipf ~ bench model --routing ziph
3 ~ noids: ~ No such file ~ uniform, zipf, one-hot, skewed ~ bench model --routing noids
2 ~ --plot ~ x.pdf ~ FILE.svg or FILE.png ~ bench model --plot x.pdf
4 ~ MOXIE_CUDA_LIBRARY is ~ cannot be opened ~ use backend cpu ~ MOXIE_CUDA_LIBRARY=$tmp/none bench model --backend cuda
2 ~ --device ~ --backend cpu ~ leave one ~ bench model --backend cpu --device 0
2 ~ --isa ~ for a GPU ~ leave one ~ bench model --device 0 --isa scalar
2 ~ --allow-unread ~ not given ~ goes with a directory ~ bench --preset gpt-oss-20b --allow-unread
2 ~ a directory and --preset ~ "model" ~ leave ~ bench model --preset gpt-oss-20b
2 ~ --no-shared goes with --preset ~ not given ~ a checkpoint has its own ~ bench model --no-shared
2 ~ layer 7 ~ there are 2 ~ give one of them ~ bench model --layer 7
2 ~ --layer goes with a directory ~ preset ~ leave --layer out ~ bench --preset gpt-oss-20b --layer 3
3 ~ beyond: ~ expert 99 ~ give ids from 0 to 15 ~ bench model --routing beyond
3 ~ words: ~ "two" is no expert number ~ whole numbers ~ bench model --routing words
3 ~ emptyfile: ~ 0 numbers ~ multiple of 8 ~ bench model --routing emptyfile
3 ~ empty: ~ found a directory ~ uniform, zipf, one-hot, skewed ~ bench model --routing empty
3 ~ fifo: ~ device, pipe or socket ~ uniform, zipf, one-hot, skewed ~ bench model --routing fifo
3 ~ huge: ~ 1099511627776 bytes ~ uniform, zipf, one-hot, skewed ~ bench model --routing huge
3 ~ topk_ids must be .T,8. ~ shape .2,5. ~ must be ~ bench model --routing ids5.safetensors
3 ~ topk_ids must be ~ dtype f32 ~ i32 or i64 ~ bench model --routing idsf.safetensors
3 ~ "topk_ids" ~ no tensor ~ .T,8. of i32 or i64 ~ bench model --routing wide.safetensors
3 ~ 9 tokens were asked for ~ routes 2 ~ give --tokens up to that ~ bench model --routing run.safetensors --tokens 9
3 ~ halflimits: ~ expected ~ remove this one ~ bench model --limits halflimits
3 ~ empty: ~ found a directory ~ give a file ~ bench model --limits empty
3 ~ nowhere: ~ no such directory ~ give a directory ~ bench nowhere
3 ~ lies at ~ the file has ~ copy or download it again ~ bench cut
3 ~ gguf: ~ opened by name ~ give one ~ bench gguf
2 ~ one directory at a time ~ other ~ leave one ~ bench model other
2 ~ --mode fast ~ oracle ~ leave one ~ bench model --backend ref --mode fast
2 ~ --budget-ram ~ --numa, since its threads are not pinned ~ leave one ~ bench model --budget-ram 1G --trace t --numa off
2 ~ --comm compares with one rank ~ limits ~ leave --limits out ~ bench model --comm nccl --limits x
2 ~ preset "x.x1b ~ there is no ~ synth --list ~ bench --preset "$odd"
2 ~ MOXIE_MAX_ISA ~ "foo" ~ there are scalar ~ MOXIE_MAX_ISA=foo bench model
ROWS

# ---- prepare ----
table <<'ROWS'
2 ~ --frobnicate ~ no option ~ --help ~ prepare int4 --frobnicate
2 ~ --layuot ~ no option ~ did you mean --layout ~ prepare int4 --layuot trtllm-mxint4 -o new
2 ~ --layout takes NAME ~ nothing was given ~ after the option ~ prepare int4 -o new --layout
2 ~ a directory is needed ~ none is given ~ prepare --list ~ prepare
2 ~ -o OUT is needed ~ none is given ~ name a directory ~ prepare int4 --layout trtllm-mxint4
2 ~ --layout NAME is needed ~ none is given ~ prepare --list int4 ~ prepare int4 -o new
2 ~ --layers is for preparing ~ --list prepares nothing ~ leave one ~ prepare --list int4 --layers 1
2 ~ --threads is for preparing ~ --list prepares nothing ~ leave one ~ prepare --list --threads 1
2 ~ --tp is about a checkpoint ~ --list without DIR ~ give DIR ~ prepare --list --tp 0/2
2 ~ --output takes OUT ~ nothing was given ~ after the option ~ prepare int4 --layout trtllm-mxint4 -o ""
2 ~ an argument ~ is empty ~ variable ~ prepare "" --layout trtllm-mxint4 -o new
2 ~ layout "trtllm-mxint5" ~ there is no ~ did you mean trtllm-mxint4 ~ prepare int4 --layout trtllm-mxint5 -o new
2 ~ layout "vllm" ~ there is no ~ prepare --list ~ prepare int4 --layout vllm -o new
2 ~ --threads ~ -1 ~ from 1 to ~ prepare int4 --layout trtllm-mxint4 -o new --threads -1
2 ~ --threads ~ "0" ~ from 1 to ~ prepare int4 --layout trtllm-mxint4 -o new --threads 0
2 ~ --tp ~ 2/2 ~ 0 <= R < N ~ prepare int4 --layout trtllm-mxint4 -o new --tp 2/2
2 ~ --ep ~ "one" ~ 0 <= R < N ~ prepare int4 --layout trtllm-mxint4 -o new --ep one
2 ~ --tp ~ 0/99999999999 ~ 0 <= R < N ~ prepare int4 --layout trtllm-mxint4 -o new --tp 0/99999999999
2 ~ --layers ~ 5-2 ~ A <= B ~ prepare int4 --layout trtllm-mxint4 -o new --layers 5-2
2 ~ --layers ~ 0-9223372036854775807 ~ from 0 to 1000000 ~ prepare int4 --layout trtllm-mxint4 -o new --layers 0-9223372036854775807
2 ~ --layers ~ "all" ~ or one layer ~ prepare int4 --layout trtllm-mxint4 -o new --layers all
2 ~ --ep-map "zigzag" ~ there is no ~ linear, round-robin ~ prepare int4 --layout trtllm-mxint4 -o new --ep-map zigzag
2 ~ --layers 5-7 ~ layers are 0 to 0 ~ layers are 0 to 0 ~ prepare int4 --layout trtllm-mxint4 -o new --layers 5-7
4 ~ trtllm-mxint4 ~ f4_e2m1 ~ prepare --list model ~ prepare model --layout trtllm-mxint4 -o new
4 ~ 3 ranks ~ would get none ~ the nearest that would do ~ prepare int4 --layout trtllm-mxint4 -o new --tp 0/3
2 ~ --layout ~ --undo prepares nothing ~ leave one ~ prepare --undo made --layout trtllm-mxint4 -o new
2 ~ -o OUT ~ --verify makes none ~ leave one ~ prepare --verify made -o new
2 ~ --layers ~ --undo is about all of DIR ~ leave one ~ prepare --undo made -o new --layers 7-9
2 ~ --tp ~ --undo is about all of DIR ~ leave one ~ prepare --undo made -o new --tp 0/2
2 ~ --pad ~ --undo is about all of DIR ~ leave one ~ prepare --undo made -o new --pad
2 ~ --ep ~ --verify is about all of DIR ~ leave one ~ prepare --verify made --ep 0/2
2 ~ --ep-map ~ --verify is about all of DIR ~ leave one ~ prepare --verify made --ep-map linear
2 ~ --allow-unread ~ --verify is about all of DIR ~ leave one ~ prepare --verify made --allow-unread
2 ~ --undo, --verify and --list ~ exclude each other ~ leave all but one ~ prepare --undo --verify made -o new
2 ~ one directory at a time ~ other ~ leave one ~ prepare int4 other --layout trtllm-mxint4 -o new
3 ~ nowhere: ~ no such directory ~ give a directory ~ prepare nowhere --layout trtllm-mxint4 -o new
3 ~ emptyfile: ~ this is a file ~ give a directory ~ prepare emptyfile --layout trtllm-mxint4 -o new
3 ~ fifo: ~ device, pipe or socket ~ give a directory ~ prepare fifo --layout trtllm-mxint4 -o new
3 ~ gguf: ~ opened by name ~ give one ~ prepare gguf --layout trtllm-mxint4 -o new
3 ~ lies at ~ the file has ~ copy or download it again ~ prepare cut --layout trtllm-mxint4 -o new
3 ~ config.json: ~ line 1 ~ damaged or cut short ~ prepare badjson --layout trtllm-mxint4 -o new
3 ~ made: ~ exists already ~ name a new directory ~ prepare int4 --layout trtllm-mxint4 -o made
3 ~ emptyfile: ~ exists already ~ name a new directory ~ prepare int4 --layout trtllm-mxint4 -o emptyfile
3 ~ emptyfile/new ~ Not a directory ~ name a new directory ~ prepare int4 --layout trtllm-mxint4 -o emptyfile/new
3 ~ no/such/new ~ No such file ~ directory that can be written ~ prepare int4 --layout trtllm-mxint4 -o no/such/new
3 ~ int4/moxie_prepare.json ~ No such file ~ a directory that .moxie prepare. made ~ prepare --undo int4 -o new
3 ~ nowhere/moxie_prepare.json ~ No such file ~ a directory that .moxie prepare. made ~ prepare --verify nowhere
3 ~ emptyfile/moxie_prepare.json ~ Not a directory ~ made|give a file ~ prepare --verify emptyfile
1 ~ damaged/layer-0 ~ does not match its seal ~ make it again ~ prepare --verify damaged
3 ~ nowhere: ~ no such directory ~ give a directory ~ prepare --list nowhere
3 ~ x.x1b.31m.xe9y: ~ no such directory ~ give a directory ~ prepare --list "$odd"
2 ~ MOXIE_MAX_ISA ~ "foo" ~ there are scalar ~ MOXIE_MAX_ISA=foo prepare --list
ROWS

# ---- lint, trace, quantize ----
printf 'token,layer,expert\n0,0,1\n' >one.csv
table <<'ROWS'
2 ~ --layers ~ "4294967296" ~ from 0 to 1000000 ~ lint model --layers 4294967296
2 ~ --layers ~ "0-99999999999999999999" ~ from 0 to 1000000 ~ lint model --layers 0-99999999999999999999
2 ~ --list ~ --deep is for a checkpoint ~ leave one ~ lint --list --deep
2 ~ --list writes nothing ~ --experts is for writing ~ leave one ~ synth --list --experts 4
2 ~ --list writes nothing ~ --shard-bytes is for writing ~ leave one ~ synth --list --shard-bytes 4
2 ~ --format ~ none is written ~ give -o ~ balance x --ranks 2 --format vllm
2 ~ --ep-map ~ without --ep R/N ~ leave it out ~ prepare int4 --layout trtllm-mxint4 -o new --ep-map round-robin
2 ~ --census ~ --policy lru does not read it ~ leave it out ~ trace simulate x --policy lru --census y
2 ~ --half-life ~ --policy lru has none ~ leave it out ~ trace simulate x --policy lru --half-life 3
3 ~ one.csv: its tokens choose 1 expert ~ --top-k says 2 ~ one.csv ~ trace import one.csv --experts 4 --top-k 2 -o new
2 ~ --model ~ model is none ~ leave the model out ~ lint model --model model
2 ~ --layers ~ "4294967299" ~ from 0 to 1000000 ~ trace import one.csv --experts 4 --layers 4294967299 -o new
2 ~ --layers 1-7 ~ layers with experts are 0 to 1 ~ 0 to 1 ~ trace record model --tokens 1 --layers 1-7 -o new
2 ~ --layers 7-9 ~ layers with experts are 0 to 1 ~ 0 to 1 ~ trace record model --tokens 1 --layers 7-9 -o new
2 ~ --input-amax ~ "1e300" ~ largest 1e.12 ~ quantize model --format nvfp4-ct --input-amax 1e300,1 -o new
3 ~ huge: ~ 1099511627776 bytes ~ at most 34359738368 ~ quantize model --format nvfp4-ct --imatrix huge -o new
4 ~ a .128, 16. matrix ~ 16 is not a multiple ~ of 32; use one ~ synth gpt-oss-20b -o new --hidden 16 --intermediate 64 --experts 4 --layers 1
ROWS

# ---- moxie itself ----
table <<'ROWS'
2 ~ command "" ~ there is no ~ there are info, synth ~ ""
2 ~ command "bnech" ~ there is no ~ did you mean bench ~ bnech
2 ~ command "--frobnicate" ~ there is no ~ there are info, synth ~ --frobnicate
2 ~ command "x.x1b ~ there is no ~ there are info, synth ~ "$odd"
ROWS

# A pool of thousands of threads on a few processors takes minutes to start.
if [ "$(nproc)" -lt 64 ]; then
    table <<'ROWS'
2 ~ executor of 4096 threads ~ [0-9]+ is the limit, 64 for each processor ~ ask for fewer ~ run model --tokens 1 --threads 4096
ROWS
fi

# What is skipped by the rules, and hardly meant, is worth a warning. Bytes of an id are those of its number.
header='{"hidden_states":{"dtype":"BF16","shape":[1,256],"data_offsets":[0,512]},"topk_ids":{"dtype":"I32","shape":[1,8],"data_offsets":[512,544]},"topk_weights":{"dtype":"F32","shape":[1,8],"data_offsets":[544,576]}}'
{
    printf "\\$(printf %o "${#header}")\\0\\0\\0\\0\\0\\0\\0%s" "$header"
    head -c 512 /dev/zero
    printf '\000\0\0\0\001\0\0\0\002\0\0\0\003\0\0\0\004\0\0\0\005\0\0\0\006\0\0\0\143\0\0\0'
    head -c 32 /dev/zero
} >ids99.safetensors
expect 0 "warning: ids99.safetensors: 1 of topk_ids is beyond .*0 to 15.*the first is 99, of token 0" "$moxie" run model --input ids99.safetensors
[ "$rows" -gt 250 ] || fail "only $rows rows ran"
echo "$rows rows"
finish
