#pragma once

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

/// The dtype that merged weights get where nobody names one: as stored, or bfloat16 for quantised weights, which
/// safetensors cannot hold.
inline DType merged_dtype(const Source& source) {
  const DType stored = source.stored_dtype();
  return block_elements(stored) > 1 ? DType::bf16 : stored;
}

/// Hugging Face's name of a dtype that a model folder may have.
inline std::string_view config_dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    default:
      fail<ConfigError>("a model folder can't hold weights as ", name_of(dtype),
                        "; expected float32, bfloat16 or float16");
  }
}

namespace detail {

/// Rounds float32 values to a stored type.
inline std::vector<std::byte> rounded(std::span<const float> values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(block_bytes(dtype)));
  const auto put = [&]<class S>(S) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const S value(values[i]);
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
/// Every matrix is W + s B A, formed in float32 and rounded once to `dtype`; weights without adapter keep their values.
/// Tied heads stay tied, for the embedding is never targeted. Throws   ConfigError for a dtype that safetensors cannot
/// hold
template <Device D>
void save_merged(D& dev, Decoder<D, float>& model, const Source& source, const std::filesystem::path& folder,
                 std::optional<DType> dtype, Index max_shard_bytes) {
  const DType target = dtype.value_or(merged_dtype(source));
  const std::string_view dtype_name = config_dtype_name(target);
  const Config& config = source.config();
  std::error_code none;
  if (std::filesystem::equivalent(folder, source.path(), none))
    fail<ConfigError>("key output_dir: given ", folder.native(),
                      ", which is the base model's own folder; allowed: another");
  io::Json json;
  if (source.gguf() != nullptr) {
    json = to_json(config, dtype_name);
  } else {
    json = io::read_json(source.path() / "config.json");
    if (json.contains("torch_dtype") || !json.contains("dtype")) json["torch_dtype"] = std::string(dtype_name);
    if (json.contains("dtype")) json["dtype"] = std::string(dtype_name);
  }
  Loader<D> loader(dev, source);

  // Each tensor once, in the order of the model: its declaration and how its float32 values are formed.
  struct Item {
    io::TensorDeclaration declaration;
    std::function<std::vector<float>()> values;
  };
  std::vector<Item> items;
  const auto matrix = [&](const std::string& name, Index rows, Index cols) {
    items.push_back({{name, target, {rows, cols}}, [&dev, &loader, name, rows, cols] {
                       const auto weight = loader.weight(name, rows, cols);
                       const Arena::Scope scope(dev.arena());
                       const View<D, float> wide = scratch<float>(dev, rows, cols);
                       kernel::widen(dev, weight.use(dev).view(), wide);
                       return to_host(dev, wide);
                     }});
  };
  const auto vector = [&](const std::string& name, Index size) {
    items.push_back({{name, target, {size}}, [&dev, &loader, name, size] {
                       auto values = loader.template vector<float>(name, size);
                       return to_host(dev, values.view());
                     }});
  };
  const auto group = [&](Index layer, nn::LoraLinear<D, float>& linear, bool bias) {
    for (std::size_t j = 0; j < linear.projections().size(); ++j) {
      const auto& projection = linear.projections()[j];
      const std::string path = module_path(layer, projection.name);
      items.push_back({{path + ".weight", target, {projection.linear.out_features(), projection.linear.in_features()}},
                       [&dev, &linear, j] {
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
  for (const auto& item : items) writer.add(item.declaration.name, detail::rounded(item.values(), target));
  writer.commit();

  io::write_file(folder / "config.json", io::to_text(json) + "\n");
}

}  // namespace lora::model
