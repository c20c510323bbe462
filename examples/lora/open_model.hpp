#pragma once

#include "lora/core/log.hpp"
#include "lora/instantiate.hpp"
#include "lora/model/adapter.hpp"
#include "lora/train/environment.hpp"
#include "lora/train/model_files.hpp"
#include "lora/trainer.hpp"

inline int threads_of(const lora::train::Config& config) { return static_cast<int>(config.threads.value_or(0)); }

/// A model with the adapter that the settings name, if any, ready to evaluate or generate.
template <class T>
lora::model::Decoder<lora::cpu::Device, T> open_decoder(lora::cpu::Device& dev, const lora::model::Source& source,
                                                        const lora::train::Config& config) {
  lora::model::Decoder<lora::cpu::Device, T> decoder(dev, source);
  if (!config.adapter_name_or_path.empty()) {
    const auto files = lora::model::open_adapter(lora::train::find_model(config.adapter_name_or_path));
    decoder.attach(dev, files.config);
    lora::model::load_adapter(dev, decoder, files);
  }
  return decoder;
}

/// Calls f(decoder) with the arithmetic that the settings and the machine ask for, and says which it is.
template <class F>
void with_decoder(lora::cpu::Device& dev, const lora::model::Source& source, const lora::train::Config& config, F&& f) {
  const bool narrow = lora::computes_in_bfloat16(dev, config, source);
  lora::log::info(lora::train::describe_build(), "; ", dev.describe(), "; products by ",
                  lora::cpu::describe_products(dev), "; computing in ", narrow ? "bfloat16" : "float32");
  if (narrow) {
    auto decoder = open_decoder<lora::bf16>(dev, source, config);
    f(decoder);
  } else {
    auto decoder = open_decoder<float>(dev, source, config);
    f(decoder);
  }
}
