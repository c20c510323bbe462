#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// The length of sequence that a model was made for, rope scaling included; 0: not said.
inline Index longest_sequence(const Config& config) {
  const bool scaled = config.rope.scaling != nn::RopeConfig::Scaling::none;
  const double stretched = scaled ? config.rope.factor * config.rope.original_max_position_embeddings : 0;
  return std::max(config.max_position_embeddings, static_cast<Index>(std::clamp(stretched, 0.0, 0x1p53)));
}

namespace detail {

constexpr std::string_view supported_models = "llama, qwen2, qwen3, smollm3";

/// Refuses a field unless it is absent or the number that means "off", if there is one.
inline void require_off(const io::Json& json, std::string_view field, const std::string& where,
                        std::optional<double> off = std::nullopt) {
  const io::Json* value = io::json_find(json, field);
  if (value == nullptr || (off && value->is_number() && value->get<double>() == *off)) return;
  fail<FormatError>(where, ": \"", field, "\" is ", io::shown(*value), ", which is not supported",
                    off ? concat("; expected ", *off) : std::string());
}

inline void check_extent(std::string_view name, Index value, const std::string& where, Index limit = Index{1} << 24) {
  if (value < 1 || value > limit) fail<FormatError>(where, ": \"", name, "\" is ", value, "; expected 1 to ", limit);
}

inline void check_rope(const nn::RopeConfig& rope, Index head_dim, const std::string& where) {
  if (!(rope.theta > 1 && std::isfinite(rope.theta)))
    fail<FormatError>(where, ": \"rope_theta\" is ", rope.theta, "; expected more than 1");
  if (!(rope.factor > 0 && std::isfinite(rope.factor)))
    fail<FormatError>(where, ": the rope scaling \"factor\" is ", rope.factor);
  const bool stretches =
      rope.scaling == nn::RopeConfig::Scaling::llama3 || rope.scaling == nn::RopeConfig::Scaling::yarn;
  if (stretches && !(rope.original_max_position_embeddings >= 1 && rope.original_max_position_embeddings < 0x1p53))
    fail<FormatError>(where, ": the original context length of the rope scaling is ",
                      rope.original_max_position_embeddings, "; expected at least 1");
  const auto frequencies = nn::inverse_frequencies(rope, head_dim);
  if (!std::isfinite(nn::rotary_magnitude(rope)) ||
      !std::all_of(frequencies.begin(), frequencies.end(), [](float f) { return std::isfinite(f); }))
    fail<FormatError>(where, ": the rope settings give frequencies that are no finite numbers");
}

}  // namespace detail

inline void check_ids(std::string_view name, const std::vector<std::int32_t>& ids, const std::string& where) {
  for (const std::int32_t id : ids)
    if (id < 0) fail<FormatError>(where, ": \"", name, "\" is ", id, "; expected a token's id");
}

namespace detail {

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
  check_rope(config.rope, config.head_dim, where);
  if (config.max_position_embeddings < 0)
    fail<FormatError>(where, ": \"max_position_embeddings\" is ", config.max_position_embeddings);
  check_ids("eos_token_id", config.eos_token_ids, where);
  if (config.bos_token_id) check_ids("bos_token_id", {*config.bos_token_id}, where);
}

/// The object with the rotary settings: rope_scaling, which as in transformers replaces all of rope_parameters unless
/// it is empty, or rope_parameters; null where there is none. Throws   FormatError for settings by type of layer
template <class Json>
Json* rope_object(Json& json, const std::string& where) {
  for (const auto* key : {"rope_scaling", "rope_parameters"}) {
    const auto place = json.find(key);
    if (place == json.end() || place->is_null()) continue;
    if (place->is_object() && place->empty()) continue;
    if (!place->is_object()) fail<FormatError>(where, ": \"", key, "\" must be an object, found ", io::shown(*place));
    for (const auto& [name, value] : io::json_fields(*place))
      if (value.is_object())
        fail<FormatError>(where, ": \"", key, "\" has settings for \"", name,
                          "\" alone, which is not supported; expected one set of numbers for all layers");
    return &*place;
  }
  return nullptr;
}

}  // namespace detail

/// rope_theta, which the new spelling keeps among rope_parameters and the old one beside rope_scaling.
inline double theta_of(const io::Json& json, double otherwise, const std::string& where) {
  const io::Json* object = detail::rope_object(json, where);
  if (object != nullptr)
    if (const auto theta = io::json_get<double>(*object, "rope_theta", where)) return *theta;
  return io::json_get<double>(json, "rope_theta", where).value_or(otherwise);
}

