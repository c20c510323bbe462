#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "lora/basic_trainer.hpp"
#include "lora/decode/conversation.hpp"
#include "lora/decode/generate.hpp"
#include "lora/model/export/merge.hpp"
#include "lora/train/step.hpp"

/// Declares the common instantiations `extern template`, so that a program compiles them once. The CMake targets
/// lora::compiled and lora::compiled_ascend do that, in sources of their own (cmake/compiled). Without CMake, one
/// source or several have, after this header,
///   LORA_INSTANTIATE(lora::cpu::Device, float)   and the same for lora::bf16 and lora::f16
///   LORA_INSTANTIATE_MERGE
///   LORA_INSTANTIATE_TRAINER
/// With LORA_WITH_ASCEND also the first three for lora::ascend::Device.
#define LORA_COMPILED_ONCE(ONCE, D, T)                                                                              \
  ONCE class lora::model::Decoder<D, T>;                                                                            \
  ONCE void lora::model::init_adapter(D&, lora::model::Decoder<D, T>&, std::uint64_t);                              \
  ONCE void lora::model::load_adapter(D&, lora::model::Decoder<D, T>&, const lora::model::AdapterFiles&);           \
  ONCE void lora::model::save_adapter(D&, lora::model::Decoder<D, T>&, const lora::io::Path&);                      \
  ONCE std::vector<std::vector<std::int32_t>> lora::decode::generate(                                               \
      D&, lora::model::Decoder<D, T>&, std::span<const std::vector<std::int32_t>>,                                  \
      const lora::decode::GenerateOptions&, std::size_t, const lora::decode::OnToken&, const lora::decode::OnEnd&); \
  ONCE class lora::decode::Conversation<D, T>;                                                                      \
  ONCE class lora::train::Stepper<D, T>;                                                                            \
  ONCE class lora::train::TrainingRun<D, T>;
#define LORA_COMPILED_ONCE_MERGE(ONCE)                                                                              \
  ONCE void lora::model::save_merged(lora::cpu::Device&, lora::model::Decoder<lora::cpu::Device, float>&,           \
                                     const lora::model::Source&, const lora::io::Path&, std::optional<lora::DType>, \
                                     lora::Index);
#define LORA_INSTANTIATE(D, T) LORA_COMPILED_ONCE(template, D, T)
#define LORA_INSTANTIATE_MERGE LORA_COMPILED_ONCE_MERGE(template)
#define LORA_INSTANTIATE_TRAINER template class lora::BasicTrainer<lora::KnownNpu>;

LORA_COMPILED_ONCE(extern template, lora::cpu::Device, float)
LORA_COMPILED_ONCE(extern template, lora::cpu::Device, lora::bf16)
LORA_COMPILED_ONCE(extern template, lora::cpu::Device, lora::f16)
LORA_COMPILED_ONCE_MERGE(extern template)
#ifdef LORA_WITH_ASCEND
LORA_COMPILED_ONCE(extern template, lora::ascend::Device, float)
LORA_COMPILED_ONCE(extern template, lora::ascend::Device, lora::bf16)
LORA_COMPILED_ONCE(extern template, lora::ascend::Device, lora::f16)
#endif
extern template class lora::BasicTrainer<lora::KnownNpu>;
