#pragma once

#include <cstdint>

#include "lora/core/config.hpp"
#include "lora/model/description/config.hpp"

namespace lora::model {

LORA_INLINE Index narrowest_window(const Config& config) {
  Index narrowest = 0;
  for (const Index window : config.windows)
    if (window > 0 && (narrowest == 0 || window < narrowest)) narrowest = window;
  return narrowest;
}

LORA_INLINE Index longest_sequence(const Config& config) {
  if (config.rope.scaling == nn::RopeConfig::Scaling::longrope)
    return std::min(config.max_position_embeddings, nn::longest_rotation(config.rope));
  const bool scaled = config.rope.scaling != nn::RopeConfig::Scaling::none;
  const double stretched = scaled ? config.rope.factor * config.rope.original_max_position_embeddings : 0;
  return std::max(config.max_position_embeddings, static_cast<Index>(std::clamp(stretched, 0.0, 0x1p53)));
}

}  // namespace lora::model

namespace lora::model::detail {

/// Rejects a field unless it is absent or has the value that means "off", if there is one.
LORA_INLINE void require_off(const io::JsonView& json, std::string_view field,
                             std::optional<double> off = std::nullopt) {
  const auto value = json.find(field);
  if (!value || (off && value->json().is_number() && value->json().get<double>() == *off)) return;
  json.fail("\"", field, "\" is ", io::shown(value->json()), ", which is not supported",
            off ? concat("; expected ", *off) : std::string());
}

LORA_INLINE void check_extent(std::string_view name, Index value, const std::string& where, Index limit) {
  if (value < 1 || value > limit) fail<FormatError>(where, ": \"", name, "\" is ", value, "; expected 1 to ", limit);
}

LORA_INLINE void check_rope(const nn::RopeConfig& rope, Index head_dim, const std::string& where,
                            std::string_view theta) {
  if (!(rope.theta > 1 && std::isfinite(rope.theta)))
    fail<FormatError>(where, ": \"", theta, "\" is ", rope.theta, "; expected more than 1");
  if (!(rope.factor > 0 && std::isfinite(rope.factor)))
    fail<FormatError>(where, ": the rope scaling \"factor\" is ", rope.factor);
  const bool longrope = rope.scaling == nn::RopeConfig::Scaling::longrope;
  const bool stretches =
      rope.scaling == nn::RopeConfig::Scaling::llama3 || rope.scaling == nn::RopeConfig::Scaling::yarn || longrope;
  if (stretches && !(rope.original_max_position_embeddings >= 1 && rope.original_max_position_embeddings < 0x1p53))
    fail<FormatError>(where, ": the original context length of the rope scaling is ",
                      rope.original_max_position_embeddings, "; expected 1 or more, and below 2^53");
  for (const auto& [name, factors] :
       {std::pair("short_factor", &rope.short_factors), std::pair("long_factor", &rope.long_factors)})
    if (longrope && std::ssize(*factors) != head_dim / 2)
      fail<FormatError>(where, ": the rope scaling \"", name, "\" has ", factors->size(), " numbers; expected ",
                        head_dim / 2, ", one for each pair of a head's columns");
  const auto frequencies = nn::inverse_frequencies(rope, head_dim);
  if (!std::isfinite(nn::rotary_magnitude(rope)) ||
      !std::all_of(frequencies.begin(), frequencies.end(), [](float f) { return std::isfinite(f); }))
    fail<FormatError>(where, ": the rope settings give frequencies that are no finite numbers");
}

/// Whether layers with a window rotate by settings of their own.
LORA_INLINE bool has_window_rope(const io::JsonView& json) {
  const ModelType* const type = find_model_type(json.get<std::string>("model_type").value_or(""));
  return type != nullptr && type->window_rope;
}

}  // namespace lora::model::detail

namespace lora::model {

LORA_INLINE void check_ids(std::string_view name, const std::vector<std::int32_t>& ids, const std::string& where) {
  for (const std::int32_t id : ids)
    if (id < 0) fail<FormatError>(where, ": \"", name, "\" is ", id, "; expected a token's id");
}

}  // namespace lora::model

