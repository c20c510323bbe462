#pragma once

#include <cstddef>
#include <cstdint>

#include "lora/core/config.hpp"
#include "lora/model/config_gguf.hpp"

namespace lora::model::detail {

/// Llama 3.1's scaling, which GGUF keeps as the tensor rope_freqs.weight: recognised, so that a config.json can be
/// written.
LORA_INLINE void recognise_llama3(nn::RopeConfig& rope, Index width) {
  const auto factors = std::move(rope.frequency_factors);
  nn::RopeConfig plain;
  plain.theta = rope.theta;
  const auto base = nn::inverse_frequencies(plain, width);
  nn::RopeConfig guess = plain;
  guess.scaling = nn::RopeConfig::Scaling::llama3;
  guess.factor = static_cast<double>(*std::max_element(factors.begin(), factors.end()));
  guess.low_freq_factor = 1;
  guess.high_freq_factor = 4;
  guess.original_max_position_embeddings = 8192;
  const auto scaled = nn::inverse_frequencies(guess, width);
  bool same = true;
  for (std::size_t i = 0; i < factors.size(); ++i)
    same = same && std::abs(base[i] / factors[i] - scaled[i]) <= 1e-5f * scaled[i];
  if (same) {
    rope = guess;
  } else {
    rope.frequency_factors = factors;
  }
}

/// The rope scaling in the metadata. A factor without a type is linear, like in llama.cpp.
LORA_INLINE void read_rope_scaling(const io::Gguf& file, const std::string& arch, Config& config) {
  const std::string prefix = arch + ".rope.scaling.";
  const auto number = [&](std::string_view name) { return file.get<double>(concat(prefix, name)); };
  auto factor = number("factor");
  if (!factor) factor = file.get<double>(arch + ".rope.scale_linear");
  const auto kind = file.get<std::string>(prefix + "type").value_or(factor.value_or(0) != 0 ? "linear" : "none");
  if (kind != "none" && kind != "linear" && kind != "yarn")
    fail<FormatError>(file.name(), ": \"", prefix, "type\" is \"", kind,
                      "\", which is not supported; expected none, linear or yarn");
  const auto expect = [&](std::string_view name, double plain) {
    const double value = number(name).value_or(plain);
    if (value != plain)
      fail<FormatError>(file.name(), ": \"", prefix, name, "\" is ", value, ", which is not supported; expected ",
                        plain);
  };
  expect("yarn_ext_factor", 1);
  expect("yarn_attn_factor", 1);
  expect("yarn_log_multiplier", 0);
  if (kind == "none") return;
  nn::RopeConfig& rope = config.rope;
  if (!factor) fail<FormatError>(file.name(), ": \"", prefix, "factor\" is missing");
  rope.scaling = kind == "linear" ? nn::RopeConfig::Scaling::linear : nn::RopeConfig::Scaling::yarn;
  rope.factor = *factor;
  if (kind == "linear") return;
  rope.original_max_position_embeddings =
      number("original_context_length").value_or(static_cast<double>(config.max_position_embeddings));
  if (!(rope.original_max_position_embeddings > 0))
    fail<FormatError>(file.name(), ": \"", prefix, "original_context_length\" is missing");
  rope.beta_fast = number("yarn_beta_fast").value_or(rope.beta_fast);
  rope.beta_slow = number("yarn_beta_slow").value_or(rope.beta_slow);
  // Here it multiplies yarn's own factor; in a config.json it replaces it.
  if (const double factor_of_both = number("attn_factor").value_or(1); factor_of_both != 1)
    rope.attention_factor = factor_of_both * nn::rotary_magnitude(rope);
}

/// What gemma2 and gemma3 have beside others. Weights of norms are the sums there.
LORA_INLINE void read_gemma(const io::Gguf& file, const std::string& arch, Config& config) {
  config.post_norms = true;
  config.gate = kernel::Gate::gelu_tanh;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.query_scalar = gguf_query_scalar(config);
  const auto number = [&](std::string_view name, double otherwise) {
    const double value = file.get<double>(concat(arch, ".", name)).value_or(otherwise);
    return std::stod(concat(static_cast<float>(value)));
  };
  config.attention_cap = number("attn_logit_softcapping", arch == "gemma2" ? 50 : 0);
  config.logit_cap = number("final_logit_softcapping", arch == "gemma2" ? 30 : 0);
  if (arch == "gemma2") return;
  config.window_rope.emplace();
  config.window_rope->theta = number("rope.freq_base_swa", 1e4);
}

}  // namespace lora::model::detail

