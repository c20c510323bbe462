#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/io/formats/safetensors.hpp"
#include "lora/model/description/config.hpp"
#include "support/blocks.hpp"

namespace lora::test {

/// The extents of a small random model.
struct RandomModel {
  std::string family = "qwen3";
  Index vocabulary = 61, hidden = 16, ffn = 24, layers = 2, heads = 4, kv_heads = 2, head_dim = 4;
  bool tied = false;
  DType dtype = DType::f32;
  io::Json more = io::Json::object();  ///< further fields of config.json
  std::uint64_t seed = 1;
};

/// A phi3 whose longrope computes sequences of up to `longest` tokens.
inline RandomModel longrope_model(Index longest) {
  return {.family = "phi3",
          .more = {{"original_max_position_embeddings", longest},
                   {"rope_scaling", {{"type", "longrope"}, {"short_factor", {1, 1.5}}, {"long_factor", {2, 4}}}}}};
}

struct RandomTensor {
  std::string name;
  Shape shape;
  std::vector<double> values;
};

inline io::Json config_json(const RandomModel& m) {
  io::Json json = {{"model_type", m.family},
                   {"vocab_size", m.vocabulary},
                   {"hidden_size", m.hidden},
                   {"intermediate_size", m.ffn},
                   {"num_hidden_layers", m.layers},
                   {"num_attention_heads", m.heads},
                   {"num_key_value_heads", m.kv_heads},
                   {"head_dim", m.head_dim},
                   {"max_position_embeddings", 4096},
                   {"rms_norm_eps", 1e-6},
                   {"hidden_act", "silu"},
                   {"tie_word_embeddings", m.tied},
                   {"eos_token_id", 0}};
  json.update(m.more);
  return json;
}

/// The tensors that a folder with this config.json must have: weights uniform and small, norms away from 1, biases away
/// from 0, so that leaving one out shows.
inline std::vector<RandomTensor> random_tensors(const RandomModel& m) {
  const model::Config config = model::parse_config(config_json(m), "config.json");
  std::vector<RandomTensor> tensors;
  std::uint64_t key = m.seed;
  const auto add = [&](const std::string& name, const Shape& shape) {
    Random random(mix_key(m.seed, ++key));
    const bool norm = name.find("norm") != std::string::npos;
    const double width = norm ? 0.3 : 1 / std::sqrt(static_cast<double>(shape[shape.rank() - 1]));
    std::vector<double> values;
    for (Index i = 0; i < shape.count(); ++i)
      values.push_back((norm ? 1 - config.norm_offset : 0) + width * (2 * static_cast<double>(random.uniform()) - 1));
    tensors.push_back({name, shape, std::move(values)});
  };
  const Index q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  add("model.embed_tokens.weight", {m.vocabulary, m.hidden});
  for (Index i = 0; i < m.layers; ++i) {
    const std::string layer = concat("model.layers.", i, ".");
    const auto linear = [&](const std::string& name, Index out, Index in, bool bias) {
      add(layer + name + ".weight", {out, in});
      if (bias) add(layer + name + ".bias", {out});
    };
    if (config.fused) {
      linear("self_attn.qkv_proj", q + 2 * kv, m.hidden, config.qkv_bias);
    } else {
      linear("self_attn.q_proj", q, m.hidden, config.qkv_bias);
      linear("self_attn.k_proj", kv, m.hidden, config.qkv_bias);
      linear("self_attn.v_proj", kv, m.hidden, config.qkv_bias);
    }
    linear("self_attn.o_proj", m.hidden, q, config.o_bias);
    if (config.fused) {
      linear("mlp.gate_up_proj", 2 * m.ffn, m.hidden, config.mlp_bias);
    } else {
      linear("mlp.gate_proj", m.ffn, m.hidden, config.mlp_bias);
      linear("mlp.up_proj", m.ffn, m.hidden, config.mlp_bias);
    }
    linear("mlp.down_proj", m.hidden, m.ffn, config.mlp_bias);
    add(layer + "input_layernorm.weight", {m.hidden});
    add(layer + "post_attention_layernorm.weight", {m.hidden});
    if (config.post_norms) {
      add(layer + "pre_feedforward_layernorm.weight", {m.hidden});
      add(layer + "post_feedforward_layernorm.weight", {m.hidden});
    }
    if (config.qk_norm) {
      add(layer + "self_attn.q_norm.weight", {m.head_dim});
      add(layer + "self_attn.k_norm.weight", {m.head_dim});
    }
  }
  add("model.norm.weight", {m.hidden});
  if (!m.tied) add("lm_head.weight", {m.vocabulary, m.hidden});
  return tensors;
}

/// The bytes of `values` as `dtype` stores them; the values become those that the bytes stand for.
inline std::vector<std::byte> encode(std::vector<double>& values, DType dtype) {
  std::vector<std::byte> bytes;
  if (block_elements(dtype) > 1) {
    const auto size = static_cast<std::size_t>(block_elements(dtype));
    for (std::size_t begin = 0; begin + size <= values.size(); begin += size) {
      const Block block = nearest_block(dtype, std::span(values).subspan(begin, size));
      block.append_to(bytes);
      for (std::size_t i = 0; i < size; ++i) values[begin + i] = block.value(i);
    }
    return bytes;
  }
  const auto store = [&]<class Stored>(Stored) {
    using Real = std::conditional_t<std::is_same_v<Stored, double>, double, float>;
    bytes.resize(values.size() * sizeof(Stored));
    std::byte* to = bytes.data();
    for (double& value : values) {
      const auto stored = static_cast<Stored>(static_cast<Real>(value));
      value = static_cast<double>(static_cast<Real>(stored));
      std::memcpy(to, &stored, sizeof stored);
      to += sizeof stored;
    }
  };
  if (dtype == DType::f64) store(0.0);
  if (dtype == DType::f32) store(0.0F);
  if (dtype == DType::bf16) store(bf16());
  if (dtype == DType::f16) store(f16());
  return bytes;
}

/// Writes config.json and model.safetensors.
inline void write_model(const std::filesystem::path& folder, const io::Json& json,
                        const std::vector<RandomTensor>& tensors, DType dtype) {
  std::filesystem::create_directories(folder);
  io::write_json(folder / "config.json", json);
  std::vector<io::TensorDeclaration> declarations;
  for (const auto& tensor : tensors) declarations.push_back({tensor.name, dtype, tensor.shape});
  io::SafetensorsWriter writer(folder / "model.safetensors", declarations);
  for (const auto& tensor : tensors) {
    auto values = tensor.values;
    writer.add(tensor.name, encode(values, dtype));
  }
  writer.commit();
}

inline void write_random_model(const std::filesystem::path& folder, const RandomModel& m) {
  write_model(folder, config_json(m), random_tensors(m), m.dtype);
}

}  // namespace lora::test
