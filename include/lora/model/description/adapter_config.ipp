#pragma once

#include "lora/core/config.hpp"
#include "lora/model/description/adapter_config.hpp"

namespace lora::model {

LORA_INLINE bool AdapterConfig::targets_module(Index layer, std::string_view projection) const {
  const std::string path = module_path(layer, projection);
  const auto fits = [&](const std::vector<std::string>& ends) {
    return std::any_of(ends.begin(), ends.end(), [&](const std::string& end) { return ends_path(path, end); });
  };
  if (modules) return modules->count(path) != 0;
  if (fits(excluded)) return false;
  if (std::find(targets.begin(), targets.end(), path) != targets.end()) return true;  // named in full: in any layer
  return (layers.empty() || std::find(layers.begin(), layers.end(), layer) != layers.end()) &&
         (targets.empty() || fits(targets));
}

LORA_INLINE bool AdapterConfig::trains_whole(const TensorInfo& info) const {
  using Kind = TensorInfo::Kind;
  if (info.kind != Kind::embedding && info.kind != Kind::norm && info.kind != Kind::head) return false;
  const std::string_view path = std::string_view(info.name).substr(0, info.name.rfind('.'));
  // As PEFT compares them: "norm" is every norm.
  return std::any_of(whole_modules.begin(), whole_modules.end(),
                     [&](const std::string& end) { return path.ends_with(end); });
}

LORA_INLINE nn::LoraRank AdapterConfig::rank_of(Index layer, std::string_view projection) const {
  if (!targets_module(layer, projection)) return {};
  const std::string path = module_path(layer, projection);
  const auto pattern = [&](const auto& entries, auto otherwise) {
    for (const auto& [key, value] : entries)
      if (ends_path(path, key)) return value;
    return otherwise;
  };
  const Index r = pattern(rank_pattern, rank);
  const double a = pattern(alpha_pattern, alpha);
  return {r, a / (rslora ? std::sqrt(static_cast<double>(r)) : static_cast<double>(r))};
}

LORA_INLINE bool AdapterConfig::ends_path(std::string_view path, std::string_view end) {
  return path == end || (path.ends_with(end) && path[path.size() - end.size() - 1] == '.');
}

}  // namespace lora::model

namespace lora::model::detail {

/// Whether modules_to_save may name a module, alone or after a path.
LORA_INLINE bool may_train_whole(std::string_view name) {
  return name == "embed_tokens" || name == "lm_head" ||
         std::any_of(norm_modules.begin(), norm_modules.end(),
                     [&](const NormModule& norm) { return norm.name == name; });
}

/// Refuses what would compute something else: every field of adapter_config.json that is not known to be read or to say
/// nothing about the numbers, and is not off.
LORA_INLINE void refuse_variants(const io::JsonView& json) {
  constexpr std::string_view read[] = {"peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "target_modules",
                                       "exclude_modules", "layers_to_transform", "layers_pattern", "rank_pattern",
                                       "alpha_pattern", "base_model_name_or_path", "modules_to_save",
                                       // with some of their values
                                       "bias", "init_lora_weights"};
  constexpr std::string_view silent[] = {"task_type", "auto_mapping", "revision", "inference_mode", "peft_version",
                                         // of an initialization, which init_lora_weights names
                                         "loftq_config", "eva_config",
                                         // of variants, which fields of their own switch on
                                         "megatron_core", "qalora_group_size"};
  const auto has = [](const auto& names, const std::string& name) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  const auto refuse = [&](const std::string& field, const io::Json& value, std::string_view why = {}) {
    json.fail("\"", field, "\" is ", io::shown(value), ", which is not supported", why);
  };
  if (const auto bias = json.find("bias"); bias && !io::json_is(bias->json(), "none")) refuse("bias", bias->json());
  constexpr std::string_view unchanged_base[] = {"gaussian", "eva", "mica", "orthogonal"};
  if (const auto* start = io::json_find(json.json(), "init_lora_weights");
      start != nullptr && !start->is_boolean() &&
      !(start->is_string() && has(unchanged_base, start->get_ref<const std::string&>())))
    refuse("init_lora_weights", *start,
           ", for it changes the base's weights; PEFT converts such an adapter when it saves it with "
           "path_initial_model_for_weight_conversion");
  for (const auto& [field, value] : io::json_fields(json.json())) {
    const bool off = value.is_boolean() && !value.get<bool>();
    const bool empty = ((value.is_array() || value.is_object()) && value.empty()) || io::json_is(value, "");
    if (!has(read, field) && !has(silent, field) && !value.is_null() && !off && !empty) refuse(field, value);
  }
}

}  // namespace lora::model::detail

