#pragma once

#include <complex>

#include "lora/instantiate.hpp"
#include "support/proof_kernels.hpp"

/// A model that trains on the proof device, compiled once for all tests (tests/support/compiled): ONCE as in
/// lora/instantiate.hpp.
#define LORA_PROOF_RUNS(ONCE, T) LORA_COMPILED_ONCE(ONCE, lora::proof::Device, T)

#ifdef LORA_COMPILED
LORA_PROOF_RUNS(extern template, float)
LORA_PROOF_RUNS(extern template, lora::bf16)
#endif
