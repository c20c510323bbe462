#pragma once

#include "lora/core/config.hpp"
#include "lora/inputs/adapter_start.hpp"

namespace lora::inputs {

/// The modules that the key additional_target names, as PEFT names them.
LORA_INLINE std::vector<std::string> whole_modules_of(const std::vector<std::string>& names,
                                                      const model::Config& shape) {
  const auto has = [&](std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  // A tied head trains with the embedding, and PEFT must find both.
  const bool tied = shape.tie_word_embeddings && (has("embed_tokens") || has("lm_head"));
  std::vector<std::string> modules;
  if (tied || has("embed_tokens")) modules.emplace_back("embed_tokens");
  if (tied || has("lm_head")) modules.emplace_back("lm_head");
  if (has("norms"))
    for (const model::NormModule& norm : model::norm_modules)
      if (norm.exists == nullptr || shape.*norm.exists) modules.emplace_back(norm.name);
  return modules;
}

LORA_INLINE model::AdapterConfig adapter_of(const settings::Config& config, const model::Config& shape,
                                            const model::AdapterFiles* start) {
  model::AdapterConfig adapter;
  const std::vector<std::string> all = model::projection_names_of(shape);
  auto targets = config.lora_target;
  if (targets.empty() || targets.front() == "all") targets = all;
  for (const std::string& target : targets)
    if (std::find(all.begin(), all.end(), target) == all.end())
      fail<ConfigError>("key lora_target: given ", target, ", which a model of type ", shape.model_type,
                        " doesn't have; allowed: all, or some of ", model::projection_list(shape));
  if (start == nullptr) {
    adapter.rank = config.rank();
    adapter.alpha = config.alpha();
    adapter.rslora = config.use_rslora.value_or(false);
    adapter.targets = std::move(targets);
    adapter.whole_modules = whole_modules_of(config.additional_target, shape);
  } else {
    adapter = start->config;
    model::name_targets(adapter, shape);
    const auto expect = [&](std::string_view key, const auto& given, const auto& found) {
      if (given && *given != found)
        fail<ConfigError>("key ", key, ": given ", *given, ", but the adapter ", start->folder.native(), " has ",
                          found);
    };
    expect("lora_rank", config.lora_rank, adapter.rank);
    expect("lora_alpha", config.lora_alpha, adapter.alpha);
    expect("use_rslora", config.use_rslora, adapter.rslora);
    const auto list = [](std::vector<std::string> names) {
      std::sort(names.begin(), names.end());
      std::string text;
      for (const auto& name : names) text += (text.empty() ? "" : ",") + name;
      return text;
    };
    const std::string found = adapter.target_expression.empty() ? list(adapter.targets) : adapter.target_expression;
    expect("additional_target",
           config.additional_target.empty() ? std::nullopt
                                            : std::optional(list(whole_modules_of(config.additional_target, shape))),
           list(adapter.whole_modules));
    expect("lora_target", config.lora_target.empty() ? std::nullopt : std::optional(list(targets)), found);
  }
  adapter.dropout = config.lora_dropout;
  adapter.base_model = config.model_name_or_path;
  return adapter;
}

LORA_INLINE std::optional<model::AdapterFiles> adapter_to_start_from(const settings::Config& config,
                                                                     const model::Config& shape) {
  if (config.adapter_name_or_path.empty()) return std::nullopt;
  std::optional<model::AdapterFiles> start(model::open_adapter(find_adapter(config.adapter_name_or_path)));
  model::check_adapter(*start, shape);
  return start;
}

LORA_INLINE Index group_of_b(const settings::Config& config) {
  return config.loraplus_lr_ratio.value_or(1) != 1 ? optim::faster_group : 0;
}

LORA_INLINE std::vector<std::shared_ptr<const TensorNames>> trainable_in_stages(const settings::Config& config,
                                                                                const model::Config& shape) {
  const settings::StageConfigs stages(config);
  std::map<std::vector<std::string>, std::shared_ptr<const TensorNames>> known;
  std::vector<std::shared_ptr<const TensorNames>> names;
  for (std::size_t i = 0; i < stages.size(); ++i) try {
      const std::vector<std::string> expressions = stages[i].trainable;
      auto& chosen = known[expressions];
      if (!chosen) chosen = std::make_shared<const TensorNames>(model::trainable_tensors(shape, expressions));
      names.push_back(chosen);
    } catch (const ConfigError& error) {
      if (config.stages.empty()) throw;
      fail<ConfigError>(settings::stage_name(config, i), ": ", std::string_view(error.what()));
    }
  return names;
}

LORA_INLINE TensorNames trainable_in_run(const settings::Config& config, const model::Config& shape) {
  TensorNames names;
  std::set<std::shared_ptr<const TensorNames>> lists;
  for (const auto& of_stage : trainable_in_stages(config, shape)) lists.insert(of_stage);
  for (const auto& list : lists) names.insert(list->begin(), list->end());
  return names;
}

LORA_INLINE model::Blueprint blueprint_of(const settings::Config& config, const model::Source& source) {
  model::Blueprint blueprint = model::blueprint_of(source);
  blueprint.shares_by_layer = config.zero_stage > 1;
  blueprint.shares_values = config.shares_values();
  blueprint.values_on_host = config.keeps_values_on_host();
  if (config.trains_model()) {
    blueprint.chosen = [names = trainable_in_run(config, source.config())](const model::TensorInfo& info) {
      return names.count(info.name) != 0;
    };
    return blueprint;
  }
  const auto start = adapter_to_start_from(config, source.config());
  blueprint.adapter = adapter_of(config, source.config(), start ? &*start : nullptr);
  blueprint.b_group = group_of_b(config);
  return blueprint;
}

LORA_INLINE std::vector<std::function<bool(std::string_view)>> trained_in_stages(
    const settings::Config& config, const model::Config& shape, const std::function<bool(std::string_view)>& chosen) {
  if (!config.trains_model() || config.stages.empty())
    return std::vector<std::function<bool(std::string_view)>>(settings::StageConfigs(config).size(), chosen);
  std::vector<std::function<bool(std::string_view)>> trains;
  for (auto& names : trainable_in_stages(config, shape))
    trains.emplace_back([chosen, names = std::move(names)](std::string_view name) {
      return names->count(name) != 0 && (!chosen || chosen(name));
    });
  return trains;
}

}  // namespace lora::inputs
