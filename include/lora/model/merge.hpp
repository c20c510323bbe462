#pragma once

#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/io/safetensors_folder.hpp"
#include "lora/model/decoder.hpp"

namespace lora::model {

/// The config.json of a merged model: what the base computes with, and the type of its matrices; `dtype` as
/// `save_merged` takes it.
/// Throws   ConfigError naming layers without rotary embedding, where a config.json of this type cannot say so, or a
///          dtype that safetensors cannot hold
inline io::Json merged_config(const Source& source, std::optional<DType> dtype) {
  const std::string_view name = config_dtype_name(dtype.value_or(folder_dtype(source.stored_dtype())));
  const auto& type = source.config().model_type;
  if (const auto layers = unwritable_no_rope_layers(source.config()); !layers.empty()) {
    std::string list;
    for (const Index layer : layers) list += concat(list.empty() ? "" : ", ", layer);
    fail<ConfigError>("no_rope_layers: ", source.path().native(), " runs its layers ", list,
                      " without rotary embedding, which the config.json of a ", type,
                      " model can't say (only smollm3's ",
                      "can); use the base with its adapter instead of merging them");
  }
  io::Json json = config_json_of(source);
  if (json.contains("torch_dtype") || !json.contains("dtype")) json["torch_dtype"] = std::string(name);
  if (json.contains("dtype")) json["dtype"] = std::string(name);
  return json;
}

namespace detail {

/// Rounds float32 values of the tensor `name` to a stored type.
/// Throws   NonFiniteError
inline std::vector<std::byte> rounded(std::span<const float> values, DType dtype, const std::string& name) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(block_bytes(dtype)));
  const auto put = [&]<class S>(S) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const S value(values[i]);
      if (!std::isfinite(static_cast<float>(value)))
        fail<NonFiniteError>("the merged tensor ", name, " would hold ", static_cast<float>(value), " as ",
                             name_of(dtype), " (", values[i], " before rounding); expected finite numbers");
      std::memcpy(bytes.data() + i * sizeof(S), &value, sizeof(S));
    }
  };
  if (dtype == DType::f32)
    put(float{});
  else if (dtype == DType::bf16)
    put(bf16{});
  else
    put(f16{});
  return bytes;
}

}  // namespace detail

/// Writes base + adapter as model.safetensors (or shards with an index) and config.json into a folder that exists.
/// Every matrix is W + s B A, formed in float32 and rounded once to `dtype`, or without one to the type that it is
/// stored as (GGUF blocks to bfloat16); weights without adapter keep their values. Tied heads stay tied, for the
/// embedding is never targeted.
/// Throws   ConfigError for the base's own folder, and as `merged_config` does
template <AnyDevice D>
void save_merged(D& dev, Decoder<D, float>& model, const Source& source, const std::filesystem::path& folder,
                 std::optional<DType> dtype, Index max_shard_bytes) {
  const io::Json json = merged_config(source, dtype);
  const Config& config = source.config();
  std::error_code none;
  if (std::filesystem::equivalent(folder, source.path(), none))
    fail<ConfigError>("key output_dir: given ", folder.native(),
                      ", which is the base model's own folder; allowed: another");
  // Of a single type, where one is named.
  const auto type_of = [&](const std::string& name, const Shape& shape) {
    const DType stored = dtype.value_or(folder_dtype(source.at(name, shape).dtype));
    (void)config_dtype_name(stored);
    return stored;
  };
  Loader<D> loader(dev, source);

  // Each tensor once, in the order of the model: its declaration and how its float32 values are formed.
  struct Item {
    io::TensorDeclaration declaration;
    std::function<std::vector<float>()> values;
  };
  std::vector<Item> items;
  const auto matrix = [&](const std::string& name, Index rows, Index cols) {
    items.push_back({{name, type_of(name, {rows, cols}), {rows, cols}}, [&dev, &loader, name, rows, cols] {
                       const auto weight = loader.weight(name, rows, cols);
                       const Arena::Scope scope(dev.arena());
                       const View<D, float> wide = scratch<float>(dev, rows, cols);
                       kernel::widen(dev, weight.use(dev).view(), wide);
                       return to_host(dev, wide);
                     }});
  };
  const auto vector = [&](const std::string& name, Index size) {
    items.push_back({{name, type_of(name, {size}), {size}}, [&dev, &loader, name, size] {
                       auto values = loader.template vector<float>(name, size);
                       return to_host(dev, values.view());
                     }});
  };
  const auto group = [&](Index layer, nn::LoraLinear<D, float>& linear, bool bias) {
    for (std::size_t j = 0; j < linear.projections().size(); ++j) {
      const auto& projection = linear.projections()[j];
      const std::string path = module_path(layer, projection.name);
      const Shape shape{projection.linear.out_features(), projection.linear.in_features()};
      items.push_back({{path + ".weight", type_of(path + ".weight", shape), shape}, [&dev, &linear, j] {
                         const Arena::Scope scope(dev.arena());
                         return to_host(dev, linear.merged(dev, j));
                       }});
      if (bias) vector(path + ".bias", projection.linear.out_features());
    }
  };
  matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size);
  for (Index i = 0; i < config.num_hidden_layers; ++i) {
    auto& block = model.stack().layer(i).inner();
    const std::string prefix = concat("model.layers.", i, ".");
    vector(prefix + "input_layernorm.weight", config.hidden_size);
    group(i, block.attention().qkv_proj(), config.qkv_bias);
    group(i, block.attention().o_proj(), config.o_bias);
    if (config.qk_norm) {
      vector(prefix + "self_attn.q_norm.weight", config.head_dim);
      vector(prefix + "self_attn.k_norm.weight", config.head_dim);
    }
    vector(prefix + "post_attention_layernorm.weight", config.hidden_size);
    group(i, block.mlp().gate_up_proj(), config.mlp_bias);
    group(i, block.mlp().down_proj(), config.mlp_bias);
  }
  vector("model.norm.weight", config.hidden_size);
  if (!config.tie_word_embeddings) matrix("lm_head.weight", config.vocab_size, config.hidden_size);

  std::vector<io::TensorDeclaration> declarations;
  for (const auto& item : items) declarations.push_back(item.declaration);
  io::SafetensorsFolderWriter writer(folder, declarations, max_shard_bytes);
  for (const auto& item : items)
    writer.add(item.declaration.name, detail::rounded(item.values(), item.declaration.dtype, item.declaration.name));
  writer.commit();

  io::write_json(folder / "config.json", json);
}

}  // namespace lora::model
