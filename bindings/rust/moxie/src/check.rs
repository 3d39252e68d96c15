// SPDX-License-Identifier: Apache-2.0
//! A run beside the oracle.
use crate::{sys, text};
use std::ptr::NonNull;

/// One stage of a checked run.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// "router", "topk", "gemm13", ...
    pub name: String,
    /// Elements compared.
    pub elements: u64,
    /// Of these, outside the bound.
    pub beyond: u64,
    /// The largest |got - want| / bound: up to 1 passes.
    pub worst_ratio: f64,
}

/// Every stage of a checked run, in the order they ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The stages.
    pub stages: Vec<Stage>,
    /// The largest `worst_ratio` of all.
    pub worst_ratio: f64,
}

impl Report {
    /// Whether every element is within its bound.
    pub fn is_right(&self) -> bool {
        self.worst_ratio <= 1.0
    }

    /// Copies a report of the library, and frees that.
    pub(crate) fn take(raw: NonNull<sys::moxie_check_report>) -> Report {
        let raw = raw.as_ptr();
        let stage = |i| {
            // SAFETY: within the count; stages live as long as the report.
            let stage = unsafe { &*sys::moxie_check_report_stage_at(raw, i) };
            Stage {
                name: text::owned(stage.stage),
                elements: stage.elements as u64,
                beyond: stage.beyond as u64,
                worst_ratio: stage.worst_ratio,
            }
        };
        // SAFETY: the report is ours until it is destroyed, which is last.
        unsafe {
            let stages = (0..sys::moxie_check_report_stage_count(raw)).map(stage).collect();
            let worst_ratio = sys::moxie_check_report_worst(raw);
            sys::moxie_check_report_destroy(raw);
            Report { stages, worst_ratio }
        }
    }
}