namespace lora::model {

LORA_INLINE AdapterConfig parse_adapter_config(const io::Json& content, const std::string& where) {
  const auto json = io::JsonView::of_object(content, where);
  const auto type = json.at<std::string>("peft_type");
  if (type != "LORA") json.fail("\"peft_type\" is \"", type, "\"; expected \"LORA\"");
  detail::refuse_variants(json);
  AdapterConfig config;
  config.rank = json.at<Index>("r");
  config.alpha = json.at<double>("lora_alpha");
  config.dropout = json.get<double>("lora_dropout").value_or(0);
  config.rslora = json.get<bool>("use_rslora").value_or(false);
  config.base_model = json.get<std::string>("base_model_name_or_path").value_or("");
  const auto check_rank = [&](std::string_view name, Index rank) {
    if (rank < 1 || rank > detail::max_rank)
      fail<FormatError>(where, ": \"", name, "\" is ", rank, "; expected 1 to ", detail::max_rank);
  };
  check_rank("r", config.rank);
  const auto check_alpha = [&](std::string_view name, double alpha) {
    if (!std::isfinite(static_cast<float>(alpha)))
      fail<FormatError>(where, ": \"", name, "\" is ", alpha, ", which is no finite number in float32");
  };
  check_alpha("lora_alpha", config.alpha);
  if (!(config.dropout >= 0 && config.dropout < 1))
    fail<FormatError>(where, ": \"lora_dropout\" is ", config.dropout, "; expected at least 0 and below 1");

  const auto targets = json.find("target_modules");
  if (!targets) fail<FormatError>(where, ": \"target_modules\" is missing");
  config.targets.clear();
  if (targets->json().is_string()) {
    config.target_expression = targets->as<std::string>();
    config.modules.emplace();  // filled from the tensors that the adapter has
    if (config.target_expression.find_first_of("\\^$*+?()[]{}|") == std::string::npos &&
        config.target_expression.find('.') == std::string::npos && config.target_expression != "all-linear")
      fail<FormatError>(where, ": \"target_modules\" is the expression \"", config.target_expression,
                        "\", which is no module's whole name; expected a list of names, a regular expression, or ",
                        "\"all-linear\"");
    if (config.target_expression == "all-linear") {
      config.modules.reset();
      config.target_expression.clear();
    }
  } else {
    config.targets = targets->as<std::vector<std::string>>();
    if (config.targets.empty()) json.fail("\"target_modules\" is []; expected at least one name");
    for (const auto& target : config.targets) {
      const auto last = std::string_view(target).substr(target.rfind('.') + 1);
      const auto is_last = [&](const Projection& p) { return p.name == last; };
      if (std::none_of(projections.begin(), projections.end(), is_last) &&
          std::none_of(fused_projections.begin(), fused_projections.end(), is_last))
        fail<FormatError>(where, ": \"target_modules\" has \"", target, "\", which is not supported; expected some of ",
                          projection_list(projections), ", of phi3 some of ", projection_list(fused_projections));
    }
  }
  if (const auto excluded = json.find("exclude_modules"); excluded && !excluded->json().empty()) {
    if (excluded->json().is_string()) {
      config.exclude_expression = excluded->as<std::string>();
      config.modules.emplace();
    } else {
      config.excluded = excluded->as<std::vector<std::string>>();
    }
  }
  if (const auto layers = json.find("layers_to_transform"))
    config.layers = layers->json().is_array() ? layers->as<std::vector<Index>>() : std::vector{layers->as<Index>()};
  if (const auto pattern = json.find("layers_pattern"); pattern && !pattern->json().empty()) {
    const io::Json& value = pattern->json();
    if (!io::json_is(value.is_array() && value.size() == 1 ? value.front() : value, "layers"))
      json.fail("\"layers_pattern\" is ", io::shown(value), ", which is not supported; expected \"layers\"");
  }
  if (const auto whole = json.find("modules_to_save"); whole && !whole->json().empty()) {
    config.whole_modules = whole->as<std::vector<std::string>>();
    for (const auto& name : config.whole_modules) {
      const auto last = std::string_view(name).substr(name.rfind('.') + 1);
      if (!detail::may_train_whole(last))
        json.fail("\"modules_to_save\" has ", io::shown(name),
                  ", which is not supported; expected embed_tokens, lm_head or the names of norms");
    }
  }
  const auto check_key = [&](std::string_view field, const std::string& key) {
    if (key.find_first_of("\\^$*+?()[]{}|") != std::string::npos)
      fail<FormatError>(where, ": \"", field, "\" has the regular expression \"", key,
                        "\", which is not supported; expected a module's name or its end");
  };
  const auto read_pattern = [&]<class V>(std::string_view field, std::vector<std::pair<std::string, V>>& entries,
                                         const auto& check_value) {
    const auto pattern = json.find(field);
    if (!pattern) return;
    if (!pattern->json().is_object())
      json.fail("\"", field, "\" is ", io::shown(pattern->json()), "; expected an object");
    pattern->for_each_field([&](const std::string& key, const io::JsonView& value) {
      check_key(field, key);
      entries.emplace_back(key, value.as<V>());
      check_value(key, entries.back().second);
    });
  };
  read_pattern("rank_pattern", config.rank_pattern, check_rank);
  read_pattern("alpha_pattern", config.alpha_pattern, check_alpha);
  return config;
}

LORA_INLINE void name_targets(AdapterConfig& adapter, const Config& config) {
  const std::vector<std::string> names = projection_names_of(config);
  if (adapter.targets.empty() && adapter.target_expression.empty()) adapter.targets = names;
  for (const std::string& target : adapter.targets) {
    bool fits = false;
    for (Index layer = 0; layer < config.num_hidden_layers && !fits; ++layer)
      fits = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
        return AdapterConfig::ends_path(module_path(layer, name), target);
      });
    if (!fits)
      fail<ConfigError>("the adapter targets ", target, ", which a model of type ", config.model_type,
                        " doesn't have; expected some of ", projection_list(config));
  }
}

