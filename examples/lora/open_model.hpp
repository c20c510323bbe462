#pragma once

#include <optional>
#include <string_view>
#include <type_traits>

#include "lora/core/log.hpp"
#include "lora/inputs/device.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/instantiate.hpp"
#include "lora/model/decoder/adapter.hpp"
#include "lora/model/decoder/finite.hpp"
#include "lora/run/environment.hpp"
#include "lora/trainer.hpp"

/// A model with the adapter from the settings, if any, for evaluation or generation.
template <class T, lora::AnyDevice D>
lora::model::Decoder<D, T> open_decoder(D& dev, const lora::model::Source& source,
                                        const lora::settings::Config& config) {
  lora::model::Decoder<D, T> decoder(dev, source);
  if (!config.adapter_name_or_path.empty()) {
    const auto files = lora::model::open_adapter(lora::inputs::find_adapter(config.adapter_name_or_path));
    lora::model::check_adapter(files, source.config());
    decoder.attach(dev, files.config);
    lora::model::load_adapter(dev, decoder, files);
  }
  return decoder;
}

/// Calls f(decoder), which computes in the precision from the settings and the device, and logs it.
template <lora::AnyDevice D, class F>
void with_decoder(D& dev, const lora::model::Source& source, const lora::settings::Config& config, F&& f) {
  const lora::Precision precision = lora::inputs::precision_of(dev, config, source);
  lora::log::info(lora::run::describe_build(), "; ", dev.describe(), "; products by ", describe_products(dev),
                  "; computing in ", name_of(precision));
  try {
    lora::inputs::with_precision(precision, [&]<class T>(std::type_identity<T>) {
      auto decoder = open_decoder<T>(dev, source, config);
      f(decoder);
    });
  } catch (const lora::NonFiniteError& error) {
    std::optional<lora::model::AdapterFiles> adapter;
    if (!config.adapter_name_or_path.empty())
      adapter.emplace(lora::model::open_adapter(lora::inputs::find_adapter(config.adapter_name_or_path)));
    const auto extreme = lora::model::extreme_number(dev, source, adapter ? &*adapter : nullptr);
    lora::fail<lora::FormatError>(std::string_view(error.what()), ": ", lora::model::describe(extreme));
  }
}
