#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/gguf.hpp"
#include "lora/io/json.hpp"
#include "lora/nn/rotary.hpp"

namespace lora::model {

/// A decoder's architecture, as a Hugging Face config.json or GGUF metadata describe it.
struct Config {
  std::string model_type;         ///< qwen2, qwen3, llama or smollm3
  Index hidden_size = 0;          // E
  Index intermediate_size = 0;    // F
  Index num_hidden_layers = 0;    // L
  Index num_attention_heads = 0;  // H
  Index num_key_value_heads = 0;  // G
  Index head_dim = 0;             // C
  Index vocab_size = 0;           // V
  Index max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  nn::RopeConfig rope;
  std::vector<bool> rotates;  ///< per layer: false is a layer without rotary embedding
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool tie_word_embeddings = false;
  std::string dtype;  ///< the checkpoint's own, "" if it does not say
  std::vector<std::int32_t> eos_token_ids{};
  std::optional<std::int32_t> bos_token_id{};
};

namespace detail {

constexpr std::string_view supported_models = "llama, qwen2, qwen3, smollm3";

/// Refuses a field unless it is absent or has one of the values that mean "off".
inline void require_absent(const io::Json& json, std::string_view field, const std::string& where,
                           const std::vector<io::Json>& accepted) {
  const io::Json* value = io::json_find(json, field);
  if (value == nullptr) return;
  for (const auto& choice : accepted)
    if (*value == choice) return;
  fail<FormatError>(where, ": \"", field, "\" is ", io::to_text(*value, -1), ", which is not supported",
                    accepted.empty() ? std::string() : concat("; expected ", io::to_text(accepted.front(), -1)));
}

inline void check_extent(std::string_view name, Index value, const std::string& where, Index limit = Index{1} << 24) {
  if (value < 1 || value > limit) fail<FormatError>(where, ": \"", name, "\" is ", value, "; expected 1 to ", limit);
}

/// What both sources have in common once every field is read.
inline void check(const Config& config, const std::string& where) {
  check_extent("hidden_size", config.hidden_size, where);
  check_extent("intermediate_size", config.intermediate_size, where);
  check_extent("num_hidden_layers", config.num_hidden_layers, where, 10'000);
  check_extent("num_attention_heads", config.num_attention_heads, where, 1 << 16);
  check_extent("num_key_value_heads", config.num_key_value_heads, where, 1 << 16);
  check_extent("head_dim", config.head_dim, where, 1 << 16);
  check_extent("vocab_size", config.vocab_size, where);
  if (config.num_attention_heads % config.num_key_value_heads != 0)
    fail<FormatError>(where, ": ", config.num_attention_heads, " attention heads can't share ",
                      config.num_key_value_heads, " key heads");
  if (config.head_dim % 2 != 0)
    fail<FormatError>(where, ": \"head_dim\" is ", config.head_dim, "; expected an even number");
  if (!(config.rms_norm_eps >= 0 && config.rms_norm_eps < 1))
    fail<FormatError>(where, ": \"rms_norm_eps\" is ", config.rms_norm_eps);
  if (!(config.rope.theta > 1))
    fail<FormatError>(where, ": \"rope_theta\" is ", config.rope.theta, "; expected more than 1");
  if (!(config.rope.factor > 0)) fail<FormatError>(where, ": the rope scaling \"factor\" is ", config.rope.factor);
}

/// rope_theta and rope_scaling in the old spelling, rope_parameters in the new one.
inline nn::RopeConfig rope_of(const io::Json& json, double default_theta, Index max_positions,
                              const std::string& where) {
  nn::RopeConfig rope;
  rope.theta = io::json_get<double>(json, "rope_theta", where).value_or(default_theta);
  const io::Json* scaling = io::json_find(json, "rope_parameters");
  if (scaling == nullptr) scaling = io::json_find(json, "rope_scaling");
  if (scaling == nullptr) return rope;
  if (!scaling->is_object())
    fail<FormatError>(where, ": \"rope_parameters\" must be an object, found ", io::to_text(*scaling, -1));
  const auto number = [&](std::string_view key, double otherwise) {
    return io::json_get<double>(*scaling, key, where).value_or(otherwise);
  };
  rope.theta = number("rope_theta", rope.theta);
  auto kind = io::json_get<std::string>(*scaling, "rope_type", where);
  if (!kind) kind = io::json_get<std::string>(*scaling, "type", where);
  require_absent(*scaling, "partial_rotary_factor", where, {1.0});
  if (!kind || *kind == "default") return rope;
  const bool linear = *kind == "linear", llama3 = *kind == "llama3", yarn = *kind == "yarn";
  if (!linear && !llama3 && !yarn)
    fail<FormatError>(where, ": \"rope_type\" is \"", *kind,
                      "\", which is not supported; expected default, linear, llama3 or yarn");
  rope.scaling = linear   ? nn::RopeConfig::Scaling::linear
                 : llama3 ? nn::RopeConfig::Scaling::llama3
                          : nn::RopeConfig::Scaling::yarn;
  rope.factor = io::json_at<double>(*scaling, "factor", where);
  rope.original_max_position_embeddings =
      number("original_max_position_embeddings", static_cast<double>(max_positions));
  rope.low_freq_factor = number("low_freq_factor", 1);
  rope.high_freq_factor = number("high_freq_factor", 4);
  rope.beta_fast = number("beta_fast", 32);
  rope.beta_slow = number("beta_slow", 1);
  rope.attention_factor = number("attention_factor", 0);
  rope.mscale = number("mscale", 0);
  rope.mscale_all_dim = number("mscale_all_dim", 0);
  rope.truncate = io::json_get<bool>(*scaling, "truncate", where).value_or(true);
  if (!linear && !(rope.original_max_position_embeddings > 0))
    fail<FormatError>(where, ": \"original_max_position_embeddings\" is missing from the rope scaling");
  return rope;
}

/// A sliding window that some layer would use is refused; one that is configured but off is not.
inline void refuse_sliding_window(const io::Json& json, Index layers, const std::string& where) {
  if (const io::Json* types = io::json_find(json, "layer_types"); types != nullptr) {
    for (const auto& type : io::json_as<std::vector<std::string>>(*types, where, "layer_types"))
      if (type != "full_attention")
        fail<FormatError>(where, ": \"layer_types\" has \"", type,
                          "\", which is not supported; expected full_attention");
    return;
  }
  if (!io::json_get<bool>(json, "use_sliding_window", where).value_or(false) ||
      io::json_find(json, "sliding_window") == nullptr)
    return;
  const Index from = io::json_get<Index>(json, "max_window_layers", where).value_or(0);
  if (from < layers)
    fail<FormatError>(where, ": \"use_sliding_window\" is true with \"sliding_window\" ",
                      io::to_text(*io::json_find(json, "sliding_window"), -1), " from layer ", from,
                      ", which is not supported");
}

inline std::vector<std::int32_t> ids_of(const io::Json& json, std::string_view key, const std::string& where) {
  const io::Json* value = io::json_find(json, key);
  if (value == nullptr) return {};
  if (value->is_array()) return io::json_as<std::vector<std::int32_t>>(*value, where, key);
  return {io::json_as<std::int32_t>(*value, where, key)};
}

}  // namespace detail

/// Reads config.json's content. Fields that would change the arithmetic and are not supported are errors.
/// Throws   FormatError naming field and value
inline Config parse_config(const io::Json& json, const std::string& where) {
  if (!json.is_object()) fail<FormatError>(where, ": expected an object");
  Config config;
  config.model_type = io::json_at<std::string>(json, "model_type", where);
  const bool qwen2 = config.model_type == "qwen2", qwen3 = config.model_type == "qwen3";
  const bool llama = config.model_type == "llama", smollm3 = config.model_type == "smollm3";
  if (!qwen2 && !qwen3 && !llama && !smollm3)
    fail<FormatError>(where, ": \"model_type\" is \"", config.model_type,
                      "\", which is not supported; expected one of ", detail::supported_models);
  const auto count = [&](std::string_view key) { return io::json_at<Index>(json, key, where); };
  config.hidden_size = count("hidden_size");
  config.intermediate_size = count("intermediate_size");
  config.num_hidden_layers = count("num_hidden_layers");
  config.num_attention_heads = count("num_attention_heads");
  config.vocab_size = count("vocab_size");
  detail::check_extent("num_hidden_layers", config.num_hidden_layers, where, 10'000);
  detail::check_extent("num_attention_heads", config.num_attention_heads, where, 1 << 16);
  config.num_key_value_heads =
      io::json_get<Index>(json, "num_key_value_heads", where).value_or(smollm3 ? 4 : config.num_attention_heads);
  config.head_dim = io::json_get<Index>(json, "head_dim", where)
                        .value_or(qwen3 ? 128 : config.hidden_size / config.num_attention_heads);
  config.max_position_embeddings = io::json_get<Index>(json, "max_position_embeddings", where).value_or(0);
  config.rms_norm_eps = io::json_get<double>(json, "rms_norm_eps", where).value_or(1e-6);
  config.tie_word_embeddings = io::json_get<bool>(json, "tie_word_embeddings", where).value_or(smollm3);
  const bool attention_bias = io::json_get<bool>(json, "attention_bias", where).value_or(false);
  config.qkv_bias = qwen2 || attention_bias;
  config.o_bias = !qwen2 && attention_bias;
  config.mlp_bias = (llama || smollm3) && io::json_get<bool>(json, "mlp_bias", where).value_or(false);
  config.qk_norm = qwen3;
  config.rope = detail::rope_of(json, smollm3 ? 2e6 : 1e4, config.max_position_embeddings, where);
  auto dtype = io::json_get<std::string>(json, "dtype", where);
  if (!dtype) dtype = io::json_get<std::string>(json, "torch_dtype", where);
  config.dtype = dtype.value_or("");
  config.eos_token_ids = detail::ids_of(json, "eos_token_id", where);
  config.bos_token_id = io::json_get<std::int32_t>(json, "bos_token_id", where);

  detail::require_absent(json, "hidden_act", where, {"silu"});
  detail::require_absent(json, "attention_dropout", where, {0.0, 0});
  detail::require_absent(json, "num_experts", where, {0});
  detail::require_absent(json, "num_local_experts", where, {0});
  detail::require_absent(json, "partial_rotary_factor", where, {1.0, 1});
  detail::require_absent(json, "quantization_config", where, {});
  detail::refuse_sliding_window(json, config.num_hidden_layers, where);

  config.rotates.assign(static_cast<std::size_t>(config.num_hidden_layers), true);
  if (io::json_find(json, "no_rope_layers") != nullptr) {  // 1 = uses RoPE
    const auto uses = io::json_at<std::vector<Index>>(json, "no_rope_layers", where);
    if (!uses.empty() && uses.size() < config.rotates.size())
      fail<FormatError>(where, ": \"no_rope_layers\" has ", uses.size(), " entries for ", config.num_hidden_layers,
                        " layers");
    for (std::size_t i = 0; i < std::min(uses.size(), config.rotates.size()); ++i) config.rotates[i] = uses[i] != 0;
  } else if (smollm3) {
    const Index interval = io::json_get<Index>(json, "no_rope_layer_interval", where).value_or(4);
    detail::check_extent("no_rope_layer_interval", interval, where);
    for (Index i = 0; i < config.num_hidden_layers; ++i)
      config.rotates[static_cast<std::size_t>(i)] = (i + 1) % interval != 0;
  }
  detail::check(config, where);
  return config;
}

/// config.json of a model folder.
inline Config read_config(const std::filesystem::path& folder) {
  const auto file = folder / "config.json";
  return parse_config(io::read_json(file), file.native());
}

namespace detail {

/// Llama 3.1's scaling, which GGUF keeps as the tensor rope_freqs.weight: recognised, so that a config.json can be
/// written.
inline void recognise_llama3(nn::RopeConfig& rope, Index width) {
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

}  // namespace detail

/// The same from a GGUF file's metadata and tensors (architectures llama, qwen2, qwen3).
inline Config read_config(const io::Gguf& file) {
  const std::string& where = file.name();
  Config config;
  config.model_type = file.at<std::string>("general.architecture");
  const std::string arch = config.model_type;
  if (arch != "llama" && arch != "qwen2" && arch != "qwen3")
    fail<FormatError>(where, ": \"general.architecture\" is \"", arch,
                      "\", which is not supported; expected llama, qwen2 or qwen3");
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
  // The file holds a float32 of the decimal number that config.json has: 1e-5, not 9.9999997e-6.
  config.rms_norm_eps = std::stod(concat(static_cast<float>(config.rms_norm_eps)));
  config.rope.theta = std::stod(concat(static_cast<float>(file.get<double>(key("rope.freq_base")).value_or(1e4))));

  const auto refuse = [&](std::string_view name, Index value) {
    fail<FormatError>(where, ": \"", name, "\" is ", value, ", which is not supported");
  };
  if (const auto experts = file.get<Index>(key("expert_count")).value_or(0); experts != 0)
    refuse(key("expert_count"), experts);
  if (const auto window = file.get<Index>(key("attention.sliding_window")).value_or(0); window != 0)
    refuse(key("attention.sliding_window"), window);
  if (const auto values = file.get<Index>(key("attention.value_length")).value_or(config.head_dim);
      values != config.head_dim)
    refuse(key("attention.value_length"), values);
  if (const auto turned = file.get<Index>(key("rope.dimension_count")).value_or(config.head_dim);
      turned != config.head_dim)
    refuse(key("rope.dimension_count"), turned);

  const auto kind = file.get<std::string>(key("rope.scaling.type")).value_or("none");
  if (kind != "none" && kind != "linear" && kind != "yarn")
    fail<FormatError>(where, ": \"", key("rope.scaling.type"), "\" is \"", kind,
                      "\", which is not supported; expected none, linear or yarn");
  if (kind != "none") {
    config.rope.scaling = kind == "linear" ? nn::RopeConfig::Scaling::linear : nn::RopeConfig::Scaling::yarn;
    config.rope.factor = file.at<double>(key("rope.scaling.factor"));
    config.rope.original_max_position_embeddings = file.get<double>(key("rope.scaling.original_context_length"))
                                                       .value_or(static_cast<double>(config.max_position_embeddings));
    config.rope.attention_factor = file.get<double>(key("rope.scaling.attn_factor")).value_or(0);
  }

  const auto* embedding = file.find("token_embd.weight");
  if (embedding == nullptr) fail<FormatError>(where, ": the tensor token_embd.weight is missing");
  config.vocab_size = embedding->shape[0];
  config.tie_word_embeddings = file.find("output.weight") == nullptr;
  config.qkv_bias = file.find("blk.0.attn_q.bias") != nullptr;
  config.o_bias = file.find("blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = file.find("blk.0.ffn_gate.bias") != nullptr;
  config.qk_norm = arch == "qwen3";
  config.rotates.assign(static_cast<std::size_t>(config.num_hidden_layers), true);
  for (const auto* name : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"})
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
      if (!(factor > 0)) fail<FormatError>(where, ": rope_freqs.weight holds ", factor, "; expected positive numbers");
    detail::recognise_llama3(config.rope, config.head_dim);
  }
  return config;
}

/// The config.json of such a model, for a base that has none (GGUF).
inline io::Json to_json(const Config& config, std::string_view dtype) {
  if (!config.rope.frequency_factors.empty())
    fail<FormatError>("rope_freqs.weight holds factors that no config.json can express; expected those of Llama 3.1");
  const std::pair<std::string_view, std::string_view> classes[] = {{"llama", "LlamaForCausalLM"},
                                                                   {"qwen2", "Qwen2ForCausalLM"},
                                                                   {"qwen3", "Qwen3ForCausalLM"},
                                                                   {"smollm3", "SmolLM3ForCausalLM"}};
  io::Json json = io::Json::object();
  for (const auto& [type, name] : classes)
    if (type == config.model_type) json["architectures"] = {std::string(name)};
  json["model_type"] = config.model_type;
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.intermediate_size;
  json["num_hidden_layers"] = config.num_hidden_layers;
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_key_value_heads"] = config.num_key_value_heads;
  json["head_dim"] = config.head_dim;
  json["vocab_size"] = config.vocab_size;
  if (config.max_position_embeddings > 0) json["max_position_embeddings"] = config.max_position_embeddings;
  json["rms_norm_eps"] = config.rms_norm_eps;
  json["hidden_act"] = "silu";
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  if (config.model_type == "llama" || config.model_type == "smollm3") {
    json["attention_bias"] = config.o_bias;
    json["mlp_bias"] = config.mlp_bias;
  } else if (config.model_type == "qwen3") {
    json["attention_bias"] = config.qkv_bias;
  }
  json["rope_theta"] = config.rope.theta;
  const auto& rope = config.rope;
  switch (rope.scaling) {
    case nn::RopeConfig::Scaling::none:
      break;
    case nn::RopeConfig::Scaling::linear:
      json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", rope.factor}};
      break;
    case nn::RopeConfig::Scaling::llama3:
      json["rope_scaling"] = {
          {"rope_type", "llama3"},
          {"factor", rope.factor},
          {"low_freq_factor", rope.low_freq_factor},
          {"high_freq_factor", rope.high_freq_factor},
          {"original_max_position_embeddings", static_cast<Index>(rope.original_max_position_embeddings)}};
      break;
    case nn::RopeConfig::Scaling::yarn:
      json["rope_scaling"] = {
          {"rope_type", "yarn"},
          {"factor", rope.factor},
          {"beta_fast", rope.beta_fast},
          {"beta_slow", rope.beta_slow},
          {"original_max_position_embeddings", static_cast<Index>(rope.original_max_position_embeddings)}};
      if (rope.attention_factor != 0) json["rope_scaling"]["attention_factor"] = rope.attention_factor;
      break;
  }
  if (config.eos_token_ids.size() == 1) json["eos_token_id"] = config.eos_token_ids.front();
  if (config.eos_token_ids.size() > 1) json["eos_token_id"] = config.eos_token_ids;
  if (config.bos_token_id) json["bos_token_id"] = *config.bos_token_id;
  json["dtype"] = std::string(dtype);
  json["torch_dtype"] = std::string(dtype);
  return json;
}

}  // namespace lora::model