namespace lora::model {

LORA_INLINE std::vector<bool> rotates_in_gguf(std::string_view architecture, Index layers) {
  std::vector<bool> rotates(static_cast<std::size_t>(layers), true);
  if (architecture == "smollm3")
    for (std::size_t i = 3; i < rotates.size(); i += 4) rotates[i] = false;
  return rotates;
}

LORA_INLINE std::string_view gguf_architecture(const Config& config) {
  if (config.model_type == "mistral") return "llama";
  return config.model_type == "gemma3_text" ? std::string_view("gemma3") : config.model_type;
}

LORA_INLINE std::vector<Index> windows_in_gguf(std::string_view architecture, Index layers, Index window) {
  std::vector<Index> windows(static_cast<std::size_t>(layers), 0);
  const std::size_t every = architecture == "gemma2" ? 2 : architecture == "gemma3" ? 6 : 0;
  if (every == 0) return windows;
  for (std::size_t i = 0; i < windows.size(); ++i) windows[i] = i % every < every - 1 ? window : 0;
  return windows;
}

LORA_INLINE double gguf_query_scalar(const Config& config) {
  const bool by_width = config.num_hidden_layers == (config.model_type == "gemma2" ? 46 : 62);  // the 27B models
  return static_cast<double>(by_width ? config.hidden_size / config.num_attention_heads : config.head_dim);
}

LORA_INLINE Config read_config(const io::Gguf& file) {
  const std::string& where = file.name();
  Config config;
  if (const auto kind = file.get<std::string>("general.type"); kind && *kind == "adapter")
    fail<FormatError>(where, ": an adapter as llama.cpp loads it beside its model; expected a whole model: export ",
                      "without adapter_only writes one, and here adapter_name_or_path takes the adapter's folder");
  config.model_type = file.at<std::string>("general.architecture");
  const std::string arch = config.model_type;
  const bool gemma = arch == "gemma2" || arch == "gemma3";
  if (arch != "llama" && arch != "qwen2" && arch != "qwen3" && arch != "smollm3" && !gemma)
    fail<FormatError>(where, ": \"general.architecture\" is \"", arch,
                      "\", which is not supported; expected gemma2, gemma3, llama, qwen2, qwen3 or smollm3");
  if (arch == "gemma3") config.model_type = "gemma3_text";
  const auto key = [&](std::string_view name) { return concat(arch, ".", name); };
  config.hidden_size = file.at<Index>(key("embedding_length"));
  config.intermediate_size = file.at<Index>(key("feed_forward_length"));
  config.num_hidden_layers = file.at<Index>(key("block_count"));
  config.num_attention_heads = file.at<Index>(key("attention.head_count"));
  detail::check_extent(key("block_count"), config.num_hidden_layers, where, 10'000);
  detail::check_extent(key("attention.head_count"), config.num_attention_heads, where, 1 << 16);
  config.num_key_value_heads = file.get<Index>(key("attention.head_count_kv")).value_or(config.num_attention_heads);
  config.head_dim =
      file.get<Index>(key("attention.key_length")).value_or(config.hidden_size / config.num_attention_heads);
  config.max_position_embeddings = file.get<Index>(key("context_length")).value_or(0);
  config.rms_norm_eps = file.at<double>(key("attention.layer_norm_rms_epsilon"));
  // A float32 in the file: restore the decimal number of config.json, 1e-5 instead of 9.9999997e-6.
  config.rms_norm_eps = std::stod(concat(static_cast<float>(config.rms_norm_eps)));
  config.rope.theta = std::stod(concat(static_cast<float>(file.get<double>(key("rope.freq_base")).value_or(1e4))));
  if (gemma) detail::read_gemma(file, arch, config);

  const auto refuse = [&](std::string_view name, Index value) {
    fail<FormatError>(where, ": \"", name, "\" is ", value, ", which is not supported");
  };
  if (const auto experts = file.get<Index>(key("expert_count")).value_or(0); experts != 0)
    refuse(key("expert_count"), experts);
  const Index window = file.get<Index>(key("attention.sliding_window")).value_or(0);
  if (gemma && window == 0) refuse(key("attention.sliding_window"), window);
  if (!gemma && window != 0) refuse(key("attention.sliding_window"), window);
  if (const auto every = file.get<Index>(key("attention.sliding_window_pattern"));
      every && *every != (arch == "gemma2" ? 2 : 6))
    refuse(key("attention.sliding_window_pattern"), *every);
  if (const auto values = file.get<Index>(key("attention.value_length")).value_or(config.head_dim);
      values != config.head_dim)
    refuse(key("attention.value_length"), values);
  if (const auto turned = file.get<Index>(key("rope.dimension_count")).value_or(config.head_dim);
      turned != config.head_dim)
    refuse(key("rope.dimension_count"), turned);

  detail::read_rope_scaling(file, arch, config);

  const auto* embedding = file.find("token_embd.weight");
  if (embedding == nullptr) fail<FormatError>(where, ": the tensor token_embd.weight is missing");
  config.vocab_size = embedding->shape[0];
  config.tie_word_embeddings = file.find("output.weight") == nullptr;
  config.qkv_bias = file.find("blk.0.attn_q.bias") != nullptr;
  config.o_bias = file.find("blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = file.find("blk.0.ffn_gate.bias") != nullptr;
  config.qk_norm = arch == "qwen3" || arch == "gemma3";
  config.rotates = rotates_in_gguf(arch, config.num_hidden_layers);
  config.windows = windows_in_gguf(arch, config.num_hidden_layers, window);
  for (const auto* name : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (const auto id = file.get<std::int32_t>(name);
        id && std::count(config.eos_token_ids.begin(), config.eos_token_ids.end(), *id) == 0)
      config.eos_token_ids.push_back(*id);
  config.bos_token_id = file.get<std::int32_t>("tokenizer.ggml.bos_token_id");
  detail::check(config, where);
  if (const auto* factors = file.find("rope_freqs.weight"); factors != nullptr) {
    if (factors->dtype != DType::f32 || factors->shape != Shape{config.head_dim / 2})
      fail<FormatError>(where, ": rope_freqs.weight is ", name_of(factors->dtype), " ", to_string(factors->shape),
                        "; expected F32 ", to_string(Shape{config.head_dim / 2}));
    config.rope.frequency_factors.resize(static_cast<std::size_t>(config.head_dim / 2));
    std::memcpy(config.rope.frequency_factors.data(), factors->bytes.data(), factors->bytes.size());
    for (const float factor : config.rope.frequency_factors)
      if (!(factor > 0 && std::isfinite(factor)))
        fail<FormatError>(where, ": rope_freqs.weight holds ", factor, "; expected positive numbers");
    detail::recognise_llama3(config.rope, config.head_dim);
    detail::check_rope(config.rope, config.head_dim, where);
  }
  return config;
}

}  // namespace lora::model
