#pragma once

#include "lora/model/generate.hpp"
#include "lora/model/merge.hpp"
#include "lora/trainer.hpp"

/// Declares the common instantiations, for programs that compile them once:
///   every source      #include <lora/instantiate.hpp>
///   one source        #define LORA_INSTANTIATE before it
#ifdef LORA_INSTANTIATE
#  define LORA_COMPILED_ONCE template
#else
#  define LORA_COMPILED_ONCE extern template
#endif

#define LORA_COMPILED_ONCE_FOR(T)                                                                                    \
  LORA_COMPILED_ONCE class lora::model::Decoder<lora::cpu::Device, T>;                                               \
  LORA_COMPILED_ONCE void lora::model::init_adapter(lora::cpu::Device&, lora::model::Decoder<lora::cpu::Device, T>&, \
                                                    std::uint64_t);                                                  \
  LORA_COMPILED_ONCE void lora::model::load_adapter(lora::cpu::Device&, lora::model::Decoder<lora::cpu::Device, T>&, \
                                                    const lora::model::AdapterFiles&);                               \
  LORA_COMPILED_ONCE void lora::model::save_adapter(lora::cpu::Device&, lora::model::Decoder<lora::cpu::Device, T>&, \
                                                    const std::filesystem::path&);                                   \
  LORA_COMPILED_ONCE std::vector<std::vector<std::int32_t>> lora::model::generate(                                   \
      lora::cpu::Device&, lora::model::Decoder<lora::cpu::Device, T>&, std::span<const std::vector<std::int32_t>>,   \
      const lora::model::GenerateOptions&, std::size_t, const lora::model::OnToken&);                                \
  LORA_COMPILED_ONCE class lora::train::TrainingRun<lora::cpu::Device, T>;

LORA_COMPILED_ONCE_FOR(float)
LORA_COMPILED_ONCE_FOR(lora::bf16)
LORA_COMPILED_ONCE_FOR(lora::f16)
LORA_COMPILED_ONCE void lora::model::save_merged(lora::cpu::Device&, lora::model::Decoder<lora::cpu::Device, float>&,
                                                 const lora::model::Source&, const std::filesystem::path&,
                                                 std::optional<lora::DType>, lora::Index);
LORA_COMPILED_ONCE class lora::BasicTrainer<>;

#undef LORA_COMPILED_ONCE_FOR
#undef LORA_COMPILED_ONCE
