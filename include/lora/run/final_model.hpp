#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/core/precision.hpp"
#include "lora/io/files/atomic_folder.hpp"
#include "lora/model/export/merge.hpp"
#include "lora/model/export/rotary_note.hpp"
#include "lora/model/weights/trained_weights.hpp"
#include "lora/run/checkpoint.hpp"
#include "lora/run/folder.hpp"
#include "lora/run/metrics.hpp"
#include "lora/run/talk.hpp"
#include "lora/settings/config.hpp"
#include "lora/settings/stage_lists.hpp"

namespace lora::run {

namespace detail {

/// A text that may hold bars within a table.
std::string cell(const std::string& text);

}  // namespace detail

/// The README.md of what a run has trained: what it is and how to use it. `adapter`: null for a model. `run`: until
/// now; `weights`: until the step whose weights these are.
std::string model_card(const settings::Config& config, const model::Source& source, const model::AdapterConfig* adapter,
                       const RunMetrics& run, const RunMetrics& weights, const Talk& talk);

/// Whether an adapter folder needs its own config.json: the base has none (GGUF), or ran with other rotary settings.
bool brings_config(const model::Source& source);

/// Writes a model folder that transformers loads, its weights in the type that the run computes in.
template <AnyDevice D, class T>
void write_model_folder(D& dev, model::Decoder<D, T>& decoder, const model::Source& source, const Talk& talk,
                        const std::string& card, Index max_shard_bytes, const io::Path& folder) {
  model::save_merged(dev, decoder, source, folder, stored_dtype(precision_of<T>()), max_shard_bytes);
  write_tokenizer(talk, folder);
  model::write_stop_ids(source, talk.stop_ids, folder);
  io::write_file(folder / "README.md", std::string_view(card));
}

/// Writes the part of a checkpoint that says what was trained of a model, in float32: where all of it was, the model as
/// a folder that transformers loads.
template <AnyDevice D, class T>
void write_trained_folder(D& dev, model::Decoder<D, T>& decoder, const model::Source& source, const Talk& talk,
                          const std::string& card, const io::Path& folder) {
  if (model::trains_whole(decoder)) {
    model::save_trained(dev, decoder, folder / "model.safetensors");
    io::write_changed_json(folder / "config.json", model::merged_config(source, DType::f32),
                           source.path() / "config.json");
    model::write_stop_ids(source, talk.stop_ids, folder);
  } else {
    model::save_trained(dev, decoder, folder / trained_file);
  }
  write_tokenizer(talk, folder);
  io::write_file(folder / "README.md", std::string_view(card));
}

/// Reads it back into such a decoder.
/// Throws   Error if it is missing or damaged
template <AnyDevice D, class T>
void read_trained_folder(D& dev, model::Decoder<D, T>& decoder, const model::Source& source, const io::Path& folder) {
  const bool whole = model::trains_whole(decoder);
  model::load_trained(dev, decoder, source, folder / (whole ? "model.safetensors" : trained_file));
}

/// Writes an adapter folder: PEFT's two files, the tokenizer, a README.md and, if it `brings_config`, a config.json
/// from which inputs::open_source takes the rotary settings.
template <AnyDevice D, class T>
void write_adapter_folder(D& dev, model::Decoder<D, T>& decoder, const model::Source& source, const Talk& talk,
                          const std::string& card, const io::Path& folder) {
  model::save_adapter(dev, decoder, folder);
  write_tokenizer(talk, folder);
  if (brings_config(source))
    io::write_changed_json(folder / "config.json", model::config_json_of(source), source.path() / "config.json");
  io::write_file(folder / "README.md", std::string_view(card));
}

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/final_model.ipp"
#endif
