#pragma once

#include "lora/cpu/kernels.hpp"
#include "lora/model/decoder.hpp"

/// Declares the common instantiations, for programs that compile them once:
///   every source      #include <lora/instantiate.hpp>
///   one source        #define LORA_INSTANTIATE before it
#ifdef LORA_INSTANTIATE
template class lora::model::Decoder<lora::cpu::Device, float>;
template class lora::model::Decoder<lora::cpu::Device, lora::bf16>;
#else
extern template class lora::model::Decoder<lora::cpu::Device, float>;
extern template class lora::model::Decoder<lora::cpu::Device, lora::bf16>;
#endif
