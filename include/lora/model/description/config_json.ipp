#pragma once

#include "lora/core/config.hpp"
#include "lora/model/description/config_json.hpp"

namespace lora::model::detail {

/// The fields that say which layers have a window, and of how many keys. mistral's has a default, which null takes
/// away.
LORA_INLINE void write_windows(io::Json& json, const Config& config) {
  const Index window = narrowest_window(config);
  const WindowRule rule = type_of(config).windows;
  if (window > 0 || rule == WindowRule::all) json["sliding_window"] = window > 0 ? io::Json(window) : io::Json(nullptr);
  if (window == 0 || rule == WindowRule::all) return;
  if (rule != WindowRule::alternate) json["use_sliding_window"] = true;
  json["layer_types"] = io::Json::array();
  for (const Index own : config.windows)
    json["layer_types"].push_back(own > 0 ? "sliding_attention" : "full_attention");
}

/// What is written for gemma2 and gemma3_text alone.
LORA_INLINE void write_gemma(io::Json& json, const Config& config) {
  const auto cap = [](double value) { return value > 0 ? io::Json(value) : io::Json(nullptr); };
  json["hidden_activation"] = "gelu_pytorch_tanh";
  // transformers wants an integer where it is one.
  const bool whole = config.query_scalar == std::floor(config.query_scalar) && config.query_scalar < 0x1p53;
  json["query_pre_attn_scalar"] =
      whole ? io::Json(static_cast<std::int64_t>(config.query_scalar)) : io::Json(config.query_scalar);
  json["attn_logit_softcapping"] = cap(config.attention_cap);
  json["final_logit_softcapping"] = cap(config.logit_cap);
  if (config.window_rope) json["rope_local_base_freq"] = config.window_rope->theta;
}

/// no_rope_layers in smollm3's form: 1 = uses RoPE.
LORA_INLINE io::Json no_rope_layers_of(const Config& config) {
  io::Json uses = io::Json::array();
  for (const bool rotates : config.rotates) uses.push_back(rotates ? 1 : 0);
  return uses;
}

}  // namespace lora::model::detail

