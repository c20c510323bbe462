#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/files/file.hpp"
#include "support/gguf_writer.hpp"
#include "support/random_model.hpp"

namespace lora::test {

/// GGML's number of a type.
inline std::uint32_t ggml_number(DType dtype) {
  constexpr std::pair<DType, std::uint32_t> numbers[] = {
      {DType::f32, 0},  {DType::f16, 1},   {DType::q4_0, 2},  {DType::q4_1, 3},  {DType::q5_0, 6}, {DType::q5_1, 7},
      {DType::q8_0, 8}, {DType::q4_k, 12}, {DType::q5_k, 13}, {DType::q6_k, 14}, {DType::bf16, 30}};
  for (const auto& [type, number] : numbers)
    if (type == dtype) return number;
  return 255;
}

/// What a tensor is stored as in a file of `dtype`: a vector as F32, a matrix whose rows are no whole blocks of a K
/// type as llama.cpp chooses.
inline DType gguf_dtype(const Shape& shape, DType dtype) {
  if (shape.rank() == 1) return DType::f32;
  if (shape[1] % block_elements(dtype) == 0) return dtype;
  return dtype == DType::q4_k ? DType::q5_0 : dtype == DType::q5_k ? DType::q5_1 : DType::q8_0;
}

/// What GGUF calls a model type.
inline std::string gguf_architecture(const std::string& family) { return family == "gemma3_text" ? "gemma3" : family; }

/// What GGUF calls a tensor that Hugging Face calls `name`.
inline std::string gguf_name(std::string name, bool post_norms = false) {
  if (const auto at = name.find("post_attention_layernorm"); post_norms && at != name.npos)
    name.replace(at, std::string_view("post_attention_layernorm").size(), "post_attention_norm");
  constexpr std::pair<std::string_view, std::string_view> parts[] = {{"model.embed_tokens", "token_embd"},
                                                                     {"model.norm", "output_norm"},
                                                                     {"lm_head", "output"},
                                                                     {"model.layers", "blk"},
                                                                     {"self_attn.q_proj", "attn_q"},
                                                                     {"self_attn.k_proj", "attn_k"},
                                                                     {"self_attn.v_proj", "attn_v"},
                                                                     {"self_attn.qkv_proj", "attn_qkv"},
                                                                     {"self_attn.o_proj", "attn_output"},
                                                                     {"self_attn.q_norm", "attn_q_norm"},
                                                                     {"self_attn.k_norm", "attn_k_norm"},
                                                                     {"mlp.gate_proj", "ffn_gate"},
                                                                     {"mlp.up_proj", "ffn_up"},
                                                                     {"mlp.gate_up_proj", "ffn_up"},
                                                                     {"mlp.down_proj", "ffn_down"},
                                                                     {"input_layernorm", "attn_norm"},
                                                                     {"pre_feedforward_layernorm", "ffn_norm"},
                                                                     {"post_feedforward_layernorm", "post_ffw_norm"},
                                                                     {"post_attention_layernorm", "ffn_norm"}};
  for (const auto& [from, to] : parts)
    if (const auto at = name.find(from); at != name.npos) name.replace(at, from.size(), to);
  return name;
}

/// Rows (head, half, pair) as (head, pair, half), which is where llama's converter puts those of q and k.
inline std::vector<double> gguf_rows(const std::vector<double>& values, Index rows, Index heads) {
  const Index cols = static_cast<Index>(values.size()) / rows, width = rows / heads;
  std::vector<double> result;
  for (Index row = 0; row < rows; ++row) {
    const Index head = row / width, pair = row % width / 2, half = row % 2;
    const auto from = values.begin() + (head * width + half * (width / 2) + pair) * cols;
    result.insert(result.end(), from, from + cols);
  }
  return result;
}

/// What differs from a GGUF file as the converter writes it.
struct GgufChanges {
  std::function<void(GgufWriter&)> add = [](GgufWriter&) {};                        ///< further metadata and tensors
  std::function<bool(const std::string&)> keep = [](const auto&) { return true; };  ///< metadata and tensors by name
  std::function<DType(const std::string&, DType)> dtype = [](const auto&, DType all) { return all; };  ///< of a tensor
};

/// Writes a random model's tensors as a GGUF file of `dtype`, with metadata from its extents.
inline void write_gguf(const std::filesystem::path& path, const RandomModel& m,
                       const std::vector<RandomTensor>& tensors, DType dtype, const GgufChanges& changes = {}) {
  GgufWriter writer;
  const auto put = [&](std::string_view key, auto value) {
    const std::string name = gguf_architecture(m.family) + "." + std::string(key);
    if (changes.keep(name)) writer.add(name, value);
  };
  const auto extent = [&](std::string_view key, Index value) { put(key, static_cast<std::uint32_t>(value)); };
  const model::Config config = model::parse_config(config_json(m), "config.json");
  writer.add("general.architecture", gguf_architecture(m.family));
  extent("block_count", m.layers);
  extent("context_length", 4096);
  extent("embedding_length", m.hidden);
  extent("feed_forward_length", m.ffn);
  extent("attention.head_count", m.heads);
  extent("attention.head_count_kv", m.kv_heads);
  extent("attention.key_length", m.head_dim);
  extent("attention.value_length", m.head_dim);
  put("attention.layer_norm_rms_epsilon", 1e-6f);
  put("rope.freq_base", 10000.0f);
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{0});
  for (const auto& tensor : tensors) {
    const std::string name = gguf_name(tensor.name, config.post_norms);
    if (!changes.keep(name)) continue;
    const DType stored = gguf_dtype(tensor.shape, changes.dtype(name, dtype));
    auto values = tensor.values;
    if (name.find("norm") != name.npos)  // in float32 as it is read
      for (double& value : values)
        value = static_cast<double>(static_cast<float>(value) + static_cast<float>(config.norm_offset));
    const bool q = name.find("attn_q.") != name.npos, k = name.find("attn_k.") != name.npos;
    if (m.family == "llama" && (q || k)) values = gguf_rows(values, tensor.shape[0], q ? m.heads : m.kv_heads);
    const auto bytes = encode(values, stored);
    std::vector<std::uint64_t> extents;
    for (int axis = tensor.shape.rank(); axis-- > 0;) extents.push_back(static_cast<std::uint64_t>(tensor.shape[axis]));
    writer.add_tensor(name, extents, ggml_number(stored), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  changes.add(writer);
  io::write_file(path, std::string_view(writer.bytes()));
}

}  // namespace lora::test
