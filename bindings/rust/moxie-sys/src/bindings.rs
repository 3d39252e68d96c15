// SPDX-License-Identifier: Apache-2.0
// Made by scripts/rust-bindings from include/moxie/*.h; do not edit.
pub const MOXIE_MAX_RANK: u32 = 5;
pub const MOXIE_MAX_EXPERTS: u32 = 1024;
pub const MOXIE_MAX_TOP_K: u32 = 32;
pub const MOXIE_VERSION_MAJOR: u32 = 0;
pub const MOXIE_VERSION_MINOR: u32 = 1;
pub const MOXIE_VERSION_PATCH: u32 = 0;
pub const MOXIE_VERSION_STRING: &[u8; 6usize] = b"0.1.0\0";
pub const MOXIE_VERSION_NUMBER: u32 = 100;
pub const MOXIE_MAX_ADAPTER_RANK: u32 = 512;
pub const MOXIE_MAX_ADAPTERS: u32 = 4096;
pub const MOXIE_MAX_RANKS: u32 = 1024;
pub const MOXIE_NCCL_ID_BYTES: u32 = 128;
pub const MOXIE_CUDA_MAX_WIDTHS: u32 = 32;
pub const MOXIE_MAX_SLOTS: u32 = 65536;
pub const MOXIE_TRACE_MAX_LAYERS: u32 = 4096;
pub const MOXIE_TRACE_MAX_TOKENS: u32 = 1048576;
pub const MOXIE_CACHE_HALF_LIFE: f64 = 16.0;
pub const MOXIE_OK: moxie_status = 0;
pub const MOXIE_ERR_ARGUMENT: moxie_status = 1;
pub const MOXIE_ERR_UNSUPPORTED: moxie_status = 2;
pub const MOXIE_ERR_MEMORY: moxie_status = 3;
pub const MOXIE_ERR_IO: moxie_status = 4;
pub const MOXIE_ERR_FORMAT: moxie_status = 5;
pub const MOXIE_ERR_MISMATCH: moxie_status = 6;
pub const MOXIE_ERR_TIMEOUT: moxie_status = 7;
pub type moxie_status = ::std::os::raw::c_uint;
#[repr(C)]
pub struct moxie_error {
    pub code: moxie_status,
    pub offset: i64,
    pub file: [::std::os::raw::c_char; 256usize],
    pub text: [::std::os::raw::c_char; 768usize],
    pub reserved: [u32; 8usize],
}
extern "C" {
    pub fn moxie_status_name(status: moxie_status) -> *const ::std::os::raw::c_char;
}
extern "C" {
    pub fn moxie_version() -> *const ::std::os::raw::c_char;
}
pub const MOXIE_LOG_ERROR: moxie_log_level = 1;
pub const MOXIE_LOG_WARN: moxie_log_level = 2;
pub const MOXIE_LOG_INFO: moxie_log_level = 3;
pub const MOXIE_LOG_DEBUG: moxie_log_level = 4;
pub type moxie_log_level = ::std::os::raw::c_uint;
pub type moxie_log_fn = ::std::option::Option<
    unsafe extern "C" fn(
        user: *mut ::std::os::raw::c_void,
        level: moxie_log_level,
        text: *const ::std::os::raw::c_char,
    ),
>;
extern "C" {
    pub fn moxie_set_log(
        fn_: moxie_log_fn,
        user: *mut ::std::os::raw::c_void,
        level: moxie_log_level,
    );
}
#[repr(C)]
pub struct moxie_allocator {
    pub struct_size: u32,
    pub zeroed: i32,
    pub self_: *mut ::std::os::raw::c_void,
    pub allocate: ::std::option::Option<
        unsafe extern "C" fn(
            self_: *mut ::std::os::raw::c_void,
            bytes: u64,
            align: u64,
        ) -> *mut ::std::os::raw::c_void,
    >,
    pub release: ::std::option::Option<
        unsafe extern "C" fn(
            self_: *mut ::std::os::raw::c_void,
            memory: *mut ::std::os::raw::c_void,
            bytes: u64,
        ),
    >,
}
extern "C" {
    pub fn moxie_set_allocator(
        allocator: *const moxie_allocator,
        error: *mut moxie_error,
    ) -> moxie_status;
}
pub type moxie_dtype = i32;
pub const MOXIE_DTYPE_NONE: _bindgen_ty_1 = 0;
pub const MOXIE_F32: _bindgen_ty_1 = 1;
pub const MOXIE_F16: _bindgen_ty_1 = 2;
pub const MOXIE_BF16: _bindgen_ty_1 = 3;
pub const MOXIE_F8_E4M3: _bindgen_ty_1 = 4;
pub const MOXIE_F8_E5M2: _bindgen_ty_1 = 5;
pub const MOXIE_F8_E8M0: _bindgen_ty_1 = 6;
pub const MOXIE_F6_E3M2: _bindgen_ty_1 = 7;
pub const MOXIE_F6_E2M3: _bindgen_ty_1 = 8;
pub const MOXIE_F4_E2M1: _bindgen_ty_1 = 9;
pub const MOXIE_I8: _bindgen_ty_1 = 10;
pub const MOXIE_I4: _bindgen_ty_1 = 11;
pub const MOXIE_U4B8: _bindgen_ty_1 = 12;
pub const MOXIE_U8B128: _bindgen_ty_1 = 13;
pub const MOXIE_U8: _bindgen_ty_1 = 32;
pub const MOXIE_I16: _bindgen_ty_1 = 33;
pub const MOXIE_U16: _bindgen_ty_1 = 34;
pub const MOXIE_I32: _bindgen_ty_1 = 35;
pub const MOXIE_U32: _bindgen_ty_1 = 36;
pub const MOXIE_I64: _bindgen_ty_1 = 37;
pub const MOXIE_U64: _bindgen_ty_1 = 38;
pub const MOXIE_F64: _bindgen_ty_1 = 39;
pub const MOXIE_BOOL: _bindgen_ty_1 = 40;
pub type _bindgen_ty_1 = ::std::os::raw::c_uint;
extern "C" {
    pub fn moxie_dtype_name(dtype: moxie_dtype) -> *const ::std::os::raw::c_char;
}
extern "C" {
    pub fn moxie_dtype_from_name(name: *const ::std::os::raw::c_char) -> moxie_dtype;
}
extern "C" {
    pub fn moxie_dtype_bits(dtype: moxie_dtype) -> i32;
}
extern "C" {
    pub fn moxie_decode(dtype: moxie_dtype, code: u32) -> f32;
}
extern "C" {
    pub fn moxie_encode(dtype: moxie_dtype, value: f32) -> u32;
}
#[repr(C)]
pub struct moxie_tensor {
    pub data: *mut ::std::os::raw::c_void,
    pub dtype: moxie_dtype,
    pub rank: i32,
    pub shape: [i64; 5usize],
    pub strides: [i64; 5usize],
    pub device: i32,
    pub reserved: [u32; 5usize],
}
pub const MOXIE_ORDER_LINEAR: moxie_pack_order = 0;
pub const MOXIE_ORDER_AWQ: moxie_pack_order = 1;
pub type moxie_pack_order = ::std::os::raw::c_uint;
#[repr(C)]
pub struct moxie_packing {
    pub word_bytes: i8,
    pub per_word: i8,
    pub along_rows: i8,
    pub order: i8,
    pub reserved: [i8; 4usize],
}
#[repr(C)]
pub struct moxie_grid {
    pub data: *const ::std::os::raw::c_void,
    pub bytes: u64,
    pub rows: i64,
    pub cols: i64,
    pub row_stride: i64,
    pub col_stride: i64,
    pub dtype: moxie_dtype,
    pub packing: moxie_packing,
    pub reserved: [u32; 3usize],
}
pub const MOXIE_RULE_DEFAULT: moxie_scale_rule = 0;
pub const MOXIE_RULE_AMAX: moxie_scale_rule = 1;
pub const MOXIE_RULE_CEIL: moxie_scale_rule = 2;
pub const MOXIE_RULE_QUARK_EVEN: moxie_scale_rule = 3;
pub const MOXIE_RULE_OCP_FLOOR: moxie_scale_rule = 4;
pub const MOXIE_RULE_VLLM_FLOOR: moxie_scale_rule = 5;
pub const MOXIE_RULE_UE8M0: moxie_scale_rule = 6;
pub const MOXIE_RULE_INVERSE: moxie_scale_rule = 7;
pub type moxie_scale_rule = ::std::os::raw::c_uint;
pub const MOXIE_ROUND_EVEN: moxie_rounding = 0;
pub const MOXIE_ROUND_AWAY: moxie_rounding = 1;
pub const MOXIE_ROUND_TRUNCATE: moxie_rounding = 2;
pub type moxie_rounding = ::std::os::raw::c_uint;
pub const MOXIE_GLOBAL_NONE: moxie_global_kind = 0;
pub const MOXIE_GLOBAL_MULTIPLY: moxie_global_kind = 1;
pub const MOXIE_GLOBAL_DIVIDE: moxie_global_kind = 2;
pub type moxie_global_kind = ::std::os::raw::c_uint;
#[repr(C)]
pub struct moxie_quant {
    pub element: moxie_dtype,
    pub scale: moxie_dtype,
    pub group_rows: i32,
    pub group_cols: i32,
    pub has_zero: i32,
    pub global: i32,
    pub is_static: i32,
    pub rule: i32,
    pub rounding: i32,
    pub reserved: [u32; 7usize],
}
pub const MOXIE_ACT_SILU: moxie_act_kind = 0;
pub const MOXIE_ACT_GELU_ERF: moxie_act_kind = 1;
pub const MOXIE_ACT_GELU_TANH: moxie_act_kind = 2;
pub const MOXIE_ACT_SWIGLU_STEP: moxie_act_kind = 3;
pub const MOXIE_ACT_SITU: moxie_act_kind = 4;
pub const MOXIE_ACT_RELU2: moxie_act_kind = 5;
pub const MOXIE_ACT_RELU: moxie_act_kind = 6;
pub const MOXIE_ACT_SILU_NO_MUL: moxie_act_kind = 16;
pub const MOXIE_ACT_GELU_ERF_NO_MUL: moxie_act_kind = 17;
pub const MOXIE_ACT_GELU_TANH_NO_MUL: moxie_act_kind = 18;
pub const MOXIE_ACT_RELU2_NO_MUL: moxie_act_kind = 19;
pub const MOXIE_ACT_RELU_NO_MUL: moxie_act_kind = 20;
pub const MOXIE_ACT_IDENTITY_NO_MUL: moxie_act_kind = 21;
pub type moxie_act_kind = ::std::os::raw::c_uint;
#[repr(C)]
pub struct moxie_activation {
    pub kind: i32,
    pub alpha: f32,
    pub beta: f32,
    pub gate_limit: f32,
    pub up_limit: f32,
    pub expert_alpha: *const f32,
    pub expert_beta: *const f32,
    pub expert_limit: *const f32,
    pub reserved: [u32; 8usize],
}
extern "C" {
    pub fn moxie_act_is_gated(kind: i32) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn moxie_activation_at(i: i32, out: *mut moxie_activation)
        -> *const ::std::os::raw::c_char;
}
pub const MOXIE_SCORE_LOGIT: moxie_score = 0;
pub const MOXIE_SCORE_SOFTMAX: moxie_score = 1;
pub const MOXIE_SCORE_SIGMOID: moxie_score = 2;
pub const MOXIE_SCORE_SQRTSOFTPLUS: moxie_score = 3;
pub type moxie_score = ::std::os::raw::c_uint;
pub const MOXIE_SELECT_TOPK: moxie_select = 0;
pub const MOXIE_SELECT_TABLE: moxie_select = 1;
pub const MOXIE_SELECT_SPARSEMIXER: moxie_select = 2;
pub const MOXIE_SELECT_CUSTOM: moxie_select = 3;
pub const MOXIE_SELECT_SIM_UNIFORM: moxie_select = 4;
pub const MOXIE_SELECT_SIM_NORMAL: moxie_select = 5;
pub type moxie_select = ::std::os::raw::c_uint;
pub const MOXIE_WEIGHT_SCORE: moxie_weight_from = 0;
pub const MOXIE_WEIGHT_SOFTMAX_SELECTED: moxie_weight_from = 1;
pub const MOXIE_WEIGHT_SIGMOID_SELECTED: moxie_weight_from = 2;
pub type moxie_weight_from = ::std::os::raw::c_uint;
pub const MOXIE_NORM_NONE: moxie_norm = 0;
pub const MOXIE_NORM_SUM_PLUS_EPS: moxie_norm = 1;
pub const MOXIE_NORM_SUM: moxie_norm = 2;
pub const MOXIE_NORM_MAX_SUM_EPS: moxie_norm = 3;
pub const MOXIE_NORM_SUM_OR_ONE: moxie_norm = 4;
pub const MOXIE_NORM_ROOT_SQUARES: moxie_norm = 5;
pub type moxie_norm = ::std::os::raw::c_uint;
pub const MOXIE_FILL_LOWEST: moxie_group_fill = 0;
pub const MOXIE_FILL_ZERO: moxie_group_fill = 1;
pub const MOXIE_FILL_ZERO_KEY: moxie_group_fill = 2;
pub type moxie_group_fill = ::std::os::raw::c_uint;
pub const MOXIE_ZERO_IDENTITY: moxie_zero_kind = 0;
pub const MOXIE_ZERO_NULL: moxie_zero_kind = 1;
pub type moxie_zero_kind = ::std::os::raw::c_uint;
pub const MOXIE_GROUP_TOP2_SUM: moxie_group_score = 0;
pub const MOXIE_GROUP_MAX: moxie_group_score = 1;
pub type moxie_group_score = ::std::os::raw::c_uint;
pub type moxie_route_fn = ::std::option::Option<
    unsafe extern "C" fn(
        user: *mut ::std::os::raw::c_void,
        tokens: i64,
        logits: *const f32,
        ids: *mut i32,
        weights: *mut f32,
    ) -> ::std::os::raw::c_int,
