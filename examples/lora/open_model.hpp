#pragma once

#include <optional>
#include <string_view>

#include "lora/core/log.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/instantiate.hpp"
#include "lora/model/adapter.hpp"
#include "lora/model/finite.hpp"
#include "lora/run/environment.hpp"
#include "lora/trainer.hpp"

inline int threads_of(const lora::settings::Config& config) { return static_cast<int>(config.threads.value_or(0)); }

/// A model with the adapter from the settings, if any, for evaluation or generation.
template <class T>
lora::model::Decoder<lora::cpu::Device, T> open_decoder(lora::cpu::Device& dev, const lora::model::Source& source,
                                                        const lora::settings::Config& config) {
  lora::model::Decoder<lora::cpu::Device, T> decoder(dev, source);
  if (!config.adapter_name_or_path.empty()) {
    const auto files = lora::model::open_adapter(lora::inputs::find_adapter(config.adapter_name_or_path));
    lora::model::check_adapter(files, source.config());
    decoder.attach(dev, files.config);
    lora::model::load_adapter(dev, decoder, files);
  }
  return decoder;
}

/// Calls f(decoder) with the dtype from the settings and the machine, and logs it.
template <class F>
void with_decoder(lora::cpu::Device& dev, const lora::model::Source& source, const lora::settings::Config& config,
                  F&& f) {
  const bool narrow = lora::computes_in_bfloat16(dev, config, source);
  lora::log::info(lora::run::describe_build(), "; ", dev.describe(), "; products by ",
                  lora::cpu::describe_products(dev), "; computing in ", narrow ? "bfloat16" : "float32");
  try {
    if (narrow) {
      auto decoder = open_decoder<lora::bf16>(dev, source, config);
      f(decoder);
    } else {
      auto decoder = open_decoder<float>(dev, source, config);
      f(decoder);
    }
  } catch (const lora::NonFiniteError& error) {
    std::optional<lora::model::AdapterFiles> adapter;
    if (!config.adapter_name_or_path.empty())
      adapter.emplace(lora::model::open_adapter(lora::inputs::find_adapter(config.adapter_name_or_path)));
    const auto extreme = lora::model::extreme_number(dev, source, adapter ? &*adapter : nullptr);
    lora::fail<lora::FormatError>(std::string_view(error.what()), ": ", lora::model::describe(extreme));
  }
}
