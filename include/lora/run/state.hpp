#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/cpu/machine.hpp"
#include "lora/io/safetensors.hpp"
#include "lora/model/adapter.hpp"
#include "lora/model/decoder.hpp"
#include "lora/model/weights.hpp"
#include "lora/optim/adamw.hpp"
#include "lora/run/checkpoint.hpp"
#include "lora/settings/config.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace lora::run {

namespace detail {

/// In the order of their names: shards may be cut anew.
inline std::vector<const io::StoredTensor*> sorted_tensors(const model::Source& source) {
  std::vector<const io::StoredTensor*> tensors;
  for (const auto& tensor : source.tensors()) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  return tensors;
}

inline std::string declaration_of(const io::StoredTensor& tensor) {
  return concat(tensor.name, " ", name_of(tensor.dtype), " ", to_string(tensor.shape), " ");
}

}  // namespace detail

/// Tells base models apart: names, types, extents and all bytes of all tensors.
inline std::uint64_t weights_checksum(const model::Source& source) {
  const auto tensors = detail::sorted_tensors(source);
  std::vector<std::span<const std::byte>> contents;
  for (const auto* tensor : tensors) contents.push_back(tensor->bytes);
  const auto sums = checksums(contents, cpu::available_threads());
  std::string text;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    text += detail::declaration_of(*tensors[i]) + checksum_text(sums[i]) + "\n";
  return checksum(text);
}