>;
#[repr(C)]
pub struct moxie_routing {
    pub score: i32,
    pub select: i32,
    pub weight: i32,
    pub norm: i32,
    pub norm_eps: f32,
    pub scale: f32,
    pub n_group: i32,
    pub topk_group: i32,
    pub group_score: i32,
    pub group_fill_zero: i32,
    pub on_input: i32,
    pub round_logits_bf16: i32,
    pub round_weights_bf16: i32,
    pub jitter: f32,
    pub bias: *const f32,
    pub per_expert_scale: *const f32,
    pub table: *const i32,
    pub table_rows: i64,
    pub seed: u64,
    pub custom: moxie_route_fn,
    pub custom_user: *mut ::std::os::raw::c_void,
    pub softcap: f32,
    pub zero_experts: i32,
    pub zero_kind: i32,
    pub topk_per_group: i32,
    pub bias_alt: *const f32,
    pub reserved: [u32; 2usize],
}
extern "C" {
    pub fn moxie_routing_by_name(
        name: *const ::std::os::raw::c_char,
        routing: *mut moxie_routing,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_routing_name_at(i: i32) -> *const ::std::os::raw::c_char;
}
pub const MOXIE_NUMBERING_VLLM_OLD: moxie_routing_numbering = 0;
pub const MOXIE_NUMBERING_VLLM: moxie_routing_numbering = 1;
pub const MOXIE_NUMBERING_FLASHINFER: moxie_routing_numbering = 2;
pub type moxie_routing_numbering = ::std::os::raw::c_uint;
extern "C" {
    pub fn moxie_routing_number(name: *const ::std::os::raw::c_char, numbering: i32) -> i32;
}
extern "C" {
    pub fn moxie_routing_name_of(number: i32, numbering: i32) -> *const ::std::os::raw::c_char;
}
extern "C" {
    pub fn moxie_routing_method_type(
        scoring_func: *const ::std::os::raw::c_char,
        top_k: i32,
        renormalize: ::std::os::raw::c_int,
        num_expert_group: i32,
        has_e_score_bias: ::std::os::raw::c_int,
        numbering: i32,
    ) -> i32;
}
extern "C" {
    pub fn moxie_routing_number_of(
        routing: *const moxie_routing,
        top_k: i32,
        numbering: i32,
    ) -> i32;
}
extern "C" {
    pub fn moxie_pack_choice(id: i32, weight: f32) -> u32;
}
extern "C" {
    pub fn moxie_unpack_choice(packed: u32, id: *mut i32, weight: *mut f32);
}
pub const MOXIE_MAP_LINEAR: moxie_expert_map_kind = 0;
pub const MOXIE_MAP_ROUND_ROBIN: moxie_expert_map_kind = 1;
pub type moxie_expert_map_kind = ::std::os::raw::c_uint;
extern "C" {
    pub fn moxie_expert_map(
        kind: moxie_expert_map_kind,
        experts: i32,
        ranks: i32,
        rank: i32,
        local: *mut i32,
        count: *mut i32,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_slot_map {
    pub struct_size: u32,
    pub ranks: i32,
    pub experts: i32,
    pub slots: i32,
    pub expert_of: *const i32,
    pub first_slot: *const i32,
    pub generation: u64,
}
pub const MOXIE_ROW_NORM_NONE: moxie_row_norm_kind = 0;
pub const MOXIE_ROW_NORM_RMS: moxie_row_norm_kind = 1;
pub const MOXIE_ROW_NORM_RMS_WEIGHTED: moxie_row_norm_kind = 2;
pub type moxie_row_norm_kind = ::std::os::raw::c_uint;
#[repr(C)]
pub struct moxie_row_norm {
    pub kind: i32,
    pub has_weight: i32,
    pub eps: f32,
    pub weight_add: f32,
    pub factor: f32,
    pub reserved: [u32; 5usize],
}
#[repr(C)]
pub struct moxie_shared_config {
    pub intermediate: i64,
    pub w13: moxie_quant,
    pub w2: moxie_quant,
    pub a13: moxie_quant,
    pub a2: moxie_quant,
    pub has_gate: i32,
    pub bias13: i32,
    pub bias2: i32,
    pub scale: f32,
    pub reserved: [u32; 4usize],
}
#[repr(C)]
pub struct moxie_layer_config {
    pub struct_size: u32,
    pub dtype: moxie_dtype,
    pub experts: i64,
    pub top_k: i64,
    pub hidden: i64,
    pub intermediate: i64,
    pub activation: moxie_activation,
    pub routing: moxie_routing,
    pub w13: moxie_quant,
    pub w2: moxie_quant,
    pub a13: moxie_quant,
    pub a2: moxie_quant,
    pub bias13: i32,
    pub bias2: i32,
    pub shared: moxie_shared_config,
    pub router_width: i64,
    pub router_has_bias: i32,
    pub ep_size: i32,
    pub ep_rank: i32,
    pub ep_map: i32,
    pub router_norm: moxie_row_norm,
    pub expert_norm: moxie_row_norm,
    pub has_shared_activation: i32,
    pub shared_activation: moxie_activation,
    pub tp_size: i32,
    pub tp_rank: i32,
    pub slot_map: *const moxie_slot_map,
    pub round_results: i32,
}
#[repr(C)]
pub struct moxie_matrix {
    pub codes: moxie_grid,
    pub scale: moxie_grid,
    pub zero: moxie_grid,
    pub global: moxie_grid,
    pub bias: moxie_grid,
    pub zero_add: f32,
    pub group_index: *const i32,
    pub reserved: [u32; 6usize],
}
#[repr(C)]
pub struct moxie_expert {
    pub gate: moxie_matrix,
    pub up: moxie_matrix,
    pub down: moxie_matrix,
    pub a13_scale: f32,
    pub a2_scale: f32,
    pub reserved: [u32; 6usize],
}
#[repr(C)]
pub struct moxie_weights {
    pub struct_size: u32,
    pub n_experts: i64,
    pub experts: *const moxie_expert,
    pub shared: *const moxie_expert,
    pub router: moxie_matrix,
    pub shared_gate: moxie_matrix,
    pub done: ::std::option::Option<
        unsafe extern "C" fn(user: *mut ::std::os::raw::c_void, expert: *const moxie_expert),
    >,
    pub done_user: *mut ::std::os::raw::c_void,
    pub router_norm: moxie_matrix,
    pub expert_norm: moxie_matrix,
}
extern "C" {
    pub fn moxie_layer_config_check(
        config: *const moxie_layer_config,
        error: *mut moxie_error,
    ) -> moxie_status;
}
pub type moxie_task_fn = ::std::option::Option<
    unsafe extern "C" fn(context: *mut ::std::os::raw::c_void, task: i64, worker: i32),
>;
#[repr(C)]
pub struct moxie_executor {
    pub self_: *mut ::std::os::raw::c_void,
    pub workers: i32,
    pub run: ::std::option::Option<
        unsafe extern "C" fn(
            self_: *mut ::std::os::raw::c_void,
            tasks: i64,
            fn_: moxie_task_fn,
            context: *mut ::std::os::raw::c_void,
        ),
    >,
    pub reserved: [u32; 6usize],
}
extern "C" {
    pub fn moxie_executor_create(
        threads: i32,
        out: *mut *mut moxie_executor,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_executor_destroy(executor: *mut moxie_executor);
}
pub const MOXIE_BACKEND_AUTO: moxie_backend = 0;
pub const MOXIE_BACKEND_REF: moxie_backend = 1;
pub const MOXIE_BACKEND_CPU: moxie_backend = 2;
pub const MOXIE_BACKEND_CUDA: moxie_backend = 3;
pub type moxie_backend = ::std::os::raw::c_uint;
pub const MOXIE_MODE_EXACT: moxie_mode = 0;
pub const MOXIE_MODE_FAST: moxie_mode = 1;
pub type moxie_mode = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_layer {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_plan {
    _unused: [u8; 0],
}
pub type moxie_progress_fn = ::std::option::Option<
    unsafe extern "C" fn(
        user: *mut ::std::os::raw::c_void,
        done: i64,
        total: i64,
    ) -> ::std::os::raw::c_int,
>;
pub const MOXIE_TOKENS_SHARDED: moxie_token_layout = 0;
pub const MOXIE_TOKENS_REPLICATED: moxie_token_layout = 1;
pub const MOXIE_TOKENS_SCATTERED: moxie_token_layout = 2;
pub type moxie_token_layout = ::std::os::raw::c_uint;
pub const MOXIE_DEGRADED_NONE: moxie_degraded = 0;
pub const MOXIE_DEGRADED_KEEP: moxie_degraded = 1;
pub const MOXIE_DEGRADED_RENORMALIZE: moxie_degraded = 2;
pub type moxie_degraded = ::std::os::raw::c_uint;
#[repr(C)]
pub struct moxie_options {
    pub struct_size: u32,
    pub backend: i32,
    pub mode: i32,
    pub isa: *const ::std::os::raw::c_char,
    pub max_tokens: i64,
    pub executor: *const moxie_executor,
    pub progress: moxie_progress_fn,
    pub progress_user: *mut ::std::os::raw::c_void,
    pub device: *const ::std::os::raw::c_char,
    pub device_memory: *const moxie_cuda_allocator,
    pub comm: *mut moxie_comm,
    pub token_layout: i32,
    pub max_adapter_rank: i32,
    pub exchange_capacity: i64,
    pub degraded: i32,
    pub spare_slots: i32,
    pub exchange_chunk: i64,
    pub exchange_streams: i64,
    pub call_graphs: i64,
}
extern "C" {
    pub fn moxie_layer_create(
        config: *const moxie_layer_config,
        options: *const moxie_options,
        out: *mut *mut moxie_layer,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_layer_destroy(layer: *mut moxie_layer);
}
extern "C" {
    pub fn moxie_layer_prepare(
        layer: *mut moxie_layer,
        weights: *const moxie_weights,
        options: *const moxie_options,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_layer_update_expert(
        layer: *mut moxie_layer,
        expert: i64,
        weights: *const moxie_expert,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_layer_verify(layer: *const moxie_layer, error: *mut moxie_error) -> moxie_status;
}
extern "C" {
    pub fn moxie_layer_record(
        layer: *const moxie_layer,
        expert: i64,
        data: *mut *const ::std::os::raw::c_void,
        bytes: *mut u64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_layer_bytes(layer: *const moxie_layer) -> u64;
}
extern "C" {
    pub fn moxie_plan_create(
        layer: *const moxie_layer,
        options: *const moxie_options,
        out: *mut *mut moxie_plan,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_plan_destroy(plan: *mut moxie_plan);
}
extern "C" {
    pub fn moxie_plan_workspace_bytes(plan: *const moxie_plan) -> u64;
}
#[repr(C)]
pub struct moxie_plan_step {
    pub family: *const ::std::os::raw::c_char,
    pub role: *const ::std::os::raw::c_char,
    pub kernel: *const ::std::os::raw::c_char,
    pub isa: *const ::std::os::raw::c_char,
    pub layout: *const ::std::os::raw::c_char,
    pub exactness: *const ::std::os::raw::c_char,
    pub chosen: i32,
    pub reason: *const ::std::os::raw::c_char,
    pub remedy: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_plan_step_count(plan: *const moxie_plan) -> i32;
}
extern "C" {
    pub fn moxie_plan_step_at(plan: *const moxie_plan, index: i32) -> *const moxie_plan_step;
}
#[repr(C)]
pub struct moxie_plan_phase {
    pub struct_size: u32,
    pub name: *const ::std::os::raw::c_char,
    pub seconds: f64,
    pub sent_bytes: u64,
}
extern "C" {
    pub fn moxie_plan_phase_at(
        plan: *const moxie_plan,
        worker: i32,
        index: i32,
        out: *mut moxie_plan_phase,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn moxie_plan_explain(
        config: *const moxie_layer_config,
        options: *const moxie_options,
        out: *mut *mut moxie_plan,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_plan_explain_weights(
        config: *const moxie_layer_config,
        weights: *const moxie_weights,
        options: *const moxie_options,
        out: *mut *mut moxie_plan,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_run_args {
    pub struct_size: u32,
    pub tokens: i64,
    pub hidden: *const ::std::os::raw::c_void,
    pub router_hidden: *const ::std::os::raw::c_void,
    pub logits: *const ::std::os::raw::c_void,
    pub logits_dtype: moxie_dtype,
    pub token_ids: *const i32,
    pub ids: *const i32,
    pub weights: *const f32,
    pub output: *mut ::std::os::raw::c_void,
    pub ids_out: *mut i32,
    pub weights_out: *mut f32,
    pub logits_out: *mut f32,
    pub workspace: *mut ::std::os::raw::c_void,
    pub workspace_bytes: u64,
    pub padding: *const u8,
    pub bias_choice: *const u8,
    pub adapters: *mut moxie_adapters,
    pub adapter_ids: *const i32,
}
extern "C" {
    pub fn moxie_plan_run(
        plan: *mut moxie_plan,
        args: *const moxie_run_args,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_plan_route(
        plan: *mut moxie_plan,
        args: *const moxie_run_args,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_plan_experts(
        plan: *mut moxie_plan,
        args: *const moxie_run_args,
        rows: *mut f32,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_plan_combine(
        plan: *mut moxie_plan,
        args: *const moxie_run_args,
        rows: *const f32,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_stage_report {
    pub stage: *const ::std::os::raw::c_char,
    pub elements: i64,
    pub beyond: i64,
    pub worst_ratio: f64,
    pub got: f64,
    pub want: f64,
    pub bound: f64,
    pub token: i64,
    pub slot: i64,
    pub expert: i64,
    pub column: i64,
    pub column_block: i64,
    pub rms_error: f64,
    pub rms_want: f64,
    pub rms_bound: f64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_check_report {
    _unused: [u8; 0],
}
extern "C" {
    pub fn moxie_plan_check(
        plan: *mut moxie_plan,
        weights: *const moxie_weights,
        args: *const moxie_run_args,
        out: *mut *mut moxie_check_report,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_check_report_worst(report: *const moxie_check_report) -> f64;
}
extern "C" {
    pub fn moxie_check_report_stage_count(report: *const moxie_check_report) -> i32;
}
extern "C" {
    pub fn moxie_check_report_stage_at(
        report: *const moxie_check_report,
        index: i32,
    ) -> *const moxie_stage_report;
}
extern "C" {
    pub fn moxie_check_report_destroy(report: *mut moxie_check_report);
}
#[repr(C)]
pub struct moxie_weights_difference {
    pub struct_size: u32,
    pub expert: i64,
    pub projection: *const ::std::os::raw::c_char,
    pub part: *const ::std::os::raw::c_char,
    pub row: i64,
    pub column: i64,
    pub row_block: i64,
    pub column_block: i64,
    pub count: i64,
    pub experts: i64,
}
extern "C" {
    pub fn moxie_weights_compare(
        config: *const moxie_layer_config,
        a: *const moxie_weights,
        b: *const moxie_weights,
        out: *mut moxie_weights_difference,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_machine {
    pub struct_size: u32,
    pub processors: i32,
    pub cpu: [::std::os::raw::c_char; 64usize],
    pub isa_found: *const ::std::os::raw::c_char,
    pub isa_allowed: *const ::std::os::raw::c_char,
    pub features: [::std::os::raw::c_char; 512usize],
    pub amx: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_machine_info(out: *mut moxie_machine, error: *mut moxie_error) -> moxie_status;
}
#[repr(C)]
pub struct moxie_kernel_info {
    pub struct_size: u32,
    pub runnable: i32,
    pub family: *const ::std::os::raw::c_char,
    pub name: *const ::std::os::raw::c_char,
    pub isa: *const ::std::os::raw::c_char,
    pub layout: *const ::std::os::raw::c_char,
    pub exactness: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_kernel_at(index: i32, out: *mut moxie_kernel_info) -> ::std::os::raw::c_int;
}
#[repr(C)]
pub struct moxie_limits {
    pub struct_size: u32,
    pub workers: i32,
    pub isa: *const ::std::os::raw::c_char,
    pub read_gb_s: f64,
    pub copy_gb_s: f64,
    pub l2_read_gb_s: f64,
    pub f32_tflop_s: f64,
    pub bf16_tflop_s: f64,
    pub int8_top_s: f64,
    pub l2_bytes: u64,
    pub cache_bytes: u64,
    pub read_how: *const ::std::os::raw::c_char,
    pub copy_how: *const ::std::os::raw::c_char,
    pub l2_read_how: *const ::std::os::raw::c_char,
    pub f32_how: *const ::std::os::raw::c_char,
    pub bf16_how: *const ::std::os::raw::c_char,
    pub int8_how: *const ::std::os::raw::c_char,
    pub disturbed: i32,
    pub fp8_tflop_s: f64,
    pub fp8_how: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_measure_limits(
        executor: *const moxie_executor,
        isa_cap: *const ::std::os::raw::c_char,
        out: *mut moxie_limits,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_model {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_model_layer {
    _unused: [u8; 0],
}
pub const MOXIE_ACTIVATIONS_CHECKPOINT: moxie_activations_choice = 0;
pub const MOXIE_ACTIVATIONS_16BIT: moxie_activations_choice = 1;
pub const MOXIE_ACTIVATIONS_GGML: moxie_activations_choice = 2;
pub type moxie_activations_choice = ::std::os::raw::c_uint;
#[repr(C)]
pub struct moxie_named_tensor {
    pub name: *const ::std::os::raw::c_char,
    pub tensor: moxie_tensor,
    pub reserved: [u32; 4usize],
}
#[repr(C)]
pub struct moxie_model_options {
    pub struct_size: u32,
    pub no_mmap: i32,
    pub activations: i32,
    pub experts_only: i32,
    pub tensors: *const moxie_named_tensor,
    pub n_tensors: i64,
    pub allow_unread: i32,
}
#[repr(C)]
pub struct moxie_model_layer_info {
    pub struct_size: u32,
    pub layer: i64,
    pub format: *const ::std::os::raw::c_char,
    pub shared_format: *const ::std::os::raw::c_char,
    pub routing: *const ::std::os::raw::c_char,
    pub experts: i64,
    pub top_k: i64,
    pub hidden: i64,
    pub intermediate: i64,
    pub shared_intermediate: i64,
    pub router_width: i64,
    pub expert_bytes: u64,
    pub total_bytes: u64,
    pub format_note: *const ::std::os::raw::c_char,
    pub merged_input_scales: i64,
    pub outside: *const ::std::os::raw::c_char,
    pub n_unread: i64,
}
#[repr(C)]
pub struct moxie_model_info {
    pub struct_size: u32,
    pub family: *const ::std::os::raw::c_char,
    pub model_type: *const ::std::os::raw::c_char,
    pub quant_method: *const ::std::os::raw::c_char,
    pub n_layers: i64,
    pub n_tensors: i64,
    pub n_files: i64,
    pub tensor_bytes: u64,
    pub n_warnings: i64,
    pub n_unread_keys: i64,
}
extern "C" {
    pub fn moxie_model_open(
        dir: *const ::std::os::raw::c_char,
        options: *const moxie_model_options,
        out: *mut *mut moxie_model,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_model_close(model: *mut moxie_model);
}
extern "C" {
    pub fn moxie_model_get_info(
        model: *const moxie_model,
        info: *mut moxie_model_info,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_model_warning(
        model: *const moxie_model,
        index: i64,
    ) -> *const ::std::os::raw::c_char;
}
extern "C" {
    pub fn moxie_model_unread_key(
        model: *const moxie_model,
        index: i64,
    ) -> *const ::std::os::raw::c_char;
}
extern "C" {
    pub fn moxie_model_describe_layer(
        model: *const moxie_model,
        i: i64,
        info: *mut moxie_model_layer_info,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_model_load_layer(
        model: *const moxie_model,
        layer: i64,
        out: *mut *mut moxie_model_layer,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_model_layer_free(layer: *mut moxie_model_layer);
}
extern "C" {
    pub fn moxie_model_layer_config(layer: *const moxie_model_layer) -> *const moxie_layer_config;
}
extern "C" {
    pub fn moxie_model_layer_unread(
        layer: *const moxie_model_layer,
        index: i64,
    ) -> *const ::std::os::raw::c_char;
}
extern "C" {
    pub fn moxie_model_layer_weights(layer: *const moxie_model_layer) -> *const moxie_weights;
}
extern "C" {
    pub fn moxie_config_layer(
        dir: *const ::std::os::raw::c_char,
        layer: i64,
        format: *const ::std::os::raw::c_char,
        out: *mut moxie_layer_config,
        error: *mut moxie_error,
    ) -> moxie_status;
}
pub type moxie_tensor_fn = ::std::option::Option<
    unsafe extern "C" fn(
        user: *mut ::std::os::raw::c_void,
        name: *const ::std::os::raw::c_char,
        tensor: *const moxie_tensor,
    ) -> ::std::os::raw::c_int,
>;
extern "C" {
    pub fn moxie_model_visit_experts(
        model: *const moxie_model,
        layer: i64,
        visit: moxie_tensor_fn,
        user: *mut ::std::os::raw::c_void,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_model_expert_prefix(
        model: *const moxie_model,
        layer: i64,
        buffer: *mut ::std::os::raw::c_char,
        size: usize,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_tensor_file {
    _unused: [u8; 0],
}
extern "C" {
    pub fn moxie_tensor_file_open(
        path: *const ::std::os::raw::c_char,
        no_mmap: ::std::os::raw::c_int,
        out: *mut *mut moxie_tensor_file,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_tensor_file_close(file: *mut moxie_tensor_file);
}
extern "C" {
    pub fn moxie_tensor_file_count(file: *const moxie_tensor_file) -> i64;
}
extern "C" {
    pub fn moxie_tensor_file_at(
        file: *const moxie_tensor_file,
        i: i64,
        name: *mut *const ::std::os::raw::c_char,
        out: *mut moxie_tensor,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_tensor_file_find(
        file: *const moxie_tensor_file,
        name: *const ::std::os::raw::c_char,
        out: *mut moxie_tensor,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_tensor_file_write(
        path: *const ::std::os::raw::c_char,
        tensors: *const moxie_named_tensor,
        n_tensors: i64,
        metadata: *const *const ::std::os::raw::c_char,
        n_metadata: i64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_tensor_file_metadata(
        file: *const moxie_tensor_file,
        key: *const ::std::os::raw::c_char,
    ) -> *const ::std::os::raw::c_char;
}
extern "C" {
    pub fn moxie_tensor_file_release_pages(
        file: *const moxie_tensor_file,
        data: *const ::std::os::raw::c_void,
        bytes: u64,
    );
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_sealed_writer {
    _unused: [u8; 0],
}
#[repr(C)]
pub struct moxie_sealed_tensor {
    pub name: *const ::std::os::raw::c_char,
    pub dtype: moxie_dtype,
    pub rank: i32,
    pub shape: [i64; 5usize],
    pub pieces: i64,
    pub reserved: [u32; 4usize],
}
extern "C" {
    pub fn moxie_sealed_writer_open(
        path: *const ::std::os::raw::c_char,
        tensors: *const moxie_sealed_tensor,
        n_tensors: i64,
        metadata: *const *const ::std::os::raw::c_char,
        n_metadata: i64,
        out: *mut *mut moxie_sealed_writer,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_sealed_writer_put(
        writer: *mut moxie_sealed_writer,
        tensor: i64,
        piece: i64,
        data: *const ::std::os::raw::c_void,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_sealed_writer_finish(
        writer: *mut moxie_sealed_writer,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_sealed_writer_abandon(writer: *mut moxie_sealed_writer);
}
extern "C" {
    pub fn moxie_tensor_file_check_seal(
        file: *const moxie_tensor_file,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_file_read(
        path: *const ::std::os::raw::c_char,
        limit: u64,
        data: *mut *mut ::std::os::raw::c_char,
        bytes: *mut u64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_file_free(data: *mut ::std::os::raw::c_char);
}
extern "C" {
    pub fn moxie_file_exists(path: *const ::std::os::raw::c_char) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn moxie_file_write(
        path: *const ::std::os::raw::c_char,
        data: *const ::std::os::raw::c_void,
        bytes: u64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_file_check_output(
        path: *const ::std::os::raw::c_char,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_directory_lock(
        path: *const ::std::os::raw::c_char,
        create: ::std::os::raw::c_int,
        fd: *mut ::std::os::raw::c_int,
        created: *mut ::std::os::raw::c_int,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_temporaries_remove();
}
#[repr(C)]
pub struct moxie_preset_info {
    pub struct_size: u32,
    pub name: *const ::std::os::raw::c_char,
    pub family: *const ::std::os::raw::c_char,
    pub experts: i64,
    pub top_k: i64,
    pub hidden: i64,
    pub intermediate: i64,
    pub shared_intermediate: i64,
    pub router_width: i64,
    pub layers: i64,
    pub activation: *const ::std::os::raw::c_char,
    pub n_formats: i32,
    pub formats: *const *const ::std::os::raw::c_char,
    pub n_native: i32,
    pub layer_bytes: u64,
    pub gguf_architecture: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_preset_at(i: i32, out: *mut moxie_preset_info) -> ::std::os::raw::c_int;
}
#[repr(C)]
pub struct moxie_family_info {
    pub struct_size: u32,
    pub name: *const ::std::os::raw::c_char,
    pub model_types: *const *const ::std::os::raw::c_char,
    pub n_model_types: i32,
    pub architecture: *const ::std::os::raw::c_char,
    pub routing: *const ::std::os::raw::c_char,
    pub activation: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_family_at(i: i32, out: *mut moxie_family_info) -> ::std::os::raw::c_int;
}
#[repr(C)]
pub struct moxie_checkpoint_format_info {
    pub struct_size: u32,
    pub name: *const ::std::os::raw::c_char,
    pub quant_method: *const ::std::os::raw::c_char,
    pub summary: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_dtype_block(dtype: moxie_dtype, bytes: *mut i32) -> i32;
}
extern "C" {
    pub fn moxie_checkpoint_format_info_at(
        i: i32,
        out: *mut moxie_checkpoint_format_info,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn moxie_checkpoint_format_at(i: i32) -> *const ::std::os::raw::c_char;
}
#[repr(C)]
pub struct moxie_synth_options {
    pub struct_size: u32,
    pub format: *const ::std::os::raw::c_char,
    pub layers: i64,
    pub experts: i64,
    pub hidden: i64,
    pub intermediate: i64,
    pub seed: u64,
    pub shard_bytes: u64,
    pub progress: ::std::option::Option<
        unsafe extern "C" fn(
            user: *mut ::std::os::raw::c_void,
            done_bytes: u64,
            total_bytes: u64,
        ) -> ::std::os::raw::c_int,
    >,
    pub progress_user: *mut ::std::os::raw::c_void,
}
extern "C" {
    pub fn moxie_synth_write(
        preset: *const ::std::os::raw::c_char,
        dir: *const ::std::os::raw::c_char,
        options: *const moxie_synth_options,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_preset_config(
        preset: *const ::std::os::raw::c_char,
        format: *const ::std::os::raw::c_char,
        out: *mut moxie_layer_config,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_lora {
    pub struct_size: u32,
    pub gate_scale: f32,
    pub up_scale: f32,
    pub down_scale: f32,
    pub gate_a: moxie_tensor,
    pub gate_b: moxie_tensor,
    pub up_a: moxie_tensor,
    pub up_b: moxie_tensor,
    pub down_a: moxie_tensor,
    pub down_b: moxie_tensor,
}
extern "C" {
    pub fn moxie_adapters_create(
        layer: *const moxie_layer,
        count: i32,
        out: *mut *mut moxie_adapters,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_adapters_destroy(adapters: *mut moxie_adapters);
}
extern "C" {
    pub fn moxie_adapters_set(
        adapters: *mut moxie_adapters,
        number: i32,
        lora: *const moxie_lora,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_adapters_remove(
        adapters: *mut moxie_adapters,
        number: i32,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_adapters_enable(
        adapters: *mut moxie_adapters,
        number: i32,
        enabled: i32,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_adapters_rank(adapters: *const moxie_adapters, number: i32) -> i32;
}
extern "C" {
    pub fn moxie_adapters_bytes(adapters: *const moxie_adapters) -> u64;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_adapter_files {
    _unused: [u8; 0],
}
extern "C" {
    pub fn moxie_adapter_files_open(
        dir: *const ::std::os::raw::c_char,
        out: *mut *mut moxie_adapter_files,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_adapter_files_close(files: *mut moxie_adapter_files);
}
extern "C" {
    pub fn moxie_adapter_files_load(
        files: *mut moxie_adapter_files,
        model: *const moxie_model,
        loaded: *const moxie_model_layer,
        layer: i64,
        lora: *mut moxie_lora,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_comm_rows {
    pub send: *const ::std::os::raw::c_void,
    pub recv: *mut ::std::os::raw::c_void,
    pub row_bytes: u64,
    pub send_rows: *const i64,
    pub send_at: *const i64,
    pub recv_rows: *const i64,
    pub recv_at: *const i64,
    pub stream: *mut ::std::os::raw::c_void,
    pub on_device: u32,
    pub reserved: [u32; 1usize],
}
pub const MOXIE_COMM_SUM_I64: moxie_comm_sum = 0;
pub const MOXIE_COMM_MAX_I64: moxie_comm_sum = 1;
pub const MOXIE_COMM_MAX_F32: moxie_comm_sum = 2;
pub type moxie_comm_sum = ::std::os::raw::c_uint;
#[repr(C)]
pub struct moxie_transport {
    pub struct_size: u32,
    pub ranks: i32,
    pub rank: i32,
    pub name: *const ::std::os::raw::c_char,
    pub self_: *mut ::std::os::raw::c_void,
    pub counts: ::std::option::Option<
        unsafe extern "C" fn(
            self_: *mut ::std::os::raw::c_void,
            send: *const i64,
            recv: *mut i64,
            each: i64,
            request: *mut i64,
            error: *mut moxie_error,
        ) -> moxie_status,
    >,
    pub alltoallv: ::std::option::Option<
        unsafe extern "C" fn(
            self_: *mut ::std::os::raw::c_void,
            rows: *const moxie_comm_rows,
            request: *mut i64,
            error: *mut moxie_error,
        ) -> moxie_status,
    >,
    pub allgatherv: ::std::option::Option<
        unsafe extern "C" fn(
            self_: *mut ::std::os::raw::c_void,
            rows: *const moxie_comm_rows,
            request: *mut i64,
            error: *mut moxie_error,
        ) -> moxie_status,
    >,
    pub reduce_scatter: ::std::option::Option<
        unsafe extern "C" fn(
            self_: *mut ::std::os::raw::c_void,
            rows: *const moxie_comm_rows,
            request: *mut i64,
            error: *mut moxie_error,
        ) -> moxie_status,
    >,
    pub allreduce: ::std::option::Option<
        unsafe extern "C" fn(
            self_: *mut ::std::os::raw::c_void,
            values: *mut ::std::os::raw::c_void,
            n: i64,
            how: moxie_comm_sum,
            request: *mut i64,
            error: *mut moxie_error,
        ) -> moxie_status,
    >,
    pub barrier: ::std::option::Option<
        unsafe extern "C" fn(
            self_: *mut ::std::os::raw::c_void,
            request: *mut i64,
            error: *mut moxie_error,
        ) -> moxie_status,
    >,
    pub progress: ::std::option::Option<
        unsafe extern "C" fn(
            self_: *mut ::std::os::raw::c_void,
            request: i64,
            done: *mut i32,
            error: *mut moxie_error,
        ) -> moxie_status,
    >,
    pub late: ::std::option::Option<
        unsafe extern "C" fn(self_: *mut ::std::os::raw::c_void, request: i64) -> i32,
    >,
    pub cancel: ::std::option::Option<unsafe extern "C" fn(self_: *mut ::std::os::raw::c_void)>,
    pub destroy: ::std::option::Option<unsafe extern "C" fn(self_: *mut ::std::os::raw::c_void)>,
    pub wait: ::std::option::Option<
        unsafe extern "C" fn(self_: *mut ::std::os::raw::c_void, request: i64, ms: i32),
    >,
    pub device: i32,
    pub mask: ::std::option::Option<
        unsafe extern "C" fn(
            self_: *mut ::std::os::raw::c_void,
            rank: i32,
            error: *mut moxie_error,
        ) -> moxie_status,
    >,
}
#[repr(C)]
pub struct moxie_transport_info {
    pub struct_size: u32,
    pub usable: i32,
    pub name: *const ::std::os::raw::c_char,
    pub ranks: *const ::std::os::raw::c_char,
    pub missing: [::std::os::raw::c_char; 512usize],
}
extern "C" {
    pub fn moxie_transport_at(index: i32, out: *mut moxie_transport_info) -> ::std::os::raw::c_int;
}
#[repr(C)]
pub struct moxie_comm_options {
    pub struct_size: u32,
    pub deadline_ms: i32,
}
extern "C" {
    pub fn moxie_comm_create(
        transport: *const moxie_transport,
        options: *const moxie_comm_options,
        out: *mut *mut moxie_comm,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_exchange_row_bytes(
        config: *const moxie_layer_config,
        dispatch: *mut u64,
        result: *mut u64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_exchange_row_bytes_with(
        config: *const moxie_layer_config,
        options: *const moxie_options,
        dispatch: *mut u64,
        result: *mut u64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_comm_local_create(
        ranks: i32,
        options: *const moxie_comm_options,
        out: *mut *mut moxie_comm,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_comm_local_without(
        comm: *const moxie_comm,
        dead: *const i32,
        count: i32,
        options: *const moxie_comm_options,
        out: *mut *mut moxie_comm,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_comm_mpi_create(
        communicator: *const ::std::os::raw::c_void,
        options: *const moxie_comm_options,
        out: *mut *mut moxie_comm,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_comm_mpi_launch(error: *mut moxie_error) -> moxie_status;
}
extern "C" {
    pub fn moxie_comm_mpi_finish();
}
#[repr(C)]
pub struct moxie_nccl_options {
    pub struct_size: u32,
    pub ranks: i32,
    pub rank: i32,
    pub device: *const ::std::os::raw::c_char,
    pub id: *const ::std::os::raw::c_void,
    pub over: *mut moxie_comm,
    pub file: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_comm_nccl_id(
        id: *mut ::std::os::raw::c_void,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_comm_nccl_create(
        nccl: *const moxie_nccl_options,
        options: *const moxie_comm_options,
        out: *mut *mut moxie_comm,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_comm_destroy(comm: *mut moxie_comm);
}
extern "C" {
    pub fn moxie_comm_ranks(comm: *const moxie_comm) -> i32;
}
extern "C" {
    pub fn moxie_comm_rank(comm: *const moxie_comm) -> i32;
}
extern "C" {
    pub fn moxie_comm_name(comm: *const moxie_comm) -> *const ::std::os::raw::c_char;
}
extern "C" {
    pub fn moxie_comm_lost(comm: *const moxie_comm, rank: i32) -> i32;
}
#[repr(C)]
pub struct moxie_losses {
    pub struct_size: u32,
    pub ranks: i32,
    pub slots: i64,
    pub tokens: i64,
}
extern "C" {
    pub fn moxie_plan_losses(
        plan: *const moxie_plan,
        out: *mut moxie_losses,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_comm_counts(
        comm: *mut moxie_comm,
        send: *const i64,
        recv: *mut i64,
        each: i64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_comm_alltoallv(
        comm: *mut moxie_comm,
        rows: *const moxie_comm_rows,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_comm_allgatherv(
        comm: *mut moxie_comm,
        rows: *const moxie_comm_rows,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_comm_reduce_scatter(
        comm: *mut moxie_comm,
        rows: *const moxie_comm_rows,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_comm_allreduce(
        comm: *mut moxie_comm,
        values: *mut ::std::os::raw::c_void,
        n: i64,
        how: moxie_comm_sum,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_comm_barrier(comm: *mut moxie_comm, error: *mut moxie_error) -> moxie_status;
}
extern "C" {
    pub fn moxie_comm_agree(
        comm: *mut moxie_comm,
        status: moxie_status,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_mover {
    _unused: [u8; 0],
}
#[repr(C)]
pub struct moxie_mover_options {
    pub struct_size: u32,
    pub comm: *mut moxie_comm,
    pub weights: *const moxie_weights,
    pub max_bytes: u64,
}
#[repr(C)]
pub struct moxie_mover_report {
    pub struct_size: u32,
    pub moves: i32,
    pub left: i32,
    pub bytes: u64,
    pub own_bytes: u64,
    pub generation: u64,
}
extern "C" {
    pub fn moxie_mover_create(
        layer: *mut moxie_layer,
        target: *const moxie_slot_map,
        options: *const moxie_mover_options,
        out: *mut *mut moxie_mover,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_mover_destroy(mover: *mut moxie_mover);
}
extern "C" {
    pub fn moxie_mover_step(
        mover: *mut moxie_mover,
        report: *mut moxie_mover_report,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_cuda_allocator {
    pub self_: *mut ::std::os::raw::c_void,
    pub allocate: ::std::option::Option<
        unsafe extern "C" fn(
            self_: *mut ::std::os::raw::c_void,
            bytes: u64,
        ) -> *mut ::std::os::raw::c_void,
    >,
    pub release: ::std::option::Option<
        unsafe extern "C" fn(
            self_: *mut ::std::os::raw::c_void,
            memory: *mut ::std::os::raw::c_void,
        ),
    >,
    pub reserved: [u32; 4usize],
}
#[repr(C)]
pub struct moxie_cuda_info {
    pub struct_size: u32,
    pub devices: i32,
    pub opened: [::std::os::raw::c_char; 256usize],
    pub built: [::std::os::raw::c_char; 96usize],
    pub missing: [::std::os::raw::c_char; 512usize],
    pub kernels: i32,
}
extern "C" {
    pub fn moxie_cuda_get_info(out: *mut moxie_cuda_info, error: *mut moxie_error) -> moxie_status;
}
#[repr(C)]
pub struct moxie_cuda_device {
    pub struct_size: u32,
    pub sm: i32,
    pub multiprocessors: i32,
    pub usable: i32,
    pub shared_bytes: u64,
    pub l2_bytes: u64,
    pub memory_bytes: u64,
    pub name: [::std::os::raw::c_char; 64usize],
    pub features: [::std::os::raw::c_char; 96usize],
}
extern "C" {
    pub fn moxie_cuda_device_at(
        index: i32,
        out: *mut moxie_cuda_device,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_cuda_plan_run(
        plan: *mut moxie_plan,
        args: *const moxie_run_args,
        stream: *mut ::std::os::raw::c_void,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_cuda_plan_wait(
        plan: *mut moxie_plan,
        stream: *mut ::std::os::raw::c_void,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_cuda_plan_capture(
        plans: *const *mut moxie_plan,
        args: *const *const moxie_run_args,
        count: i32,
        graph: *mut *mut ::std::os::raw::c_void,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_cuda_graph_launch(
        graph: *mut ::std::os::raw::c_void,
        stream: *mut ::std::os::raw::c_void,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_cuda_graph_destroy(graph: *mut ::std::os::raw::c_void);
}
#[repr(C)]
pub struct moxie_cuda_launch {
    pub struct_size: u32,
    pub tile_tokens: i32,
    pub n_widths: i32,
    pub widths: [i32; 32usize],
    pub warp_tokens: i32,
    pub blocks: i32,
    pub stages: i32,
    pub chunks: i32,
    pub pairs: i32,
}
extern "C" {
    pub fn moxie_cuda_plan_launch(
        plan: *const moxie_plan,
        step: i32,
        tokens: i64,
        out: *mut moxie_cuda_launch,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn moxie_cuda_measure_limits(
        device: *const ::std::os::raw::c_char,
        out: *mut moxie_limits,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_cuda_measure_copy(
        device: *const ::std::os::raw::c_char,
        gb_s: *mut f64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_cuda_fill {
    pub struct_size: u32,
    pub workers: i32,
    pub bytes: u64,
    pub pinned_bytes: u64,
    pub allocate_seconds: f64,
    pub pin_seconds: f64,
    pub fill_seconds: f64,
}
extern "C" {
    pub fn moxie_cuda_layer_fill(
        layer: *const moxie_layer,
        out: *mut moxie_cuda_fill,
    ) -> ::std::os::raw::c_int;
}
#[repr(C)]
pub struct moxie_cuda_timed_run {
    pub plan: *mut moxie_plan,
    pub args: *const moxie_run_args,
    pub reserved: [u32; 4usize],
}
extern "C" {
    pub fn moxie_cuda_time_runs(
        runs: *const moxie_cuda_timed_run,
        count: i32,
        repeats: i32,
        seconds: *mut f64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_cuda_time_host(
        run: *const moxie_cuda_timed_run,
        repeats: i32,
        equal: *mut f64,
        kernels: *mut f64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_cuda_kernel_at(index: i32, out: *mut moxie_kernel_info) -> ::std::os::raw::c_int;
}
pub const MOXIE_SEVERITY_NOTE: moxie_severity = 0;
pub const MOXIE_SEVERITY_WARNING: moxie_severity = 1;
pub const MOXIE_SEVERITY_ERROR: moxie_severity = 2;
pub type moxie_severity = ::std::os::raw::c_uint;
extern "C" {
    pub fn moxie_severity_name(severity: i32) -> *const ::std::os::raw::c_char;
}
#[repr(C)]
pub struct moxie_lint_rule {
    pub struct_size: u32,
    pub name: *const ::std::os::raw::c_char,
    pub topic: *const ::std::os::raw::c_char,
    pub severity: i32,
    pub deep: i32,
    pub meaning: *const ::std::os::raw::c_char,
    pub engines: *const ::std::os::raw::c_char,
    pub remedy: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_lint_rule_at(i: i32, out: *mut moxie_lint_rule) -> ::std::os::raw::c_int;
}
#[repr(C)]
pub struct moxie_lint_options {
    pub struct_size: u32,
    pub deep: i32,
    pub some_layers: i32,
    pub first_layer: i64,
    pub last_layer: i64,
    pub only: *const ::std::os::raw::c_char,
    pub progress: moxie_progress_fn,
    pub progress_user: *mut ::std::os::raw::c_void,
    pub model: *const ::std::os::raw::c_char,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_lint {
    _unused: [u8; 0],
}
#[repr(C)]
pub struct moxie_lint_info {
    pub struct_size: u32,
    pub n_findings: i64,
    pub n_errors: i64,
    pub n_warnings: i64,
    pub n_notes: i64,
    pub n_layers: i64,
    pub n_tensors: i64,
    pub n_files: i64,
    pub family: *const ::std::os::raw::c_char,
    pub deep: i32,
    pub input: i32,
    pub input_text: *const ::std::os::raw::c_char,
}
#[repr(C)]
pub struct moxie_finding {
    pub struct_size: u32,
    pub name: *const ::std::os::raw::c_char,
    pub severity: i32,
    pub layer: i64,
    pub file: *const ::std::os::raw::c_char,
    pub tensor: *const ::std::os::raw::c_char,
    pub found: *const ::std::os::raw::c_char,
    pub more: i64,
    pub meaning: *const ::std::os::raw::c_char,
    pub engines: *const ::std::os::raw::c_char,
    pub remedy: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_lint_run(
        dir: *const ::std::os::raw::c_char,
        options: *const moxie_lint_options,
        out: *mut *mut moxie_lint,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_lint_free(lint: *mut moxie_lint);
}
extern "C" {
    pub fn moxie_lint_get_info(
        lint: *const moxie_lint,
        info: *mut moxie_lint_info,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_lint_finding_at(
        lint: *const moxie_lint,
        i: i64,
        out: *mut moxie_finding,
    ) -> ::std::os::raw::c_int;
}
#[repr(C)]
pub struct moxie_parallel_args {
    pub struct_size: u32,
    pub tp_size: i32,
    pub pcp_size: i32,
    pub dp_size: i32,
    pub tp_rank: i32,
    pub pcp_rank: i32,
    pub dp_rank: i32,
    pub sp_size: i32,
    pub enable_expert_parallel: i32,
    pub enable_eplb: i32,
    pub all2all_backend: *const ::std::os::raw::c_char,
}
#[repr(C)]
pub struct moxie_parallel {
    pub struct_size: u32,
    pub tp_size: i32,
    pub tp_rank: i32,
    pub pcp_size: i32,
    pub pcp_rank: i32,
    pub dp_size: i32,
    pub dp_rank: i32,
    pub ep_size: i32,
    pub ep_rank: i32,
    pub sp_size: i32,
    pub use_ep: i32,
    pub enable_eplb: i32,
    pub all2all_backend: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_parallel_make(
        args: *const moxie_parallel_args,
        out: *mut moxie_parallel,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_parallel_make_no_parallel(
        out: *mut moxie_parallel,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_parallel_predicate(
        parallel: *const moxie_parallel,
        name: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn moxie_parallel_predicate_at(i: i32) -> *const ::std::os::raw::c_char;
}
pub const MOXIE_EXCHANGE_LOCAL: moxie_exchange = 0;
pub const MOXIE_EXCHANGE_SHARDED: moxie_exchange = 1;
pub const MOXIE_EXCHANGE_CAPACITY: moxie_exchange = 2;
pub const MOXIE_EXCHANGE_REPLICATED: moxie_exchange = 3;
pub type moxie_exchange = ::std::os::raw::c_uint;
#[repr(C)]
pub struct moxie_all2all_backend {
    pub struct_size: u32,
    pub exchange: i32,
    pub name: *const ::std::os::raw::c_char,
    pub vllm_name: *const ::std::os::raw::c_char,
    pub differs: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_all2all_backend_at(
        i: i32,
        out: *mut moxie_all2all_backend,
        error: *mut moxie_error,
    ) -> moxie_status;
}
pub const MOXIE_VLLM_CUDA: moxie_vllm_platform = 0;
pub const MOXIE_VLLM_ROCM: moxie_vllm_platform = 1;
pub const MOXIE_VLLM_XPU: moxie_vllm_platform = 2;
pub const MOXIE_VLLM_CPU: moxie_vllm_platform = 3;
pub type moxie_vllm_platform = ::std::os::raw::c_uint;
#[repr(C)]
pub struct moxie_fused_moe_args {
    pub struct_size: u32,
    pub num_logical_experts: i32,
    pub num_redundant_experts: i32,
    pub experts_per_token: i32,
    pub hidden_dim: i32,
    pub intermediate_size: i32,
    pub num_expert_group: i32,
    pub max_num_tokens: i32,
    pub in_dtype: i32,
    pub router_logits_dtype: i32,
    pub hidden_dim_unpadded: i32,
    pub intermediate_size_per_partition_unpadded: i32,
    pub platform: i32,
    pub aiter_fmoe: i32,
    pub aiter_shared_expert: i32,
    pub defer_moe_finalize: i32,
    pub activation: *const ::std::os::raw::c_char,
    pub expert_placement_strategy: *const ::std::os::raw::c_char,
    pub tp_in_ep: i32,
}
#[repr(C)]
pub struct moxie_fused_moe {
    pub struct_size: u32,
    pub num_experts: i32,
    pub num_local_experts: i32,
    pub num_logical_experts: i32,
    pub intermediate_size_per_partition: i32,
    pub intermediate_size_per_partition_unpadded: i32,
    pub hidden_dim_unpadded: i32,
    pub is_act_and_mul: i32,
    pub w13_num_shards: i32,
    pub max_num_tokens: i32,
    pub router_logits_dtype: i32,
    pub use_deferred_moe_finalize: i32,
    pub placement: i32,
    pub placement_reason: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_fused_moe_check(
        parallel: *const moxie_parallel,
        args: *const moxie_fused_moe_args,
        out: *mut moxie_fused_moe,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_parallel_placement(
        parallel: *const moxie_parallel,
        args: *const moxie_fused_moe_args,
        placement: *mut i32,
        reason: *mut *const ::std::os::raw::c_char,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_parallel_layer {
    pub struct_size: u32,
    pub ranks: i32,
    pub rank: i32,
    pub ep_size: i32,
    pub ep_rank: i32,
    pub tp_size: i32,
    pub tp_rank: i32,
    pub ep_map: i32,
    pub slots: i32,
    pub token_layout: i32,
    pub token_parts: i32,
    pub token_part: i32,
    pub exchange: i32,
    pub vllm_accepts: i32,
    pub differs: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_parallel_plan(
        parallel: *const moxie_parallel,
        args: *const moxie_fused_moe_args,
        out: *mut moxie_parallel_layer,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_slot_map_first_slots(
        slots: i32,
        ranks: i32,
        first_slot: *mut i32,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_slot_map_default(
        kind: moxie_expert_map_kind,
        experts: i32,
        slots: i32,
        ranks: i32,
        expert_of: *mut i32,
        first_slot: *mut i32,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_slot_map_check(
        map: *const moxie_slot_map,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_slot_map_replicas(
        map: *const moxie_slot_map,
        width: i32,
        counts: *mut i32,
        slots: *mut i32,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_slot_map_serve(
        map: *const moxie_slot_map,
        source: i32,
        first_token: i64,
        ids: *const i32,
        tokens: i64,
        top_k: i64,
        slots: *mut i32,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_slot_map_loads(
        map: *const moxie_slot_map,
        loads: *const f64,
        rank_loads: *mut f64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_balancedness(rank_loads: *const f64, ranks: i32) -> f64;
}
extern "C" {
    pub fn moxie_slot_map_without(
        map: *const moxie_slot_map,
        dead: *const i32,
        count: i32,
        loads: *const f64,
        expert_of: *mut i32,
        first_slot: *mut i32,
        slots: *mut i32,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_eplb_config {
    pub struct_size: u32,
    pub layers: i32,
    pub experts: i32,
    pub slots: i32,
    pub ranks: i32,
    pub nodes: i32,
    pub groups: i32,
    pub distinct: i32,
}
extern "C" {
    pub fn moxie_eplb_balance(
        config: *const moxie_eplb_config,
        loads: *const f64,
        expert_of: *mut i32,
        first_slot: *mut i32,
        hierarchical: *mut i32,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_eplb_keep_slots(
        layers: i32,
        slots: i32,
        ranks: i32,
        first_slot: *const i32,
        old: *const i32,
        expert_of: *mut i32,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_eplb_moves {
    pub struct_size: u32,
    pub moves: i64,
    pub remote: i64,
    pub left: i64,
}
extern "C" {
    pub fn moxie_eplb_step(
        config: *const moxie_eplb_config,
        loads: *const f64,
        target: *const i32,
        max_moves: i64,
        expert_of: *mut i32,
        moves: *mut moxie_eplb_moves,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_load_window {
    _unused: [u8; 0],
}
extern "C" {
    pub fn moxie_load_window_create(
        layers: i32,
        experts: i32,
        steps: i32,
        out: *mut *mut moxie_load_window,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_load_window_destroy(window: *mut moxie_load_window);
}
extern "C" {
    pub fn moxie_load_window_add(
        window: *mut moxie_load_window,
        layer: i32,
        ids: *const i32,
        tokens: i64,
        top_k: i64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_load_window_end_step(
        window: *mut moxie_load_window,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_load_window_counts(
        window: *const moxie_load_window,
        counts: *mut i64,
        steps: *mut i32,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_tp_slice(
        config: *const moxie_layer_config,
        tp_size: i32,
        tp_rank: i32,
        w13: *mut i64,
        w2: *mut i64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_tp_slice_in_mode(
        config: *const moxie_layer_config,
        mode: moxie_mode,
        tp_size: i32,
        tp_rank: i32,
        w13: *mut i64,
        w2: *mut i64,
        columns: *mut i32,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_tp_slice_shared(
        config: *const moxie_layer_config,
        on_device: i32,
        tp_size: i32,
        tp_rank: i32,
        w13: *mut i64,
        w2: *mut i64,
        bytes: *mut u64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_prepare_layout {
    pub struct_size: u32,
    pub name: *const ::std::os::raw::c_char,
    pub summary: *const ::std::os::raw::c_char,
    pub caller: *const ::std::os::raw::c_char,
    pub accepts: [::std::os::raw::c_char; 256usize],
    pub surveys: i32,
    pub n_limits: i32,
    pub release: *const ::std::os::raw::c_char,
    pub also: *const ::std::os::raw::c_char,
    pub is_default: i32,
}
extern "C" {
    pub fn moxie_prepare_layout_at(i: i32, out: *mut moxie_prepare_layout)
        -> ::std::os::raw::c_int;
}
#[repr(C)]
pub struct moxie_prepare_limit {
    pub struct_size: u32,
    pub multiple: i32,
    pub extent: *const ::std::os::raw::c_char,
    pub why: *const ::std::os::raw::c_char,
    pub pads: i32,
}
extern "C" {
    pub fn moxie_prepare_limit_at(
        layout: i32,
        i: i32,
        out: *mut moxie_prepare_limit,
    ) -> ::std::os::raw::c_int;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_preparation {
    _unused: [u8; 0],
}
#[repr(C)]
pub struct moxie_preparation_options {
    pub struct_size: u32,
    pub layout: *const ::std::os::raw::c_char,
    pub pad: i32,
    pub tp_size: i32,
    pub tp_rank: i32,
    pub release: *const ::std::os::raw::c_char,
    pub symmetric: i32,
}
extern "C" {
    pub fn moxie_preparation_create(
        config: *const moxie_layer_config,
        options: *const moxie_preparation_options,
        example: *const moxie_expert,
        out: *mut *mut moxie_preparation,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_preparation_destroy(preparation: *mut moxie_preparation);
}
#[repr(C)]
pub struct moxie_preparation_info {
    pub struct_size: u32,
    pub layout: *const ::std::os::raw::c_char,
    pub hidden: i64,
    pub intermediate: i64,
    pub padded_hidden: i64,
    pub padded_intermediate: i64,
    pub first_intermediate: i64,
    pub whole_intermediate: i64,
    pub surveys: i32,
    pub n_tensors: i32,
    pub expert_bytes: u64,
    pub n_experts: i32,
    pub experts: *const i32,
    pub repeat: i32,
    pub release: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_preparation_get_info(
        preparation: *const moxie_preparation,
        out: *mut moxie_preparation_info,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_prepared_tensor {
    pub struct_size: u32,
    pub name: *const ::std::os::raw::c_char,
    pub dtype: moxie_dtype,
    pub rank: i32,
    pub shape: [i64; 5usize],
    pub bytes: u64,
}
extern "C" {
    pub fn moxie_preparation_tensor_at(
        preparation: *const moxie_preparation,
        i: i32,
        out: *mut moxie_prepared_tensor,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn moxie_preparation_survey(
        preparation: *mut moxie_preparation,
        expert: *const moxie_expert,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_preparation_facts {
    pub struct_size: u32,
    pub scale_max: [f32; 2usize],
    pub scale_min: [f32; 2usize],
    pub a13_max: f32,
    pub a2_max: f32,
}
extern "C" {
    pub fn moxie_preparation_get_facts(
        preparation: *const moxie_preparation,
        out: *mut moxie_preparation_facts,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_preparation_set_facts(
        preparation: *mut moxie_preparation,
        facts: *const moxie_preparation_facts,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_preparation_pack(
        preparation: *const moxie_preparation,
        expert: *const moxie_expert,
        tensors: *const *mut ::std::os::raw::c_void,
        executor: *const moxie_executor,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_preparation_unpack(
        preparation: *const moxie_preparation,
        tensors: *const *mut ::std::os::raw::c_void,
        expert: *mut moxie_expert,
        executor: *const moxie_executor,
        error: *mut moxie_error,
    ) -> moxie_status;
}
pub const MOXIE_SCALES_PLAIN: moxie_quantize_scales = 0;
pub const MOXIE_SCALES_MSE: moxie_quantize_scales = 1;
pub const MOXIE_SCALES_FOUR_OVER_SIX: moxie_quantize_scales = 2;
pub type moxie_quantize_scales = ::std::os::raw::c_uint;
pub const MOXIE_PROJECTION_GATE: moxie_projection = 0;
pub const MOXIE_PROJECTION_UP: moxie_projection = 1;
pub const MOXIE_PROJECTION_DOWN: moxie_projection = 2;
pub type moxie_projection = ::std::os::raw::c_uint;
#[repr(C)]
pub struct moxie_quantize_error {
    pub layer: i64,
    pub expert: i32,
    pub projection: i32,
    pub squares: f64,
    pub weight_squares: f64,
    pub worst: f64,
    pub worst_row: i64,
    pub worst_col: i64,
    pub exact: i32,
    pub reserved: [u32; 7usize],
}
#[repr(C)]
pub struct moxie_quantize_options {
    pub struct_size: u32,
    pub format: *const ::std::os::raw::c_char,
    pub scales: i32,
    pub allow_unread: i32,
    pub input_amax13: f32,
    pub input_amax2: f32,
    pub executor: *const moxie_executor,
    pub progress: ::std::option::Option<
        unsafe extern "C" fn(
            user: *mut ::std::os::raw::c_void,
            done_bytes: u64,
            total_bytes: u64,
        ) -> ::std::os::raw::c_int,
    >,
    pub progress_user: *mut ::std::os::raw::c_void,
    pub error: ::std::option::Option<
        unsafe extern "C" fn(user: *mut ::std::os::raw::c_void, error: *const moxie_quantize_error),
    >,
    pub error_user: *mut ::std::os::raw::c_void,
    pub allow_mixed: i32,
    pub imatrix: *const ::std::os::raw::c_char,
}
#[repr(C)]
pub struct moxie_quantize_summary {
    pub struct_size: u32,
    pub layers: i64,
    pub resumed_layers: i64,
    pub source_bytes: u64,
    pub expert_bytes: u64,
    pub copied_bytes: u64,
    pub other_quantized: i64,
    pub left_out: i64,
    pub tokens: i64,
    pub no_tokenizer: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_quantize(
        dir: *const ::std::os::raw::c_char,
        out: *const ::std::os::raw::c_char,
        options: *const moxie_quantize_options,
        summary: *mut moxie_quantize_summary,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_quantize_check(
        dir: *const ::std::os::raw::c_char,
        out: *const ::std::os::raw::c_char,
        options: *const moxie_quantize_options,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_plan_squares(
        plan: *mut moxie_plan,
        args: *const moxie_run_args,
        squares13: *mut f64,
        squares2: *mut f64,
        tokens: *mut i64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_block_encode(
        dtype: moxie_dtype,
        weights: *const f32,
        rows: i64,
        cols: i64,
        out: *mut ::std::os::raw::c_void,
        bytes: u64,
        grid: *mut moxie_grid,
        error: *mut moxie_error,
    ) -> moxie_status;
}
pub const MOXIE_SCHEME_SCALE_NONE: moxie_scheme_scale = 0;
pub const MOXIE_SCHEME_SCALE_TENSOR: moxie_scheme_scale = 1;
pub const MOXIE_SCHEME_SCALE_PRECISION: moxie_scheme_scale = 2;
pub type moxie_scheme_scale = ::std::os::raw::c_uint;
pub const MOXIE_SCHEME_SIDES_USUAL: moxie_scheme_sides = 0;
pub const MOXIE_SCHEME_SIDES_BOTH: moxie_scheme_sides = 1;
pub const MOXIE_SCHEME_SIDES_W13: moxie_scheme_sides = 2;
pub const MOXIE_SCHEME_SIDES_W2: moxie_scheme_sides = 3;
pub const MOXIE_SCHEME_SIDES_NONE: moxie_scheme_sides = 4;
pub type moxie_scheme_sides = ::std::os::raw::c_uint;
#[repr(C)]
pub struct moxie_scheme_desc {
    pub dtype: *const ::std::os::raw::c_char,
    pub dtype_is_string: i32,
    pub shape: [i32; 2usize],
    pub has_scale: i32,
    pub has_gscale: i32,
    pub has_zero: i32,
    pub has_bias: i32,
    pub reserved: [u32; 5usize],
}
#[repr(C)]
pub struct moxie_scheme_args {
    pub struct_size: u32,
    pub per_act_token: i32,
    pub per_out_ch: i32,
    pub block: [i32; 2usize],
    pub bits: i32,
    pub group_size: i32,
    pub quant_dtype: *const ::std::os::raw::c_char,
    pub weight_dtype: *const ::std::os::raw::c_char,
    pub has_zero: i32,
    pub has_bias: i32,
    pub has_a_scale: i32,
    pub has_gscale: i32,
    pub scale_format: i32,
    pub scale_linear: i32,
    pub scale_precision: i32,
    pub has_alphas: i32,
    pub has_w_scale: i32,
    pub scale_transposed: i32,
}
#[repr(C)]
pub struct moxie_scheme {
    pub struct_size: u32,
    pub constructor: *const ::std::os::raw::c_char,
    pub a1: moxie_scheme_desc,
    pub a2: moxie_scheme_desc,
    pub w1: moxie_scheme_desc,
    pub w2: moxie_scheme_desc,
    pub scale_swizzled: i32,
    pub a13: moxie_quant,
    pub act2: moxie_quant,
    pub w13: moxie_quant,
    pub weight2: moxie_quant,
    pub scale_transposed: i32,
    pub computable: i32,
}
extern "C" {
    pub fn moxie_scheme_constructor_at(i: i32) -> *const ::std::os::raw::c_char;
}
extern "C" {
    pub fn moxie_scheme_make(
        constructor: *const ::std::os::raw::c_char,
        args: *const moxie_scheme_args,
        out: *mut moxie_scheme,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_scheme_combine(
        for_w13: *const moxie_scheme,
        for_w2: *const moxie_scheme,
        out: *mut moxie_scheme,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_scheme_read_scale(
        scheme: *const moxie_scheme,
        tensor: *const ::std::os::raw::c_char,
        kind: moxie_scheme_scale,
        present: *mut ::std::os::raw::c_int,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_scheme_predicate(
        scheme: *const moxie_scheme,
        name: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn moxie_scheme_block_shape(
        scheme: *const moxie_scheme,
        block: *mut i32,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn moxie_scheme_config_name(
        scheme: *const moxie_scheme,
        dtype: moxie_dtype,
    ) -> *const ::std::os::raw::c_char;
}
extern "C" {
    pub fn moxie_scheme_ocp_name(
        scheme: *const moxie_scheme,
        unknown_pair: *mut ::std::os::raw::c_int,
    ) -> *const ::std::os::raw::c_char;
}
extern "C" {
    pub fn moxie_scheme_scale_shape(
        scheme: *const moxie_scheme,
        max_tokens: i64,
        hidden: i64,
        shape: *mut i64,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn moxie_scheme_batched_scale_shape(
        scheme: *const moxie_scheme,
        experts: i64,
        max_tokens: i64,
        hidden: i64,
        shape: *mut i64,
    ) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn moxie_quantize_activations(
        quant: *const moxie_quant,
        x: *const f32,
        rows: i64,
        cols: i64,
        static_scale: f32,
        codes: *mut u8,
        scales: *mut f32,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_expert_target {
    pub struct_size: u32,
    pub name: *const ::std::os::raw::c_char,
    pub summary: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_expert_target_at(i: i32, out: *mut moxie_expert_target) -> ::std::os::raw::c_int;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_expert_writer {
    _unused: [u8; 0],
}
#[repr(C)]
pub struct moxie_expert_extra {
    pub name: *const ::std::os::raw::c_char,
    pub data: *const ::std::os::raw::c_void,
    pub bytes: u64,
    pub reserved: [u32; 4usize],
}
#[repr(C)]
pub struct moxie_expert_writer_options {
    pub struct_size: u32,
    pub target: *const ::std::os::raw::c_char,
    pub mode: i32,
    pub layer: i64,
    pub executor: *const moxie_executor,
    pub extras: *const moxie_expert_extra,
    pub n_extras: i64,
}
extern "C" {
    pub fn moxie_expert_writer_open(
        path: *const ::std::os::raw::c_char,
        config: *const moxie_layer_config,
        weights: *const moxie_weights,
        options: *const moxie_expert_writer_options,
        out: *mut *mut moxie_expert_writer,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_expert_writer_put(
        writer: *mut moxie_expert_writer,
        expert: i64,
        source_hash: u64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_expert_writer_finish(
        writer: *mut moxie_expert_writer,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_expert_writer_abandon(writer: *mut moxie_expert_writer);
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_expert_file {
    _unused: [u8; 0],
}
pub const MOXIE_EXPERT_MAP: moxie_expert_access = 0;
pub const MOXIE_EXPERT_READ: moxie_expert_access = 1;
pub const MOXIE_EXPERT_DIRECT: moxie_expert_access = 2;
pub type moxie_expert_access = ::std::os::raw::c_uint;
#[repr(C)]
pub struct moxie_expert_file_options {
    pub struct_size: u32,
    pub access: i32,
    pub verify: i32,
    pub executor: *const moxie_executor,
    pub read_engine: *const ::std::os::raw::c_char,
    pub read_depth: i32,
    pub read_chunk_bytes: u64,
    pub mirror: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_expert_file_open(
        path: *const ::std::os::raw::c_char,
        options: *const moxie_expert_file_options,
        out: *mut *mut moxie_expert_file,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_expert_file_close(file: *mut moxie_expert_file);
}
#[repr(C)]
pub struct moxie_expert_file_info {
    pub struct_size: u32,
    pub version: i32,
    pub target: *const ::std::os::raw::c_char,
    pub layout: *const ::std::os::raw::c_char,
    pub shared_layout: *const ::std::os::raw::c_char,
    pub layer: i64,
    pub experts: i64,
    pub held: i64,
    pub record_bytes: u64,
    pub shared_bytes: u64,
    pub file_bytes: u64,
    pub generation: u64,
    pub source_xxh3: u64,
    pub direct: i32,
    pub unused_bytes: u64,
    pub read_engine: *const ::std::os::raw::c_char,
    pub read_why: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_expert_file_get_info(
        file: *const moxie_expert_file,
        out: *mut moxie_expert_file_info,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_expert_file_config(file: *const moxie_expert_file) -> *const moxie_layer_config;
}
#[repr(C)]
pub struct moxie_expert_record {
    pub struct_size: u32,
    pub data: *const ::std::os::raw::c_void,
    pub offset: u64,
    pub bytes: u64,
    pub checksum: u64,
    pub generation: u64,
    pub source_hash: u64,
}
extern "C" {
    pub fn moxie_expert_file_record(
        file: *const moxie_expert_file,
        expert: i64,
        out: *mut moxie_expert_record,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_expert_file_section(
        file: *const moxie_expert_file,
        name: *const ::std::os::raw::c_char,
        bytes: *mut u64,
    ) -> *const ::std::os::raw::c_void;
}
extern "C" {
    pub fn moxie_expert_file_verify(
        file: *const moxie_expert_file,
        executor: *const moxie_executor,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_expert_file_unpack(
        file: *const moxie_expert_file,
        expert: i64,
        views: *mut moxie_expert,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_expert_file_weights(
        file: *mut moxie_expert_file,
        executor: *const moxie_executor,
        out: *mut *const moxie_weights,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_layer_open_file(
        file: *const moxie_expert_file,
        config: *const moxie_layer_config,
        options: *const moxie_options,
        out: *mut *mut moxie_layer,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_expert_file_explain(
        file: *const moxie_expert_file,
        config: *const moxie_layer_config,
        options: *const moxie_options,
        out: *mut *mut moxie_plan,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_expert_file_replace(
        path: *const ::std::os::raw::c_char,
        expert: i64,
        weights: *const moxie_expert,
        source_hash: u64,
        executor: *const moxie_executor,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_store {
    _unused: [u8; 0],
}
#[repr(C)]
pub struct moxie_store_options {
    pub struct_size: u32,
    pub ram_bytes: u64,
    pub device_bytes: u64,
    pub policy: *const ::std::os::raw::c_char,
    pub max_inserts: i32,
    pub half_life: f64,
    pub warm_runs: i64,
    pub census: *const f64,
    pub census_experts: i64,
    pub pinned: *const i64,
    pub n_pinned: i64,
    pub read_buffers: i32,
    pub no_prefetch: i32,
    pub verify: i32,
    pub reader: *const ::std::os::raw::c_char,
    pub read_depth: i32,
    pub buffered: i32,
    pub read_chunk_bytes: u64,
    pub mirror: *const ::std::os::raw::c_char,
    pub device: *const ::std::os::raw::c_char,
    pub device_buffers: i32,
    pub compute_where_it_lies: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_store_open(
        paths: *const *const ::std::os::raw::c_char,
        n_paths: i64,
        options: *const moxie_store_options,
        out: *mut *mut moxie_store,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_store_close(store: *mut moxie_store);
}
#[repr(C)]
pub struct moxie_store_info {
    pub struct_size: u32,
    pub layers: i32,
    pub policy: *const ::std::os::raw::c_char,
    pub slots: i32,
    pub read_buffers: i32,
    pub record_bytes: u64,
    pub buffer_bytes: u64,
    pub shared_bytes: u64,
    pub file_bytes: u64,
    pub reader: *const ::std::os::raw::c_char,
    pub direct: i32,
    pub device_slots: i32,
    pub device_buffers: i32,
    pub device_record_bytes: u64,
    pub device_shared_bytes: u64,
    pub host_slots: i32,
    pub host_read_buffers: i32,
    pub host_record_bytes: u64,
}
extern "C" {
    pub fn moxie_store_get_info(
        store: *const moxie_store,
        out: *mut moxie_store_info,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_store_describe(
        paths: *const *const ::std::os::raw::c_char,
        n_paths: i64,
        options: *const moxie_store_options,
        out: *mut moxie_store_info,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_store_layer_number(store: *const moxie_store, i: i64) -> i64;
}
extern "C" {
    pub fn moxie_store_file(store: *const moxie_store, layer: i64) -> *const moxie_expert_file;
}
extern "C" {
    pub fn moxie_store_layer(
        store: *mut moxie_store,
        layer: i64,
        config: *const moxie_layer_config,
        options: *const moxie_options,
        out: *mut *mut moxie_layer,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_store_prefetch(
        store: *mut moxie_store,
        layer: i64,
        ids: *const i32,
        count: i64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_store_lookahead(
        plan: *const moxie_plan,
        args: *const moxie_run_args,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_store_counters {
    pub struct_size: u32,
    pub runs: i64,
    pub uses: i64,
    pub hits: i64,
    pub inserts: i64,
    pub reads: i64,
    pub read_bytes: u64,
    pub ram_bytes: u64,
    pub waits: i64,
    pub wait_seconds: f64,
    pub prefetches: i64,
    pub prefetches_used: i64,
    pub prefetches_wasted: i64,
    pub failed_reads: i64,
    pub device_uses: i64,
    pub device_hits: i64,
    pub device_inserts: i64,
    pub copies: i64,
    pub copied_bytes: u64,
    pub id_waits: i64,
    pub id_wait_seconds: f64,
    pub copy_waits: i64,
    pub copy_wait_seconds: f64,
    pub host_uses: i64,
    pub host_seconds: f64,
}
extern "C" {
    pub fn moxie_store_get_counters(
        store: *mut moxie_store,
        layer: i64,
        last_run: i32,
        out: *mut moxie_store_counters,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_read_engine {
    pub struct_size: u32,
    pub usable: i32,
    pub name: *const ::std::os::raw::c_char,
    pub about: *const ::std::os::raw::c_char,
    pub missing: [::std::os::raw::c_char; 512usize],
}
extern "C" {
    pub fn moxie_read_engine_at(i: i32, out: *mut moxie_read_engine) -> ::std::os::raw::c_int;
}
#[repr(C)]
pub struct moxie_disk_options {
    pub struct_size: u32,
    pub engine: *const ::std::os::raw::c_char,
    pub depth: i32,
    pub chunk_bytes: u64,
    pub record_bytes: u64,
    pub milliseconds: i32,
    pub mirrors: *const *const ::std::os::raw::c_char,
}
#[repr(C)]
pub struct moxie_disk_rate {
    pub struct_size: u32,
    pub gb_s: f64,
    pub bytes: u64,
    pub records: u64,
    pub seconds: f64,
    pub engine: *const ::std::os::raw::c_char,
    pub depth: i32,
    pub threads: i32,
    pub drives: i32,
    pub direct: i32,
    pub chunk_bytes: u64,
    pub why: [::std::os::raw::c_char; 256usize],
}
extern "C" {
    pub fn moxie_disk_measure(
        paths: *const *const ::std::os::raw::c_char,
        n: i32,
        options: *const moxie_disk_options,
        out: *mut moxie_disk_rate,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_topology {
    pub struct_size: u32,
    pub processors: i32,
    pub cores: i32,
    pub shared_cores: i32,
    pub nodes: i32,
    pub known: i32,
    pub found_by: *const ::std::os::raw::c_char,
}
extern "C" {
    pub fn moxie_topology_info(out: *mut moxie_topology, error: *mut moxie_error) -> moxie_status;
}
extern "C" {
    pub fn moxie_topology_node(index: i32) -> i32;
}
extern "C" {
    pub fn moxie_executor_create_on(
        threads: i32,
        numa: *const ::std::os::raw::c_char,
        out: *mut *mut moxie_executor,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_trace {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_trace_writer {
    _unused: [u8; 0],
}
#[repr(C)]
pub struct moxie_trace_info {
    pub struct_size: u32,
    pub layers: i32,
    pub experts: i32,
    pub top_k: i32,
    pub zero_experts: i32,
    pub has_weights: i32,
    pub has_requests: i32,
    pub fingerprint: u64,
    pub model: *const ::std::os::raw::c_char,
    pub layer_numbers: *const i32,
    pub steps: i64,
    pub tokens: i64,
}
pub const MOXIE_TRACE_UNKNOWN: moxie_trace_phase = 0;
pub const MOXIE_TRACE_PREFILL: moxie_trace_phase = 1;
pub const MOXIE_TRACE_DECODE: moxie_trace_phase = 2;
pub const MOXIE_TRACE_MIXED: moxie_trace_phase = 3;
pub type moxie_trace_phase = ::std::os::raw::c_uint;
#[repr(C)]
pub struct moxie_trace_step {
    pub struct_size: u32,
    pub phase: i32,
    pub tokens: i64,
    pub token_stride: i64,
    pub layer_stride: i64,
    pub ids: *const i32,
    pub weights: *const f32,
    pub requests: *const u64,
}
extern "C" {
    pub fn moxie_trace_fingerprint(data: *const ::std::os::raw::c_void, bytes: u64) -> u64;
}
extern "C" {
    pub fn moxie_trace_writer_create(
        path: *const ::std::os::raw::c_char,
        info: *const moxie_trace_info,
        out: *mut *mut moxie_trace_writer,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_trace_writer_add(
        writer: *mut moxie_trace_writer,
        step: *const moxie_trace_step,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_trace_writer_finish(
        writer: *mut moxie_trace_writer,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_trace_writer_destroy(writer: *mut moxie_trace_writer);
}
extern "C" {
    pub fn moxie_trace_is_trace(path: *const ::std::os::raw::c_char) -> ::std::os::raw::c_int;
}
extern "C" {
    pub fn moxie_trace_open(
        path: *const ::std::os::raw::c_char,
        out: *mut *mut moxie_trace,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_trace_close(trace: *mut moxie_trace);
}
extern "C" {
    pub fn moxie_trace_get_info(
        trace: *const moxie_trace,
        info: *mut moxie_trace_info,
        error: *mut moxie_error,
    ) -> moxie_status;
}
extern "C" {
    pub fn moxie_trace_read(
        trace: *mut moxie_trace,
        index: i64,
        step: *mut moxie_trace_step,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
pub struct moxie_cache_config {
    pub struct_size: u32,
    pub slots: i32,
    pub policy: *const ::std::os::raw::c_char,
    pub max_inserts: i32,
    pub warm_steps: i32,
    pub half_life: f64,
    pub census: *const f64,
    pub with_best: i32,
}
#[repr(C)]
pub struct moxie_cache_hits {
    pub struct_size: u32,
    pub slots: i32,
    pub steps: i64,
    pub tokens: i64,
    pub uses: i64,
    pub hits: i64,
    pub inserts: i64,
    pub decode_uses: i64,
    pub decode_hits: i64,
    pub best_hits: i64,
}
extern "C" {
    pub fn moxie_cache_policy_at(
        i: i32,
        about: *mut *const ::std::os::raw::c_char,
    ) -> *const ::std::os::raw::c_char;
}
extern "C" {
    pub fn moxie_trace_simulate(
        trace: *mut moxie_trace,
        config: *const moxie_cache_config,
        hits: *mut moxie_cache_hits,
        by_layer: *mut i64,
        error: *mut moxie_error,
    ) -> moxie_status;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_comm {
    pub _address: u8,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moxie_adapters {
    pub _address: u8,
}
sized_structs! {
    moxie_options,
    moxie_plan_phase,
    moxie_run_args,
    moxie_weights_difference,
    moxie_machine,
    moxie_kernel_info,
    moxie_limits,
    moxie_lora,
    moxie_model_options,
    moxie_model_layer_info,
    moxie_model_info,
    moxie_preset_info,
    moxie_family_info,
    moxie_checkpoint_format_info,
    moxie_synth_options,
    moxie_transport,
    moxie_transport_info,
    moxie_comm_options,
    moxie_nccl_options,
    moxie_losses,
    moxie_mover_options,
    moxie_mover_report,
    moxie_slot_map,
    moxie_layer_config,
    moxie_weights,
    moxie_cuda_info,
    moxie_cuda_device,
    moxie_cuda_launch,
    moxie_cuda_fill,
    moxie_lint_rule,
    moxie_lint_options,
    moxie_lint_info,
    moxie_finding,
    moxie_parallel_args,
    moxie_parallel,
    moxie_all2all_backend,
    moxie_fused_moe_args,
    moxie_fused_moe,
    moxie_parallel_layer,
    moxie_eplb_config,
    moxie_eplb_moves,
    moxie_prepare_layout,
    moxie_prepare_limit,
    moxie_preparation_options,
    moxie_preparation_info,
    moxie_prepared_tensor,
    moxie_preparation_facts,
    moxie_quantize_options,
    moxie_quantize_summary,
    moxie_scheme_args,
    moxie_scheme,
    moxie_expert_target,
    moxie_expert_writer_options,
    moxie_expert_file_options,
    moxie_expert_file_info,
    moxie_expert_record,
    moxie_store_options,
    moxie_store_info,
    moxie_store_counters,
    moxie_read_engine,
    moxie_disk_options,
    moxie_disk_rate,
    moxie_topology,
    moxie_trace_info,
    moxie_trace_step,
    moxie_cache_config,
    moxie_cache_hits,
    moxie_allocator,
}
