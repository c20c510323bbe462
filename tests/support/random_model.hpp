#pragma once

#include <cmath>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/io/safetensors.hpp"
#include "lora/model/config.hpp"

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

/// Writes config.json and model.safetensors: weights uniform and small, norms away from 1, biases away from 0, so that
/// leaving one out shows.
inline void write_random_model(const std::filesystem::path& folder, const RandomModel& m) {
  std::filesystem::create_directories(folder);
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
  io::write_file(folder / "config.json", io::to_text(json));

  const model::Config config = model::read_config(folder);
  std::vector<io::TensorDeclaration> declarations;
  const auto add = [&](const std::string& name, Shape shape) { declarations.push_back({name, m.dtype, shape}); };
  const Index q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  add("model.embed_tokens.weight", {m.vocabulary, m.hidden});
  for (Index i = 0; i < m.layers; ++i) {
    const std::string layer = concat("model.layers.", i, ".");
    const auto linear = [&](const std::string& name, Index out, Index in, bool bias) {
      add(layer + name + ".weight", {out, in});
      if (bias) add(layer + name + ".bias", {out});
    };
    linear("self_attn.q_proj", q, m.hidden, config.qkv_bias);
    linear("self_attn.k_proj", kv, m.hidden, config.qkv_bias);
    linear("self_attn.v_proj", kv, m.hidden, config.qkv_bias);
    linear("self_attn.o_proj", m.hidden, q, config.o_bias);
    linear("mlp.gate_proj", m.ffn, m.hidden, config.mlp_bias);
    linear("mlp.up_proj", m.ffn, m.hidden, config.mlp_bias);
    linear("mlp.down_proj", m.hidden, m.ffn, config.mlp_bias);
    add(layer + "input_layernorm.weight", {m.hidden});
    add(layer + "post_attention_layernorm.weight", {m.hidden});
    if (config.qk_norm) {
      add(layer + "self_attn.q_norm.weight", {m.head_dim});
      add(layer + "self_attn.k_norm.weight", {m.head_dim});
    }
  }
  add("model.norm.weight", {m.hidden});
  if (!m.tied) add("lm_head.weight", {m.vocabulary, m.hidden});

  io::SafetensorsWriter writer(folder / "model.safetensors", declarations);
  std::uint64_t key = m.seed;
  for (const auto& tensor : declarations) {
    Random random(mix_key(m.seed, ++key));
    const bool norm = tensor.name.find("norm") != std::string::npos;
    const double width = norm ? 0.3 : 1 / std::sqrt(static_cast<double>(tensor.shape[tensor.shape.rank() - 1]));
    std::vector<std::byte> bytes;
    for (Index i = 0; i < tensor.shape.count(); ++i) {
      const double value = (norm ? 1 : 0) + width * (2 * static_cast<double>(random.uniform()) - 1);
      const auto put = [&](auto stored) {
        const auto raw = std::as_bytes(std::span(&stored, 1));
        bytes.insert(bytes.end(), raw.begin(), raw.end());
      };
      if (m.dtype == DType::f64) put(value);
      if (m.dtype == DType::f32) put(static_cast<float>(value));
      if (m.dtype == DType::bf16) put(bf16(static_cast<float>(value)));
      if (m.dtype == DType::f16) put(f16(static_cast<float>(value)));
    }
    writer.add(tensor.name, bytes);
  }
  writer.commit();
}

}  // namespace lora::test