namespace lora::model::detail {

LORA_INLINE void check(const Config& config, const std::string& where) {
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
  if (config.window_rope) check_rope(*config.window_rope, config.head_dim, where, "rope_local_base_freq");
  for (const auto& [name, value] : {std::pair("query_pre_attn_scalar", config.query_scalar),
                                    std::pair("attn_logit_softcapping", config.attention_cap),
                                    std::pair("final_logit_softcapping", config.logit_cap)})
    if (value != 0 && !(value > 1e-37 && value < 1e37))  // float32 holds these and what is 1 over them
      fail<FormatError>(where, ": \"", name, "\" is ", value, "; expected a number from 1e-37 to 1e37");
  if (config.max_position_embeddings < 0)
    fail<FormatError>(where, ": \"max_position_embeddings\" is ", config.max_position_embeddings);
  check_ids("eos_token_id", config.eos_token_ids, where);
  if (config.bos_token_id) check_ids("bos_token_id", {*config.bos_token_id}, where);
}

LORA_INLINE std::optional<io::JsonView> rope_settings(const io::JsonView& json) {
  for (const auto* key : {"rope_scaling", "rope_parameters"}) {
    const auto settings = json.find(key);
    if (!settings || (settings->json().is_object() && settings->json().empty())) continue;
    if (!settings->json().is_object())
      json.fail("\"", key, "\" must be an object, found ", io::shown(settings->json()));
    if (settings->name() == "rope_parameters" && has_window_rope(json)) {
      for (const auto& [name, value] : io::json_fields(settings->json()))
        if (name != full_layers && name != window_layers) {
          json.fail("\"rope_parameters\" has \"", name, "\", which is not supported; expected \"", full_layers,
                    "\" and \"", window_layers, "\", with settings for these layers each");
        } else if (!value.is_object() && !value.is_null()) {
          json.fail("\"rope_parameters\" has ", io::shown(value), " as \"", name, "\"; expected an object");
        }
      if (const auto full = settings->find(full_layers)) return full;
      continue;
    }
    for (const auto& [name, value] : io::json_fields(settings->json()))
      if (value.is_object() && name.ends_with("_attention"))
        json.fail("\"", key, "\" has settings for \"", name,
                  "\" alone, which is not supported; expected one set of numbers for all layers");
    return settings;
  }
  return std::nullopt;
}

}  // namespace lora::model::detail

namespace lora::model {

LORA_INLINE double theta_of(const io::JsonView& json, double otherwise) {
  if (const auto both = json.find("rope_parameters"); both && detail::has_window_rope(json))
    if (const auto full = both->find(detail::full_layers))
      if (const auto theta = full->get<double>("rope_theta")) return *theta;
  if (const auto object = detail::rope_settings(json))
    if (const auto theta = object->get<double>("rope_theta")) return *theta;
  return json.get<double>("rope_theta").value_or(otherwise);
}

}  // namespace lora::model