namespace detail {

inline nn::RopeConfig rope_of(const io::Json& json, double default_theta, Index max_positions,
                              const std::string& where) {
  nn::RopeConfig rope;
  rope.theta = theta_of(json, default_theta, where);
  const io::Json* scaling = rope_object(json, where);
  if (scaling == nullptr) return rope;
  const auto number = [&](std::string_view key, double otherwise) {
    return io::json_get<double>(*scaling, key, where).value_or(otherwise);
  };
  auto kind = io::json_get<std::string>(*scaling, "rope_type", where);
  if (!kind) kind = io::json_get<std::string>(*scaling, "type", where);
  require_off(*scaling, "partial_rotary_factor", where, 1);
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
  // Left out, the window has a default; only null means none.
  const auto window = json.find("sliding_window");
  if (!io::json_get<bool>(json, "use_sliding_window", where).value_or(false) ||
      (window != json.end() && window->is_null()))
    return;
  const Index from = io::json_get<Index>(json, "max_window_layers", where).value_or(0);
  if (from < layers)
    fail<FormatError>(where, ": \"use_sliding_window\" is true with \"sliding_window\" ",
                      window == json.end() ? std::string("left out") : io::shown(*window), " from layer ", from,
                      ", which is not supported");
}

}  // namespace detail

/// Which layers turn queries and keys: all, but for no_rope_layers (1 = uses RoPE) or smollm3's own default.
inline std::vector<bool> rotates_of(const io::Json& json, Index layers, bool smollm3, const std::string& where) {
  std::vector<bool> rotates(static_cast<std::size_t>(layers), true);
  if (io::json_find(json, "no_rope_layers") != nullptr) {
    const auto uses = io::json_at<std::vector<Index>>(json, "no_rope_layers", where);
    if (!uses.empty() && uses.size() < rotates.size())
      fail<FormatError>(where, ": \"no_rope_layers\" has ", uses.size(), " entries for ", layers, " layers");
    for (std::size_t i = 0; i < std::min(uses.size(), rotates.size()); ++i) rotates[i] = uses[i] != 0;
  } else if (smollm3) {
    const Index interval = io::json_get<Index>(json, "no_rope_layer_interval", where).value_or(4);
    detail::check_extent("no_rope_layer_interval", interval, where);
    for (Index i = 0; i < layers; ++i) rotates[static_cast<std::size_t>(i)] = (i + 1) % interval != 0;
  }
  return rotates;
}

inline std::vector<std::int32_t> ids_of(const io::Json& json, std::string_view key, const std::string& where) {
  const io::Json* value = io::json_find(json, key);
  if (value == nullptr) return {};
  if (value->is_array()) return io::json_as<std::vector<std::int32_t>>(*value, where, key);
  return {io::json_as<std::int32_t>(*value, where, key)};
}

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
  // Left out, transformers has a default; null means as many as heads.
  const Index kv_heads = json.contains("num_key_value_heads") || llama ? config.num_attention_heads : smollm3 ? 4 : 32;
  config.num_key_value_heads = io::json_get<Index>(json, "num_key_value_heads", where).value_or(kv_heads);
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
  config.eos_token_ids = ids_of(json, "eos_token_id", where);
  config.bos_token_id = io::json_get<std::int32_t>(json, "bos_token_id", where);

  if (const io::Json* activation = io::json_find(json, "hidden_act");
      activation != nullptr && !io::json_is(*activation, "silu"))
    fail<FormatError>(where, ": \"hidden_act\" is ", io::shown(*activation),
                      ", which is not supported; expected \"silu\"");
  detail::require_off(json, "attention_dropout", where, 0);
  detail::require_off(json, "num_experts", where, 0);
  detail::require_off(json, "num_local_experts", where, 0);
  detail::require_off(json, "partial_rotary_factor", where, 1);
  detail::require_off(json, "quantization_config", where);
  detail::refuse_sliding_window(json, config.num_hidden_layers, where);

  config.rotates = rotates_of(json, config.num_hidden_layers, smollm3, where);
  detail::check(config, where);
  return config;
}

/// config.json of a model folder.
inline Config read_config(const std::filesystem::path& folder) {
  const auto file = folder / "config.json";
  return parse_config(io::read_json(file), file.native());
}

}  // namespace lora::model
