#pragma once

#include "lora/basic_trainer.hpp"
#include "lora/model/generate.hpp"
#include "lora/model/merge.hpp"

/// Declares the common instantiations `extern template`, so that a program compiles them once. The CMake targets
/// lora::compiled and lora::compiled_ascend do that, in sources of their own (cmake/compiled). Without CMake:
///   every source      #include <lora/instantiate.hpp>
///   one source        #define LORA_INSTANTIATE before it
///   another           #define LORA_INSTANTIATE_ASCEND before it, in programs that train on NPUs (LORA_WITH_ASCEND)
#define LORA_COMPILED_ONCE_FOR(ONCE, D, T)                                                                \
  ONCE class lora::model::Decoder<D, T>;                                                                  \
  ONCE void lora::model::init_adapter(D&, lora::model::Decoder<D, T>&, std::uint64_t);                    \
  ONCE void lora::model::load_adapter(D&, lora::model::Decoder<D, T>&, const lora::model::AdapterFiles&); \
  ONCE void lora::model::save_adapter(D&, lora::model::Decoder<D, T>&, const std::filesystem::path&);     \
  ONCE std::vector<std::vector<std::int32_t>> lora::model::generate(                                      \
      D&, lora::model::Decoder<D, T>&, std::span<const std::vector<std::int32_t>>,                        \
      const lora::model::GenerateOptions&, std::size_t, const lora::model::OnToken&);                     \
  ONCE class lora::train::TrainingRun<D, T>;
#define LORA_COMPILED_ONCE_ON(ONCE, D)        \
  LORA_COMPILED_ONCE_FOR(ONCE, D, float)      \
  LORA_COMPILED_ONCE_FOR(ONCE, D, lora::bf16) \
  LORA_COMPILED_ONCE_FOR(ONCE, D, lora::f16)

#ifdef LORA_INSTANTIATE
#  define LORA_COMPILED_ONCE template
#else
#  define LORA_COMPILED_ONCE extern template
#endif
LORA_COMPILED_ONCE_ON(LORA_COMPILED_ONCE, lora::cpu::Device)
LORA_COMPILED_ONCE void lora::model::save_merged(lora::cpu::Device&, lora::model::Decoder<lora::cpu::Device, float>&,
                                                 const lora::model::Source&, const std::filesystem::path&,
                                                 std::optional<lora::DType>, lora::Index);
#undef LORA_COMPILED_ONCE

#ifdef LORA_WITH_ASCEND
#  ifdef LORA_INSTANTIATE_ASCEND
LORA_COMPILED_ONCE_ON(template, lora::ascend::Device)
#  else
LORA_COMPILED_ONCE_ON(extern template, lora::ascend::Device)
#  endif
#endif

// Where NPUs are known, a Trainer is compiled beside them, since it chooses the device.
#if defined(LORA_INSTANTIATE_ASCEND) || (defined(LORA_INSTANTIATE) && !defined(LORA_WITH_ASCEND))
template class lora::BasicTrainer<>;
#else
extern template class lora::BasicTrainer<>;
#endif

#undef LORA_COMPILED_ONCE_ON
#undef LORA_COMPILED_ONCE_FOR