/// The same of a few pieces of each tensor's bytes, as earlier versions noted it.
inline std::uint64_t sampled_checksum(const model::Source& source) {
  constexpr std::size_t pieces = 16, piece_bytes = 64;
  std::string text;
  for (const auto* tensor : detail::sorted_tensors(source)) {
    text += detail::declaration_of(*tensor);
    const auto bytes = tensor->bytes;
    const std::size_t length = std::min(piece_bytes, bytes.size()), reach = bytes.size() - length;
    for (std::size_t i = 0; i < pieces; ++i) {
      const auto piece = bytes.subspan(reach / (pieces - 1) * i, length);
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
  }
  return checksum(text);
}

/// A base model in a run's settings. `sampled`: as earlier versions noted it.
inline std::string base_text(const model::Source& source, bool sampled) {
  const model::Config& shape = source.config();
  const std::string begin =
      concat(shape.model_type, ", ", shape.num_hidden_layers, " layers of ", shape.hidden_size, " and ",
             shape.intermediate_size, ", vocabulary of ", shape.vocab_size, ", weights with checksum ");
  return sampled ? begin + checksum_text(sampled_checksum(source))
                 : concat(begin, checksum_text(weights_checksum(source)), " of all bytes");
}

/// What decides the data of a run.
struct DataFacts {
  std::uint64_t fingerprint = 0;
  Index records = 0;
  std::string template_name{};
  std::string date{};                     ///< that the template prints; empty if it prints none
  std::optional<bool> enable_thinking{};  ///< where the template depends on it
  std::optional<Index> text_blocks{};     ///< sequences, where some files are texts
};

/// The settings that must not change when a run goes on: with another of them, the steps that are done would not have
/// been this run's. All others may.
inline io::Json fixed_settings(const settings::Config& config, const model::Source& source,
                               const model::AdapterConfig& adapter, const DataFacts& data, bool bfloat16) {
  const model::Config& shape = source.config();
  // As adapter_config.json has them: a folder to start from may choose its modules by more than keys can.
  model::AdapterConfig sorted = adapter;
  std::sort(sorted.targets.begin(), sorted.targets.end());
  io::Json saved = model::to_json(sorted);
  std::vector<Index> unrotated;  // the model's own and those of the key
  for (Index layer = 0; layer < shape.num_hidden_layers; ++layer)
    if (!shape.rotates[static_cast<std::size_t>(layer)]) unrotated.push_back(layer);
  io::Json settings =
      io::json_object({{"model_name_or_path", base_text(source, false)},
                       {"dtype", bfloat16 ? "bfloat16" : "float32"},
                       {"rope_theta", shape.rope.theta},
                       {"no_rope_layers", unrotated},
                       {"lora_rank", adapter.rank},
                       {"lora_alpha", adapter.alpha},
                       {"lora_dropout", adapter.dropout},
                       {"lora_target", saved["target_modules"]},
                       {"use_rslora", adapter.rslora},
                       {"exclude_modules", saved["exclude_modules"]},
                       {"layers_to_transform", saved["layers_to_transform"]},
                       {"rank_pattern", saved["rank_pattern"]},
                       {"alpha_pattern", saved["alpha_pattern"]},
                       {"dataset", concat(data.records, " records with checksum ", checksum_text(data.fingerprint))},
                       {"val_size", config.val_size},
                       {"template", data.template_name},
                       {"date", data.date},
                       {"text_column", config.text_column},
                       {"cutoff_len", config.cutoff_len},
                       {"train_on_prompt", config.train_on_prompt},
                       {"train_on_last_turn_only", config.train_on_last_turn_only},
                       {"shuffle", config.shuffle},
                       {"per_device_train_batch_size x gradient_accumulation_steps", config.sequences_per_step()},
                       {"seed", config.seed}});
  if (data.enable_thinking) settings["enable_thinking"] = *data.enable_thinking;
  if (data.text_blocks) settings["text_blocks"] = *data.text_blocks;
  return settings;
}

/// The settings as the version would have noted them that wrote the checkpoint.
inline io::Json settings_as(io::Json now, const Checkpoint& checkpoint, const settings::Config& config,
                            const model::Source& source) {
  const io::Json* base = io::json_find(checkpoint.state.settings, "model_name_or_path");
  if (base != nullptr && base->is_string() && !base->get_ref<const std::string&>().ends_with(" of all bytes")) {
    now["model_name_or_path"] = base_text(source, true);
    now["no_rope_layers"] = config.no_rope_layers;  // the key's, without the model's own
  }
  return now;
}

/// Throws   ConfigError that names the first setting that changed, with both values
inline void expect_same_settings(const io::Json& now, const Checkpoint& checkpoint) {
  // Both come from fixed_settings, with the same types: equal values have equal texts.
  const auto text_of = [](const io::Json* value) { return value ? io::to_text(*value, -1) : std::string("nothing"); };
  for (const auto& [name, value] : io::json_fields(now)) {
    const auto place = checkpoint.state.settings.find(name);  // which may well be null
    const io::Json* then = place != checkpoint.state.settings.end() ? &*place : nullptr;
    if (then != nullptr && text_of(then) == text_of(&value)) continue;
    fail<ConfigError>("key ", name, ": given ", text_of(&value), ", but ", checkpoint.folder.native(),
                      " was made with ", text_of(then), "; a run that goes on must not change it");
  }
}

/// `next_sample`: with which the step after the checkpoint's would begin.
/// Throws   FormatError if the checkpoint's run stood elsewhere, for some records would be left out or seen twice
inline void expect_same_place(const Checkpoint& checkpoint, Index next_sample) {
  if (checkpoint.state.next_sample == next_sample) return;
  fail<FormatError>((checkpoint.folder / detail::state_file).native(), ": \"next_sample\" is ",
                    checkpoint.state.next_sample, "; after step ", checkpoint.state.step, " of this run expected ",
                    next_sample);
}

/// What a checkpoint takes on disk, about: each number of the adapter and the optimizer's two of it, and the
/// tokenizer's files (null: none).
template <AnyDevice D, class T>
std::uint64_t checkpoint_bytes(model::Decoder<D, T>& decoder, const tokenizer::Tokenizer* tokenizer) {
  std::uint64_t bytes = 1 << 20;  // state and what else is small
  if (tokenizer != nullptr) bytes += tokenizer->saved_bytes();
  decoder.params().for_each(
      [&](const auto& param) { bytes += 3 * sizeof(float) * static_cast<std::uint64_t>(param.value.size()); });
  return bytes;
}

/// The optimizer's state as optimizer.safetensors: m and v of each parameter, laid out as in memory, and for those that
/// began to train later than the first update `.step`, the updates since then. `dev` holds the state.
template <AnyDevice D, class T, AnyDevice S>
void save_optimizer(S& dev, optim::AdamW<D, T, S>& optimizer, const io::Path& folder) {
  static_assert(std::same_as<Accum<T>, float>, "optimizer state is saved as float32");
  std::vector<io::TensorDeclaration> declarations;
  const auto for_each_count = [&](const auto& f) {
    for (const auto& entry : optimizer.params().entries())
      if (const Index since = optimizer.since(entry); since > 0)
        f(entry.name + ".step", static_cast<float>(optimizer.updates() - since));
  };
  optimizer.for_each_state([&](const std::string& name, View<S, float> view) {
    declarations.push_back({name, DType::f32, view.shape()});
  });
  for_each_count([&](const std::string& name, float) { declarations.push_back({name, DType::f32, {1}}); });
  io::SafetensorsWriter writer(folder / "optimizer.safetensors", std::move(declarations));
  optimizer.for_each_state([&](const std::string& name, View<S, float> view) {
    const std::vector<float> values = to_host(dev, view);
    writer.add(name, std::as_bytes(std::span(values)));
  });
  for_each_count([&](const std::string& name, float count) { writer.add(name, std::as_bytes(std::span(&count, 1))); });
  writer.commit();
}

/// Into an optimizer of the same parameters, of which the same train, that is told how many updates were made.
/// Throws   FormatError if a tensor is missing or has another shape, or a count can't be one
template <AnyDevice D, class T, AnyDevice S>
void load_optimizer(S& dev, optim::AdamW<D, T, S>& optimizer, Index updates, const io::Path& folder) {
  const io::Path path = folder / "optimizer.safetensors";
  const auto file = io::Safetensors::open(path);
  const auto expect = [&](const io::StoredTensor& tensor, const Shape& shape) {
    if (tensor.dtype != DType::f32 || tensor.shape != shape)
      fail<FormatError>(path.native(), ": the tensor ", tensor.name, " is ", name_of(tensor.dtype), " ",
                        to_string(tensor.shape), "; expected F32 ", to_string(shape));
  };
  optimizer.for_each_state([&](const std::string& name, View<S, float> view) {
    const io::StoredTensor* tensor = file.find(name);
    if (tensor == nullptr) fail<FormatError>(path.native(), ": the tensor ", name, " is missing");
    expect(*tensor, view.shape());
  });
  optimizer.for_each_state([&](const std::string& name, View<S, float> view) {
    const std::span<const std::byte> bytes = file.find(name)->bytes;
    const View<S, std::byte> target(reinterpret_cast<std::byte*>(view.flat().data()), static_cast<Index>(bytes.size()));
    copy_from_host<S, std::byte>(dev, bytes, target);
  });
  optimizer.set_updates(updates);
  for (const auto& entry : optimizer.params().entries()) {
    const io::StoredTensor* tensor = file.find(entry.name + ".step");
    float count = static_cast<float>(updates);
    if (tensor != nullptr) {
      expect(*tensor, {1});
      std::memcpy(&count, tensor->bytes.data(), sizeof count);
      if (!(count >= 0 && count <= static_cast<float>(updates) && count == std::floor(count)))
        fail<FormatError>(path.native(), ": the tensor ", tensor->name, " holds ", count,
                          "; expected a whole number up to ", updates, ", the updates of the whole run");
    }
    optimizer.set_since(entry, updates - static_cast<Index>(count));
  }
  dev.synchronize();  // the file is read no more
}

}  // namespace lora::run
