#pragma once

#include <algorithm>
#include <string>

#include "lora/data/batches/encode.hpp"
#include "lora/data/records/dataset.hpp"
#include "lora/inputs/device.hpp"
#include "lora/inputs/records.hpp"
#include "lora/model/weights/weights.hpp"
#include "standard_output.hpp"

/// Prints the first records of the data set as used in training, with labeled tokens marked.
inline void print_preview(const lora::settings::Config& config, const lora::model::Source& source) {
  using namespace lora;
  auto dataset = inputs::open_dataset(config, config.dataset, config.max_samples, {}, inputs::class_field(config));
  const auto text = inputs::text_files(config, source.path(), dataset.kinds());
  auto records = inputs::encoded_records(config, std::move(dataset), text, source.config().vocab_size, true);
  records.cut_texts(cpu::Threads(static_cast<int>(config.threads.value_or(0))));
  for (Index i = 0; i < std::min(config.preview, records.size()); ++i) {
    const data::Example example = records[i];
    const std::string page =
        concat("--- ", records.where(example.record), ": ", example.tokens.size(), " tokens, ", example.labeled(),
               " labeled", example.truncated ? ", cut" : "", "\n", data::preview(example, text.tokenizer.get()), "\n");
    print_result(page);
  }
  inputs::warn_of_unused_fields(records.dataset());
}