namespace lora::model {

LORA_INLINE void write_rotary(io::Json& json, const Config& config, const std::string& where) {
  const Config before = parse_config(json, where);
  if (before.rope.theta != config.rope.theta) {
    const auto settings = detail::rope_settings(io::JsonView(json, where));
    const bool nested = settings && settings->name() == detail::full_layers;
    const bool inside =
        settings && (settings->json().contains("rope_theta") || settings->name() == "rope_parameters" || nested);
    if (inside) {
      io::Json& object = nested ? json["rope_parameters"] : json;
      object[settings->name()]["rope_theta"] = config.rope.theta;
    }
    if (!inside || json.contains("rope_theta")) json["rope_theta"] = config.rope.theta;
  }
  if (before.rotates != config.rotates) json["no_rope_layers"] = detail::no_rope_layers_of(config);
}

LORA_INLINE std::vector<Index> unwritable_no_rope_layers(const Config& config) {
  std::vector<Index> layers;
  if (type_of(config).no_rope_interval > 0) return layers;
  for (std::size_t i = 0; i < config.rotates.size(); ++i)
    if (!config.rotates[i]) layers.push_back(static_cast<Index>(i));
  return layers;
}

LORA_INLINE std::string_view class_of(const Config& config) { return type_of(config).class_name; }

LORA_INLINE io::Json to_json(const Config& config, std::string_view dtype, const std::string& where) {
  if (!config.rope.frequency_factors.empty())
    fail<FormatError>(where, ": rope_freqs.weight holds factors that no config.json can express; expected those of ",
                      "Llama 3.1");
  io::Json json = io::Json::object();
  json["architectures"] = {std::string(class_of(config))};
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
  const ModelType& type = type_of(config);
  if (type.gemma) {
    detail::write_gemma(json, config);
  } else {
    json["hidden_act"] = "silu";
  }
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  if (type.attention_bias) json["attention_bias"] = type.mlp_bias ? config.o_bias : config.qkv_bias;
  if (type.mlp_bias) json["mlp_bias"] = config.mlp_bias;
  detail::write_windows(json, config);
  json["rope_theta"] = config.rope.theta;
  const auto& rope = config.rope;
  switch (rope.scaling) {
    case nn::RopeConfig::Scaling::none:
      break;
    case nn::RopeConfig::Scaling::linear:
      json["rope_scaling"] = io::json_object({{"rope_type", "linear"}, {"factor", rope.factor}});
      break;
    case nn::RopeConfig::Scaling::llama3:
      json["rope_scaling"] = io::json_object(
          {{"rope_type", "llama3"},
           {"factor", rope.factor},
           {"low_freq_factor", rope.low_freq_factor},
           {"high_freq_factor", rope.high_freq_factor},
           {"original_max_position_embeddings", static_cast<Index>(rope.original_max_position_embeddings)}});
      break;
    case nn::RopeConfig::Scaling::yarn:
      json["rope_scaling"] = io::json_object(
          {{"rope_type", "yarn"},
           {"factor", rope.factor},
           {"beta_fast", rope.beta_fast},
           {"beta_slow", rope.beta_slow},
           {"original_max_position_embeddings", static_cast<Index>(rope.original_max_position_embeddings)}});
      for (const auto& [name, value] :
           {std::pair("attention_factor", rope.attention_factor), std::pair("mscale", rope.mscale),
            std::pair("mscale_all_dim", rope.mscale_all_dim)})
        if (value != 0) json["rope_scaling"][name] = value;
      if (!rope.truncate) json["rope_scaling"]["truncate"] = false;
      break;
    case nn::RopeConfig::Scaling::longrope:
      json["original_max_position_embeddings"] = static_cast<Index>(rope.original_max_position_embeddings);
      json["rope_scaling"] = io::json_object(
          {{"type", "longrope"}, {"short_factor", rope.short_factors}, {"long_factor", rope.long_factors}});
      if (rope.factor != static_cast<double>(config.max_position_embeddings) / rope.original_max_position_embeddings)
        json["rope_scaling"]["factor"] = rope.factor;
      if (rope.attention_factor != 0) json["rope_scaling"]["attention_factor"] = rope.attention_factor;
      break;
  }
  if (type.no_rope_interval > 0 || !unwritable_no_rope_layers(config).empty())
    json["no_rope_layers"] = detail::no_rope_layers_of(config);
  if (config.eos_token_ids.size() == 1) json["eos_token_id"] = config.eos_token_ids.front();
  if (config.eos_token_ids.size() > 1) json["eos_token_id"] = config.eos_token_ids;
  // Left out, they would have the type's defaults, and a padding token beyond the vocabulary keeps transformers from
  // making the model.
  if (config.eos_token_ids.empty() && type.eos_token_id) json["eos_token_id"] = nullptr;
  const auto token = [&](const char* name, std::optional<std::int32_t> id, bool has_default) {
    if (id && *id < config.vocab_size)
      json[name] = *id;
    else if (has_default)
      json[name] = nullptr;
  };
  token("bos_token_id", config.bos_token_id, type.bos_token_id.has_value());
  token("pad_token_id", config.pad_token_id, type.pad_token_id.has_value());
  json["dtype"] = std::string(dtype);
  json["torch_dtype"] = std::string(dtype);

  const Config back = parse_config(json, where);
  if (back.qkv_bias != config.qkv_bias || back.o_bias != config.o_bias || back.mlp_bias != config.mlp_bias) {
    const auto said = [](const Config& c) {
      const auto word = [](bool there) { return there ? "biases" : "none"; };
      return concat("q, k, v ", word(c.qkv_bias), ", o ", word(c.o_bias), ", mlp ", word(c.mlp_bias));
    };
    fail<FormatError>(where, ": has ", said(config), ", which no config.json of a ", config.model_type,
                      " model can express; it would mean ", said(back));
  }
  if (back.window_rope.has_value() != config.window_rope.has_value() ||
      (config.window_rope && (config.window_rope->scaling != nn::RopeConfig::Scaling::none ||
                              !config.window_rope->frequency_factors.empty())))
    fail<FormatError>(where, ": layers with a window have rotary settings that no config.json of a ", config.model_type,
                      " model can express");
  if (back.windows != config.windows)
    fail<FormatError>(where, ": has windows that no config.json of a ", config.model_type, " model can express");
  return json;
}

}  // namespace lora::model
