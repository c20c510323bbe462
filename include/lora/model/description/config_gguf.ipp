#pragma once

#include <cstddef>
#include <cstdint>

#include "lora/core/config.hpp"
#include "lora/model/description/config_gguf.hpp"

namespace lora::model::detail {

/// Llama 3.1's scaling, which GGUF keeps as the tensor rope_freqs.weight: recognized, so that a config.json can be
/// written.
LORA_INLINE void recognize_llama3(nn::RopeConfig& rope, Index width) {
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

/// Rejects what the metadata say of rope scaling unless it is absent or has the value without effect.
LORA_INLINE void expect_rope_number(const io::Gguf& file, const std::string& prefix, std::string_view name,
                                    double plain) {
  const double value = file.get<double>(concat(prefix, name)).value_or(plain);
  if (value != plain)
    fail<FormatError>(file.name(), ": \"", prefix, name, "\" is ", value, ", which is not supported; expected ", plain);
}

LORA_INLINE void fail_rope_type(const io::Gguf& file, const std::string& prefix, const std::string& kind,
                                std::string_view expected) {
  fail<FormatError>(file.name(), ": \"", prefix, "type\" is \"", kind, "\", which is not supported; expected ",
                    expected);
}

/// The rope scaling in the metadata. A factor without a type is linear, like in llama.cpp.
LORA_INLINE void read_rope_scaling(const io::Gguf& file, const std::string& arch, Config& config) {
  const std::string prefix = arch + ".rope.scaling.";
  const auto number = [&](std::string_view name) { return file.get<double>(concat(prefix, name)); };
  auto factor = number("factor");
  if (!factor) factor = file.get<double>(arch + ".rope.scale_linear");
  const auto kind = file.get<std::string>(prefix + "type").value_or(factor.value_or(0) != 0 ? "linear" : "none");
  if (kind != "none" && kind != "linear" && kind != "yarn") fail_rope_type(file, prefix, kind, "none, linear or yarn");
  expect_rope_number(file, prefix, "yarn_ext_factor", 1);
  expect_rope_number(file, prefix, "yarn_attn_factor", 1);
  expect_rope_number(file, prefix, "yarn_log_multiplier", 0);
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

/// The factors of a tensor that divide a head's frequencies.
/// Throws   FormatError for other types and extents, and numbers that are not positive
LORA_INLINE std::vector<float> rope_factors(const io::Gguf& file, const io::StoredTensor& tensor, Index pairs) {
  if (tensor.dtype != DType::f32 || tensor.shape != Shape{pairs})
    fail<FormatError>(file.name(), ": ", tensor.name, " is ", name_of(tensor.dtype), " ", to_string(tensor.shape),
                      "; expected F32 ", to_string(Shape{pairs}));
  std::vector<float> factors(static_cast<std::size_t>(pairs));
  std::memcpy(factors.data(), tensor.bytes.data(), tensor.bytes.size());
  for (const float factor : factors)
    if (!(factor > 0 && std::isfinite(factor)))
      fail<FormatError>(file.name(), ": ", tensor.name, " holds ", factor, "; expected positive numbers");
  return factors;
}

/// phi3's longrope, whose factors are tensors.
LORA_INLINE void read_longrope(const io::Gguf& file, const std::string& arch, Config& config) {
  const auto* const shorter = file.find("rope_factors_short.weight");
  const auto* const longer = file.find("rope_factors_long.weight");
  nn::RopeConfig& rope = config.rope;
  const std::string prefix = arch + ".rope.scaling.";
  if (const auto kind = file.get<std::string>(prefix + "type").value_or("none"); kind != "none" && kind != "longrope")
    fail_rope_type(file, prefix, kind, "none or longrope, whose factors are tensors");
  for (const char* name : {"factor", "yarn_ext_factor", "yarn_attn_factor"}) expect_rope_number(file, prefix, name, 1);
  if (shorter == nullptr && longer == nullptr) return;
  if (shorter == nullptr || longer == nullptr)
    fail<FormatError>(file.name(), ": the tensor rope_factors_", shorter == nullptr ? "short" : "long",
                      ".weight is missing beside the other one");
  rope.scaling = nn::RopeConfig::Scaling::longrope;
  rope.short_factors = rope_factors(file, *shorter, config.head_dim / 2);
  rope.long_factors = rope_factors(file, *longer, config.head_dim / 2);
  rope.original_max_position_embeddings = file.at<double>(prefix + "original_context_length");
  if (config.max_position_embeddings == 0) (void)file.at<Index>(arch + ".context_length");
  rope.factor = static_cast<double>(config.max_position_embeddings) / rope.original_max_position_embeddings;
  // A float32 of what follows from the lengths, or another number.
  const double given = file.get<double>(prefix + "attn_factor").value_or(1);
  if (!(given > 0))
    fail<FormatError>(file.name(), ": \"", prefix, "attn_factor\" is ", given, "; expected more than 0");
  if (std::abs(given - nn::rotary_magnitude(rope)) > 1e-6 * given) rope.attention_factor = given;
}

/// What gemma2 and gemma3 have beside others.
LORA_INLINE void read_gemma(const io::Gguf& file, const std::string& arch, const ModelType& type, Config& config) {
  config.norm_offset = 1;
  config.post_norms = true;
  config.gate = kernel::Gate::gelu_tanh;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.query_scalar = gguf_query_scalar(config);
  const auto number = [&](std::string_view name, double otherwise) {
    const double value = file.get<double>(concat(arch, ".", name)).value_or(otherwise);
    return std::stod(concat(static_cast<float>(value)));
  };
  config.attention_cap = number("attn_logit_softcapping", type.attention_cap);
  config.logit_cap = number("final_logit_softcapping", type.logit_cap);
  if (!type.window_rope) return;
  config.window_rope.emplace();
  config.window_rope->theta = number("rope.freq_base_swa", 1e4);
}

}  // namespace lora::model::detail

namespace lora::model {

LORA_INLINE std::vector<bool> rotates_in_gguf(const ModelType& type, Index layers) {
  std::vector<bool> rotates;
  for (Index i = 0; i < layers; ++i)
    rotates.push_back(type.no_rope_interval == 0 || (i + 1) % type.no_rope_interval != 0);
  return rotates;
}

LORA_INLINE std::string_view gguf_architecture(const Config& config) { return gguf_architecture(type_of(config)); }

LORA_INLINE std::vector<Index> windows_in_gguf(const ModelType& type, Index layers, Index window) {
  std::vector<Index> windows;
  for (Index i = 0; i < layers; ++i)
    windows.push_back(type.window_interval == 0 || (i + 1) % type.window_interval != 0 ? window : 0);
  return windows;
}

LORA_INLINE double gguf_query_scalar(const Config& config) {
  const bool by_width = config.num_hidden_layers == type_of(config).gguf_layers_by_width;
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
  const ModelType* const type = find_gguf_type(arch);
  if (type == nullptr)
    fail<FormatError>(where, ": \"general.architecture\" is \"", arch, "\", which is not supported; expected one of ",
                      gguf_architecture_list());
  config.model_type = std::string(type->name);
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
  if (type->gemma) detail::read_gemma(file, arch, *type, config);

  const auto refuse = [&](std::string_view name, Index value, Index expected) {
    fail<FormatError>(where, ": \"", name, "\" is ", value, ", which is not supported; expected ", expected);
  };
  if (const auto experts = file.get<Index>(key("expert_count")).value_or(0); experts != 0)
    refuse(key("expert_count"), experts, 0);
  const std::string window_key = key("attention.sliding_window");
  const bool alternates = type->windows == WindowRule::alternate;  // and must have one
  const Index window = alternates && type->gguf_window == 0 ? file.at<Index>(window_key)
                                                            : file.get<Index>(window_key).value_or(type->gguf_window);
  if (window < 0 || (!type->gguf_windows && window > 0)) refuse(window_key, window, 0);
  if (alternates && window == 0) fail<FormatError>(where, ": \"", window_key, "\" is 0; expected more");
  if (const auto interval = file.get<Index>(window_key + "_pattern"); interval && *interval != type->window_interval)
    refuse(window_key + "_pattern", *interval, type->window_interval);
  if (const auto values = file.get<Index>(key("attention.value_length")).value_or(config.head_dim);
      values != config.head_dim)
    refuse(key("attention.value_length"), values, config.head_dim);
  if (const auto turned = file.get<Index>(key("rope.dimension_count")).value_or(config.head_dim);
      turned != config.head_dim)
    refuse(key("rope.dimension_count"), turned, config.head_dim);

  if (type->longrope) {
    detail::read_longrope(file, arch, config);
  } else {
    detail::read_rope_scaling(file, arch, config);
  }

  const auto* embedding = file.find("token_embd.weight");
  if (embedding == nullptr) fail<FormatError>(where, ": the tensor token_embd.weight is missing");
  config.vocab_size = embedding->shape[0];
  config.tie_word_embeddings = file.find("output.weight") == nullptr;
  config.fused = type->fused;
  config.qkv_bias = file.find("blk.0.attn_q.bias") != nullptr;
  config.o_bias = file.find("blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = file.find("blk.0.ffn_gate.bias") != nullptr;
  config.qk_norm = type->qk_norm;
  config.rotates = rotates_in_gguf(*type, config.num_hidden_layers);
  config.windows = windows_in_gguf(*type, config.num_hidden_layers, window);
  for (const auto* name : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (const auto id = file.get<std::int32_t>(name);
        id && std::count(config.eos_token_ids.begin(), config.eos_token_ids.end(), *id) == 0)
      config.eos_token_ids.push_back(*id);
  config.bos_token_id = file.get<std::int32_t>("tokenizer.ggml.bos_token_id");
  config.pad_token_id = file.get<std::int32_t>("tokenizer.ggml.padding_token_id");
  detail::check(config, where);
  if (const auto* factors = file.find("rope_freqs.weight"); factors != nullptr) {
    config.rope.frequency_factors = detail::rope_factors(file, *factors, config.head_dim / 2);
    detail::recognize_llama3(config.rope, config.head_dim);
    detail::check_rope(config.rope, config.head_dim, where);
  }
  return config;
}

}  // namespace lora::model
