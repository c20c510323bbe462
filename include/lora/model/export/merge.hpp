#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/io/formats/safetensors_folder.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/model/weights/encoded.hpp"
#include "lora/tensor/transfer.hpp"

namespace lora::model {

/// The config.json of a merged model: the base's settings and the dtype of the matrices; `dtype` as in `save_merged`.
/// Layers without rotary embedding stand in it for every model type: see rotary_note for who obeys that.
/// Throws   ConfigError for a dtype that safetensors doesn't have; FormatError as `config_json_of` does
io::Json merged_config(const Source& source, std::optional<DType> dtype);

/// Writes the model as model.safetensors (or shards with an index) and config.json into an existing folder, one tensor
/// after the other. Every matrix with an adapter is W + s B A, what training has changed is as it was trained, and the
/// rest as it was; all is computed in float32 and rounded once to `dtype` or, without one, to its stored dtype (GGUF
/// blocks: to bfloat16). A head stays tied unless an adapter has parted it from the embedding.
/// Throws   ConfigError for the base's own folder, and as `merged_config` does
template <AnyDevice D, class T>
  requires std::same_as<Accum<T>, float>
void save_merged(D& dev, Decoder<D, T>& model, const Source& source, const io::Path& folder, std::optional<DType> dtype,
                 Index max_shard_bytes) {
  const io::Json json = merged_config(source, dtype);
  const Config& config = source.config();
  std::error_code none;
  if (std::filesystem::equivalent(folder, source.path(), none))
    fail<ConfigError>("key output_dir: given ", folder.native(),
                      ", which is the base model's own folder; allowed: another");
  // All of one dtype, if one is given.
  std::vector<io::TensorDeclaration> declarations;
  for (const TensorInfo& info : tensors_of(config)) {
    const DType stored = dtype.value_or(folder_dtype(source.dtype_of(info)));
    (void)config_dtype_name(stored);
    declarations.push_back({info.name, stored, info.shape});
  }
  io::SafetensorsFolderWriter writer(folder, declarations, max_shard_bytes);
  std::size_t next = 0;
  for (const TensorInfo& info : tensors_of(config)) {
    const Arena::Scope scope(dev.arena());
    with_host_values(dev, model.value(dev, info), [&](std::span<const float> values) {
      writer.add(info.name, encoded(values, declarations[next++].dtype, info.name));
    });
  }
  writer.commit();

  io::write_changed_json(folder / "config.json", json, source.path() / "config.json");
}

/// What ranks without a file do while one of them calls save_merged, where they gather tensors from each other.
template <AnyDevice D, class T>
void gather_merged(D& dev, Decoder<D, T>& model) {
  for (const TensorInfo& info : tensors_of(model.config())) {
    const Arena::Scope scope(dev.arena());
    (void)model.value(dev, info);
  }
}

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/export/merge.ipp"
#endif