namespace lora::model::detail {

/// 0 where it is left out.
LORA_INLINE double attention_factor_of(const io::JsonView& scaling) {
  const double factor = scaling.get<double>("attention_factor").value_or(0);
  if (scaling.has("attention_factor") && !(factor > 0))
    scaling.fail("\"attention_factor\" is ", factor, "; expected more than 0");
  return factor;
}

/// longrope, which phi3 also calls su and yarn: factors for sequences up to the original length, and for longer ones.
/// As transformers has it, that length is the model's, not the scaling's.
LORA_INLINE void read_longrope(const io::JsonView& json, const io::JsonView& scaling, Index max_positions,
                               nn::RopeConfig& rope) {
  rope.scaling = nn::RopeConfig::Scaling::longrope;
  rope.short_factors = scaling.at<std::vector<float>>("short_factor");
  rope.long_factors = scaling.at<std::vector<float>>("long_factor");
  const double original = json.get<double>("original_max_position_embeddings").value_or(4096);
  if (!(original >= 1)) json.fail("\"original_max_position_embeddings\" is ", original, "; expected 1 or more");
  if (max_positions == 0 && !scaling.has("factor"))
    json.fail("\"max_position_embeddings\" is missing, by which longrope scales; expected a length");
  const double inside = scaling.get<double>("original_max_position_embeddings").value_or(original);
  if (inside != original)
    scaling.fail("\"original_max_position_embeddings\" is ", inside, "; expected ", original,
                 ", as beside it, where 4096 is the default");
  rope.original_max_position_embeddings = original;
  rope.factor = scaling.get<double>("factor").value_or(static_cast<double>(max_positions) / original);
  rope.attention_factor = attention_factor_of(scaling);
}

/// By the object with the settings, if there is one.
LORA_INLINE nn::RopeConfig rope_of(const io::JsonView& json, const ModelType& type,
                                   const std::optional<io::JsonView>& scaling, double theta, Index max_positions) {
  nn::RopeConfig rope;
  rope.theta = theta;
  if (!scaling) return rope;
  const auto number = [&](std::string_view key, double otherwise) {
    return scaling->get<double>(key).value_or(otherwise);
  };
  auto kind = scaling->get<std::string>("rope_type");
  if (!kind) kind = scaling->get<std::string>("type");
  require_off(*scaling, "partial_rotary_factor", 1);
  if (!kind || *kind == "default") return rope;
  if (type.longrope) {
    if (*kind != "longrope" && *kind != "su" && *kind != "yarn")
      json.fail("\"rope_type\" is \"", *kind, "\", which is not supported; expected default or longrope");
    read_longrope(json, *scaling, max_positions, rope);
    return rope;
  }
  const bool linear = *kind == "linear", llama3 = *kind == "llama3", yarn = *kind == "yarn";
  if (!linear && !llama3 && !yarn)
    json.fail("\"rope_type\" is \"", *kind, "\", which is not supported; expected default, linear, llama3 or yarn");
  rope.scaling = linear   ? nn::RopeConfig::Scaling::linear
                 : llama3 ? nn::RopeConfig::Scaling::llama3
                          : nn::RopeConfig::Scaling::yarn;
  rope.factor = scaling->at<double>("factor");
  rope.original_max_position_embeddings =
      number("original_max_position_embeddings", static_cast<double>(max_positions));
  rope.low_freq_factor = number("low_freq_factor", 1);
  rope.high_freq_factor = number("high_freq_factor", 4);
  rope.beta_fast = number("beta_fast", 32);
  rope.beta_slow = number("beta_slow", 1);
  rope.attention_factor = attention_factor_of(*scaling);
  rope.mscale = number("mscale", 0);
  rope.mscale_all_dim = number("mscale_all_dim", 0);
  rope.truncate = scaling->get<bool>("truncate").value_or(true);
  if (!linear && !(rope.original_max_position_embeddings > 0))
    json.fail("\"original_max_position_embeddings\" is missing from the rope scaling");
  return rope;
}

/// Rejects a sliding window that some layer of a type without one would use; one that is configured but off is allowed.
LORA_INLINE void refuse_sliding_window(const io::JsonView& json, Index layers) {
  if (const auto types = json.get<std::vector<std::string>>("layer_types")) {
    for (const auto& type : *types)
      if (type != "full_attention")
        json.fail("\"layer_types\" has \"", type, "\", which is not supported; expected full_attention");
    return;
  }
  // If left out, the window has a default; only null means none.
  const auto window = json.json().find("sliding_window");
  const bool left_out = window == json.json().end();
  if (!json.get<bool>("use_sliding_window").value_or(false) || (!left_out && window->is_null())) return;
  const Index from = json.get<Index>("max_window_layers").value_or(0);
  if (from < layers)
    json.fail("\"use_sliding_window\" is true with \"sliding_window\" ",
              left_out ? std::string("left out") : io::shown(*window), " from layer ", from,
              ", which is not supported");
}

/// Where layer_types is left out: whether each of the layers is none of those of an interval.
LORA_INLINE std::vector<bool> alternating_layers(const io::JsonView& json, Index layers, const ModelType& type) {
  Index interval = type.window_interval;
  if (type.has_interval_field) interval = json.get<Index>("sliding_window_pattern").value_or(interval);
  check_extent("sliding_window_pattern", interval, json.place());
  std::vector<bool> sliding;
  for (Index i = 0; i < layers; ++i) sliding.push_back((i + 1) % interval != 0);
  return sliding;
}

/// Whether each layer slides by layer_types; nothing where it is left out.
LORA_INLINE std::optional<std::vector<bool>> sliding_layers(const io::JsonView& json, Index layers) {
  const auto types = json.get<std::vector<std::string>>("layer_types");
  if (!types) return std::nullopt;
  if (std::ssize(*types) != layers)
    json.fail("\"layer_types\" has ", types->size(), " entries for ", layers, " layers");
  std::vector<bool> sliding;
  for (const auto& type : *types) {
    if (type != "full_attention" && type != "sliding_attention")
      json.fail("\"layer_types\" has \"", type,
                "\", which is not supported; expected full_attention or sliding_attention");
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

}  // namespace lora::model::detail

namespace lora::model {

LORA_INLINE std::vector<Index> windows_of(const io::JsonView& json, Index layers, const ModelType& type) {
  std::vector<Index> windows(static_cast<std::size_t>(layers), 0);
  const bool all_layers = type.windows == WindowRule::all;
  if (type.windows == WindowRule::none) {
    detail::refuse_sliding_window(json, layers);
    return windows;
  }
  Index window = 0;
  if (type.windows != WindowRule::by_use || json.get<bool>("use_sliding_window").value_or(false)) {
    // If left out, it has a default; only null means none.
    window = json.json().contains("sliding_window") ? json.get<Index>("sliding_window").value_or(0) : type.window;
    if (json.has("sliding_window")) detail::check_extent("sliding_window", window, json.place(), Index{1} << 30);
  }
  auto sliding = detail::sliding_layers(json, layers);
  if (type.windows == WindowRule::alternate && !sliding) sliding = detail::alternating_layers(json, layers, type);
  const Index first = all_layers || sliding ? 0 : json.get<Index>("max_window_layers").value_or(28);
  for (Index i = std::max<Index>(first, 0); i < layers; ++i) {
    const auto layer = static_cast<std::size_t>(i);
    const bool slides = sliding && (*sliding)[layer];
    if (slides && window == 0) json.fail("layer ", i, " has sliding attention, but there is no sliding window");
    if (all_layers && sliding && !slides && window > 0)
      json.fail("\"layer_types\" has \"full_attention\" for layer ", i, ", but \"sliding_window\" ", window,
                " counts for all layers of ", type.name);
    if (all_layers || !sliding || slides) windows[layer] = window;
  }
  return windows;
}

LORA_INLINE std::vector<bool> rotates_of(const io::JsonView& json, Index layers, Index interval) {
  std::vector<bool> rotates(static_cast<std::size_t>(layers), true);
  if (const auto uses = json.get<std::vector<Index>>("no_rope_layers")) {
    if (!uses->empty() && uses->size() < rotates.size())
      json.fail("\"no_rope_layers\" has ", uses->size(), " entries for ", layers, " layers");
    for (std::size_t i = 0; i < std::min(uses->size(), rotates.size()); ++i) rotates[i] = (*uses)[i] != 0;
  } else if (interval > 0) {
    interval = json.get<Index>("no_rope_layer_interval").value_or(interval);
    detail::check_extent("no_rope_layer_interval", interval, json.place());
    for (Index i = 0; i < layers; ++i) rotates[static_cast<std::size_t>(i)] = (i + 1) % interval != 0;
  }
  return rotates;
}

LORA_INLINE std::vector<std::int32_t> ids_of(const io::JsonView& json, std::string_view key) {
  const auto value = json.find(key);
  if (!value) return {};
  if (value->json().is_array()) return value->as<std::vector<std::int32_t>>();
  return {value->as<std::int32_t>()};
}

}  // namespace lora::model

namespace lora::model::detail {

/// What gemma2 and gemma3_text have beside others, with what transformers takes where it is left out.
LORA_INLINE void read_gemma(const io::JsonView& json, const ModelType& type, Config& config) {
  config.norm_offset = 1;
  config.post_norms = true;
  config.gate = kernel::Gate::gelu_tanh;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.query_scalar = json.get<double>("query_pre_attn_scalar").value_or(256);
  if (!(config.query_scalar > 0))
    json.fail("\"query_pre_attn_scalar\" is ", config.query_scalar, "; expected more than 0");
  const auto cap = [&](const char* key, double usual) {
    const double value = json.json().contains(key) ? json.get<double>(key).value_or(0) : usual;
    if (json.has(key) && !(value > 0)) json.fail("\"", key, "\" is ", value, "; expected more than 0, or null");
    return value;
  };
  config.attention_cap = cap("attn_logit_softcapping", type.attention_cap);
  config.logit_cap = cap("final_logit_softcapping", type.logit_cap);
  // transformers has the field, and computes attention without it.
  if (type.attention_cap == 0 && config.attention_cap > 0)
    json.fail("\"attn_logit_softcapping\" is ", config.attention_cap, ", which a ", type.name,
              " has no place for; expected null");
  if (type.window_rope) {
    auto local = json.find("rope_parameters");
    if (local) local = local->find(window_layers);
    const double usual = json.get<double>("rope_local_base_freq").value_or(1e4);
    const double theta = local ? local->get<double>("rope_theta").value_or(usual) : usual;
    config.window_rope = rope_of(json, type, local, theta, config.max_position_embeddings);
  }
  if (const auto activation = json.find("hidden_activation");
      activation && !io::json_is(activation->json(), "gelu_pytorch_tanh"))
    json.fail("\"hidden_activation\" is ", io::shown(activation->json()),
              ", which is not supported; expected \"gelu_pytorch_tanh\"");
  if (json.get<bool>("use_bidirectional_attention").value_or(false))
    json.fail("\"use_bidirectional_attention\" is true, which is not supported; expected false");
}

}  // namespace lora::model::detail

namespace lora::model {

LORA_INLINE Config parse_config(const io::Json& content, const std::string& where) {
  const auto json = io::JsonView::of_object(content, where);
  Config config;
  config.model_type = json.at<std::string>("model_type");
  const ModelType* const known = find_model_type(config.model_type);
  if (config.model_type == "gemma3")
    json.fail("\"model_type\" is \"gemma3\", a model of texts and images, which is not supported; expected its text ",
              "model alone, whose \"model_type\" is \"gemma3_text\"");
  if (known == nullptr)
    json.fail("\"model_type\" is \"", config.model_type, "\", which is not supported; expected one of ",
              model_type_list());
  const ModelType& type = *known;
  const auto count = [&](std::string_view key) { return json.at<Index>(key); };
  config.hidden_size = count("hidden_size");
  config.intermediate_size = count("intermediate_size");
  config.num_hidden_layers = count("num_hidden_layers");
  config.num_attention_heads = count("num_attention_heads");
  config.vocab_size = count("vocab_size");
  detail::check_extent("num_hidden_layers", config.num_hidden_layers, where, 10'000);
  detail::check_extent("num_attention_heads", config.num_attention_heads, where, 1 << 16);
  // If left out, transformers has a default; null means as many as heads.
  const bool as_heads = content.contains("num_key_value_heads") || type.kv_heads == 0;
  config.num_key_value_heads =
      json.get<Index>("num_key_value_heads").value_or(as_heads ? config.num_attention_heads : type.kv_heads);
  const Index share = config.hidden_size / config.num_attention_heads;
  config.head_dim = json.get<Index>("head_dim").value_or(type.head_dim > 0 ? type.head_dim : share);
  config.max_position_embeddings = json.get<Index>("max_position_embeddings").value_or(0);
  config.rms_norm_eps = json.get<double>("rms_norm_eps").value_or(type.rms_norm_eps);
  config.tie_word_embeddings = json.get<bool>("tie_word_embeddings").value_or(type.tied);
  config.fused = type.fused;
  const bool attention_bias = type.attention_bias && json.get<bool>("attention_bias").value_or(false);
  config.qkv_bias = type.qkv_bias || attention_bias;
  config.o_bias = attention_bias;
  config.mlp_bias = type.mlp_bias && json.get<bool>("mlp_bias").value_or(false);
  config.qk_norm = type.qk_norm;
  config.rope = detail::rope_of(json, type, detail::rope_settings(json), theta_of(json, type.rope_theta),
                                config.max_position_embeddings);
  auto dtype = json.get<std::string>("dtype");
  if (!dtype) dtype = json.get<std::string>("torch_dtype");
  config.dtype = dtype.value_or("");
  config.eos_token_ids = ids_of(json, "eos_token_id");
  if (type.eos_token_id && !content.contains("eos_token_id")) config.eos_token_ids = {*type.eos_token_id};
  const auto token = [&](const char* key, std::optional<std::int32_t> otherwise) {
    return content.contains(key) ? json.get<std::int32_t>(key) : otherwise;
  };
  config.bos_token_id = token("bos_token_id", type.bos_token_id);
  config.pad_token_id = token("pad_token_id", type.pad_token_id);
  const double range = json.get<double>("initializer_range").value_or(0);
  if (range != 0) config.initializer_range = range;  // 0 as if left out, likewise

  if (type.gemma) {
    detail::read_gemma(json, type, config);
  } else if (const auto activation = json.find("hidden_act"); activation && !io::json_is(activation->json(), "silu")) {
    json.fail("\"hidden_act\" is ", io::shown(activation->json()), ", which is not supported; expected \"silu\"");
  }
  for (const char* dropout : {"attention_dropout", "resid_pdrop", "embd_pdrop"}) detail::require_off(json, dropout, 0);
  detail::require_off(json, "num_experts", 0);
  detail::require_off(json, "num_local_experts", 0);
  detail::require_off(json, "partial_rotary_factor", 1);
  detail::require_off(json, "quantization_config");
  config.windows = windows_of(json, config.num_hidden_layers, type);
  config.rotates = rotates_of(json, config.num_hidden_layers, type.no_rope_interval);
  detail::check(config, where);
  return config;
}

}  // namespace lora::model