LORA_INLINE io::Json to_json(const AdapterConfig& config) {
  const bool whole = config.alpha == std::floor(config.alpha) && std::abs(config.alpha) < 1e15;
  const auto patterns = [](const auto& entries) {
    io::Json json = io::Json::object();
    for (const auto& [key, value] : entries) json[key] = value;
    return json;
  };
  return io::json_object(
      {{"peft_type", "LORA"},
       {"task_type", "CAUSAL_LM"},
       {"auto_mapping", nullptr},
       {"base_model_name_or_path", config.base_model.empty() ? io::Json() : io::Json(config.base_model)},
       {"revision", nullptr},
       {"inference_mode", true},
       {"r", config.rank},
       {"lora_alpha", whole ? io::Json(static_cast<Index>(config.alpha)) : io::Json(config.alpha)},
       {"lora_dropout", config.dropout},
       {"use_rslora", config.rslora},
       {"use_dora", false},
       {"target_modules", !config.target_expression.empty() ? io::Json(config.target_expression)
                          : config.targets.empty()          ? io::Json("all-linear")
                                                            : io::json_array(config.targets)},
       {"exclude_modules", !config.exclude_expression.empty() ? io::Json(config.exclude_expression)
                           : !config.excluded.empty()         ? io::json_array(config.excluded)
                                                              : io::Json()},
       {"bias", "none"},
       {"fan_in_fan_out", false},
       {"init_lora_weights", true},
       {"rank_pattern", patterns(config.rank_pattern)},
       {"alpha_pattern", patterns(config.alpha_pattern)},
       {"layers_to_transform", config.layers.empty() ? io::Json() : io::json_array(config.layers)},
       {"layers_pattern", nullptr},
       {"modules_to_save", config.whole_modules.empty() ? io::Json() : io::json_array(config.whole_modules)}});
}

}  // namespace lora::model
