#pragma once

#include "lora/basic_trainer.hpp"
#include "lora/model/generate.hpp"
#include "lora/model/merge.hpp"

/// Declares the common instantiations `extern template`, so that a program compiles them once. The CMake targets
/// lora::compiled and lora::compiled_ascend do that, in sources of their own (cmake/compiled). A program without CMake
/// defines one of these before this include, in one source each, and includes it in every other source:
///   LORA_INSTANTIATE           all that CPUs need, or its parts
///   LORA_INSTANTIATE_TRAINER, LORA_INSTANTIATE_FLOAT32, LORA_INSTANTIATE_BFLOAT16, LORA_INSTANTIATE_FLOAT16
///   LORA_INSTANTIATE_ASCEND    all that NPUs need (with LORA_WITH_ASCEND), or its parts
///   LORA_INSTANTIATE_ASCEND_FLOAT32, LORA_INSTANTIATE_ASCEND_BFLOAT16, LORA_INSTANTIATE_ASCEND_FLOAT16
#define LORA_COMPILED_ONCE_FOR(ONCE, D, T)                                                                \
  ONCE class lora::model::Decoder<D, T>;                                                                  \
  ONCE void lora::model::init_adapter(D&, lora::model::Decoder<D, T>&, std::uint64_t);                    \
  ONCE void lora::model::load_adapter(D&, lora::model::Decoder<D, T>&, const lora::model::AdapterFiles&); \
  ONCE void lora::model::save_adapter(D&, lora::model::Decoder<D, T>&, const std::filesystem::path&);     \
  ONCE std::vector<std::vector<std::int32_t>> lora::model::generate(                                      \
      D&, lora::model::Decoder<D, T>&, std::span<const std::vector<std::int32_t>>,                        \
      const lora::model::GenerateOptions&, std::size_t, const lora::model::OnToken&);                     \
  ONCE class lora::train::TrainingRun<D, T>;

#if defined(LORA_INSTANTIATE) || defined(LORA_INSTANTIATE_FLOAT32)
LORA_COMPILED_ONCE_FOR(template, lora::cpu::Device, float)
#else
LORA_COMPILED_ONCE_FOR(extern template, lora::cpu::Device, float)
#endif
#if defined(LORA_INSTANTIATE) || defined(LORA_INSTANTIATE_BFLOAT16)
LORA_COMPILED_ONCE_FOR(template, lora::cpu::Device, lora::bf16)
#else
LORA_COMPILED_ONCE_FOR(extern template, lora::cpu::Device, lora::bf16)
#endif
#if defined(LORA_INSTANTIATE) || defined(LORA_INSTANTIATE_FLOAT16)
LORA_COMPILED_ONCE_FOR(template, lora::cpu::Device, lora::f16)
#else
LORA_COMPILED_ONCE_FOR(extern template, lora::cpu::Device, lora::f16)
#endif

#if defined(LORA_INSTANTIATE) || defined(LORA_INSTANTIATE_TRAINER)
#  define LORA_COMPILED_ONCE template
#else
#  define LORA_COMPILED_ONCE extern template
#endif
LORA_COMPILED_ONCE void lora::model::save_merged(lora::cpu::Device&, lora::model::Decoder<lora::cpu::Device, float>&,
                                                 const lora::model::Source&, const std::filesystem::path&,
                                                 std::optional<lora::DType>, lora::Index);
LORA_COMPILED_ONCE class lora::BasicTrainer<>;
#undef LORA_COMPILED_ONCE

#ifdef LORA_WITH_ASCEND
#  if defined(LORA_INSTANTIATE_ASCEND) || defined(LORA_INSTANTIATE_ASCEND_FLOAT32)
LORA_COMPILED_ONCE_FOR(template, lora::ascend::Device, float)
#  else
LORA_COMPILED_ONCE_FOR(extern template, lora::ascend::Device, float)
#  endif
#  if defined(LORA_INSTANTIATE_ASCEND) || defined(LORA_INSTANTIATE_ASCEND_BFLOAT16)
LORA_COMPILED_ONCE_FOR(template, lora::ascend::Device, lora::bf16)
#  else
LORA_COMPILED_ONCE_FOR(extern template, lora::ascend::Device, lora::bf16)
#  endif
#  if defined(LORA_INSTANTIATE_ASCEND) || defined(LORA_INSTANTIATE_ASCEND_FLOAT16)
LORA_COMPILED_ONCE_FOR(template, lora::ascend::Device, lora::f16)
#  else
LORA_COMPILED_ONCE_FOR(extern template, lora::ascend::Device, lora::f16)
#  endif
#endif

#undef LORA_COMPILED_ONCE_FOR
