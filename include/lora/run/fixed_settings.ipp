#pragma once

#include "lora/core/config.hpp"
#include "lora/run/fixed_settings.hpp"

namespace lora::run {

LORA_INLINE std::string records_text(Index records, std::uint64_t fingerprint) {
  return concat(records, " records with checksum ", checksum_text(fingerprint));
}

LORA_INLINE std::string chosen_text(const std::vector<std::string>& names) {
  Fingerprint sum(names.size());
  for (const std::string& name : names) sum.add(name);
  return concat(names.size(), " tensors with checksum ", checksum_text(sum.value()));
}

}  // namespace lora::run

namespace lora::run::detail {

/// What decides an adapter, as in adapter_config.json: one to start from may choose its modules in ways that no key
/// can.
LORA_INLINE io::Json adapter_settings(model::AdapterConfig adapter) {
  std::sort(adapter.targets.begin(), adapter.targets.end());
  const io::Json saved = model::to_json(adapter);
  return io::json_object({{"lora_rank", adapter.rank},
                          {"lora_alpha", adapter.alpha},
                          {"lora_dropout", adapter.dropout},
                          {"lora_target", saved.at("target_modules")},
                          {"use_rslora", adapter.rslora},
                          {"exclude_modules", saved.at("exclude_modules")},
                          {"layers_to_transform", saved.at("layers_to_transform")},
                          {"additional_target", saved.at("modules_to_save")},
                          {"rank_pattern", saved.at("rank_pattern")},
                          {"alpha_pattern", saved.at("alpha_pattern")}});
}

/// Whether two lists of expressions, as settings note them, choose the same tensors.
LORA_INLINE bool choose_the_same(const io::Json& a, const io::Json& b, const model::Config& shape) {
  std::vector<std::string> one, other;
  if (!io::take_json(a, one) || !io::take_json(b, other)) return false;
  try {
    return one == other || model::trainable_tensors(shape, one) == model::trainable_tensors(shape, other);
  } catch (const ConfigError&) {
    return false;  // an expression that this model has no tensor for
  }
}

/// Takes the words in which a checkpoint says what trains, where these choose the same tensors.
LORA_INLINE void take_words_for_trainable(io::Json& now, const io::Json& then, const model::Config& shape) {
  const io::Json *const run_now = io::json_find(now, "trainable"), *const run_then = io::json_find(then, "trainable");
  const io::Json *const stages = io::json_find(now, "stages"), *const stages_then = io::json_find(then, "stages");
  if (run_now == nullptr || run_then == nullptr) return;
  const bool staged = stages != nullptr && stages->is_array() && !stages->empty();
  if (staged && (stages_then == nullptr || !stages_then->is_array() || stages->size() != stages_then->size())) return;
  bool all = staged || choose_the_same(*run_now, *run_then, shape);
  for (std::size_t i = 0; staged && i < stages->size(); ++i) {
    io::Json one = (*stages)[i], other = (*stages_then)[i];
    if (!other.is_object()) return;
    const io::Json trains = one.contains("trainable") ? one["trainable"] : *run_now;
    const io::Json trained = other.contains("trainable") ? other["trainable"] : *run_then;
    one.erase("trainable");
    other.erase("trainable");
    all = all && io::to_text(one, -1) == io::to_text(other, -1) && choose_the_same(trains, trained, shape);
  }
  if (!all) return;
  now["trainable"] = *run_then;
  if (staged) now["stages"] = *stages_then;
}

constexpr const char* sliding_window_name = "sliding_window";

/// What else a model computes with, by its names in config.json: neither a key of the settings nor `base_text` has it.
LORA_INLINE io::Json model_settings(const model::Source& source) {
  using Scaling = nn::RopeConfig::Scaling;
  const model::Config& shape = source.config();
  const nn::RopeConfig& rope = shape.rope;
  io::Json json = io::json_object({{"num_attention_heads", shape.num_attention_heads},
                                   {"num_key_value_heads", shape.num_key_value_heads},
                                   {"head_dim", shape.head_dim},
                                   {"rms_norm_eps", shape.rms_norm_eps},
                                   {"attention_bias", shape.qkv_bias},
                                   {"mlp_bias", shape.mlp_bias},
                                   {"tie_word_embeddings", shape.tie_word_embeddings}});
  const char* const kinds[] = {"default", "linear", "llama3", "yarn", "longrope"};
  json["rope_type"] = kinds[static_cast<std::size_t>(rope.scaling)];
  const auto note = [&](std::initializer_list<Scaling> of, const char* name, const auto& value) {
    if (std::find(of.begin(), of.end(), rope.scaling) != of.end()) json[concat("rope ", name)] = value;
  };
  note({Scaling::linear, Scaling::llama3, Scaling::yarn, Scaling::longrope}, "factor", rope.factor);
  note({Scaling::llama3, Scaling::yarn, Scaling::longrope}, "original_max_position_embeddings",
       rope.original_max_position_embeddings);
  note({Scaling::llama3}, "low_freq_factor", rope.low_freq_factor);
  note({Scaling::llama3}, "high_freq_factor", rope.high_freq_factor);
  note({Scaling::yarn}, "beta_fast", rope.beta_fast);
  note({Scaling::yarn}, "beta_slow", rope.beta_slow);
  note({Scaling::yarn, Scaling::longrope}, "attention_factor", rope.attention_factor);
  note({Scaling::longrope}, "short_factor", rope.short_factors);
  note({Scaling::yarn}, "mscale", rope.mscale);
  note({Scaling::yarn}, "mscale_all_dim", rope.mscale_all_dim);
  note({Scaling::yarn}, "truncate", rope.truncate);
  if (model::type_of(shape).gemma) {
    json["query_pre_attn_scalar"] = shape.query_scalar;
    json["attn_logit_softcapping"] = shape.attention_cap;
    json["final_logit_softcapping"] = shape.logit_cap;
    if (shape.window_rope) json["rope_local_base_freq"] = shape.window_rope->theta;
  }
  json[sliding_window_name] = model::narrowest_window(shape) > 0 ? io::Json(shape.windows) : io::Json();
  if (!source.is_initial()) return json;
  json["initializer_range"] = shape.initializer_range;
  json["pad_token_id"] = shape.pad_token_id ? io::Json(*shape.pad_token_id) : io::Json();
  return json;
}

LORA_INLINE io::Json to_json(const tokenizer::Fingerprints& fingerprints) {
  io::Json json = io::Json::object();
  for (const auto& [part, hash] : fingerprints.named()) json[std::string(part)] = checksum_text(hash);
  return json;
}

/// Without what decides memory and time alone.
LORA_INLINE io::Json stages_settings(std::vector<settings::StageSettings> stages) {
  for (settings::StageSettings& stage : stages) {
    stage.gradient_checkpointing.reset();
    stage.max_tokens_per_micro_batch.reset();
  }
  return settings::as_json(stages);
}

}  // namespace lora::run::detail

namespace lora::run {

LORA_INLINE io::Json fixed_settings(const settings::Config& config, const model::Source& source,
                                    const model::AdapterConfig* adapter, const std::string& trains,
                                    const DataFacts& data, Precision precision) {
  const model::Config& shape = source.config();
  std::vector<Index> unrotated;  // from the model and the key
  for (Index layer = 0; layer < shape.num_hidden_layers; ++layer)
    if (!shape.rotates[static_cast<std::size_t>(layer)]) unrotated.push_back(layer);
  io::Json settings = io::json_object({{"finetuning_type", config.finetuning_type},
                                       {"model_name_or_path", base_text(source, false)},
                                       {"dtype", std::string(name_of(precision))},
                                       {"rope_theta", shape.rope.theta},
                                       {"no_rope_layers", unrotated},
                                       {std::string(detail::model_settings_name), detail::model_settings(source)}});
  if (adapter != nullptr) {
    settings.update(detail::adapter_settings(*adapter));
    const double ratio = config.loraplus_lr_ratio.value_or(1);
    settings["loraplus_lr_ratio"] = ratio != 1 ? io::Json(ratio) : io::Json();
    settings["adapter_name_or_path"] =
        data.adapter_start ? io::Json("weights with checksum " + checksum_text(*data.adapter_start)) : io::Json();
  } else {
    settings["trainable"] = config.trainable;
  }
  settings.update(io::json_object(
      {{"dataset", records_text(data.records, data.fingerprint)},
       {"val_size", config.val_size},
       {"template", data.template_name},
       {"date", data.date},
       {"text_column", config.text_column},
       {"cutoff_len", config.cutoff_len},
       {"stages", detail::stages_settings(config.stages)},
       {"train_on_prompt", config.train_on_prompt},
       {"train_on_last_turn_only", config.train_on_last_turn_only},
       {"shuffle", config.shuffle},
       {std::string(sequences_setting), config.sequences_per_step()},
       {"step_units", config.step_units},
       {"seed", config.seed},
       {"metric_for_best_model", config.metric_for_best_model},
       {"neftune_noise_alpha", config.neftune_noise_alpha ? io::Json(*config.neftune_noise_alpha) : io::Json()},
       {"trains", trains}}));
  if (settings::any_curriculum(config)) {
    for (const char* name : {"use_curriculum", "curriculum_field", "curriculum_stages", "curriculum_seed"})
      settings[name] = settings::value_of(config, *settings::find_key(name));
    if (!data.curriculum_steps.empty())
      settings["max_steps or num_train_epochs, whose steps use_curriculum divides"] = data.curriculum_steps;
  } else {
    settings["use_curriculum"] = false;
  }
  settings["mix_strategy"] = config.mix_strategy;
  if (config.interleaves()) {
    settings["interleave_probs, or weights of dataset"] = settings::shares_of(config);
    settings["records of each file"] = data.file_records;
  }
  if (data.enable_thinking) settings["enable_thinking"] = *data.enable_thinking;
  if (data.text_blocks) settings["text_blocks"] = *data.text_blocks;
  if (data.tokenizer) settings[std::string(detail::tokenizer_name)] = detail::to_json(*data.tokenizer);
  return settings;
}

LORA_INLINE io::Json settings_as(io::Json now, const Checkpoint& checkpoint, const settings::Config& config,
                                 const model::Source& source) {
  const io::Json* base = io::json_find(checkpoint.state.settings, "model_name_or_path");
  const auto is_sampled = [](const std::string& text) {
    return text.find(" with checksum ") != text.npos && !text.ends_with(" of all bytes");
  };
  if (base != nullptr && base->is_string() && is_sampled(base->get_ref<const std::string&>())) {
    now["model_name_or_path"] = base_text(source, true);
    now["no_rope_layers"] = config.no_rope_layers;  // from the key alone
  }
  const auto leave_out = [&](const char* key, bool is_default) {
    if (is_default && io::json_find(checkpoint.state.settings, key) == nullptr) now.erase(key);
  };
  // A ratio of 1 is none.
  if (const io::Json* ratio = io::json_find(checkpoint.state.settings, "loraplus_lr_ratio");
      ratio != nullptr && ratio->is_number() && ratio->get<double>() == 1 && config.loraplus_lr_ratio.value_or(1) == 1)
    now["loraplus_lr_ratio"] = *ratio;
  detail::take_words_for_trainable(now, checkpoint.state.settings, source.config());
  if (!checkpoint.state.settings.contains("adapter_name_or_path")) now.erase("adapter_name_or_path");
  leave_out("step_units", config.step_units == 1);
  leave_out("trains", now.at("trains") == all_text);
  leave_out("metric_for_best_model", config.metric_for_best_model == "eval_loss");
  leave_out("finetuning_type", !config.trains_model());
  leave_out("additional_target", now.contains("additional_target") && now.at("additional_target").is_null());
  leave_out("loraplus_lr_ratio", config.loraplus_lr_ratio.value_or(1) == 1);
  leave_out("neftune_noise_alpha", !config.neftune_noise_alpha);
  leave_out("stages", config.stages.empty());
  leave_out("use_curriculum", !config.use_curriculum);
  leave_out("mix_strategy", !config.interleaves());
  return now;
}

}  // namespace lora::run

namespace lora::run::detail {

/// Calls f(field, then, now) for each field of an object among the settings that has changed.
template <class F>
void for_each_change(std::string_view object, const io::Json& now, const Checkpoint& checkpoint, const F& f) {
  const io::Json* const fields = io::json_find(now, object);
  const io::Json* const before = io::json_find(checkpoint.state.settings, object);
  if (fields == nullptr || before == nullptr) return;
  for (const auto& [name, value] : io::json_fields(*fields)) {
    const auto found = before->find(name);  // possibly null
    if (found == before->end() && name != sliding_window_name) continue;
    const io::Json then = found == before->end() ? io::Json() : *found;  // earlier versions knew no windows
    if (io::to_text(then, -1) != io::to_text(value, -1)) f(name, then, value);
  }
}

/// Throws   ConfigError with all that the model and its tokenizer compute otherwise
LORA_INLINE void expect_same_model(const io::Json& now, const Checkpoint& checkpoint) {
  const auto refuse = [&](std::string_view what, const std::string& changes) {
    if (!changes.empty())
      fail<ConfigError>("key model_name_or_path: the ", what, " has changed since ", checkpoint.folder.native(),
                        " was made: ", changes, "; a resumed run needs the same");
  };
  std::string changes;
  for_each_change(
      model_settings_name, now, checkpoint, [&](const std::string& name, const io::Json& then, const io::Json& value) {
        changes +=
            concat(changes.empty() ? "" : ", ", name, ": was ", io::to_text(then, -1), ", is ", io::to_text(value, -1));
      });
  refuse("model's config.json", changes);
  for_each_change(tokenizer_name, now, checkpoint, [&](const std::string& part, const io::Json&, const io::Json&) {
    changes += concat(changes.empty() ? "" : ", ", "its ", part, part.ends_with('s') ? " differ" : " differs");
  });
  refuse("tokenizer", changes);
}

}  // namespace lora::run::detail

namespace lora::run {

LORA_INLINE void expect_same_settings(const io::Json& now, const Checkpoint& checkpoint) {
  detail::expect_same_model(now, checkpoint);
  // Both come from fixed_settings, with the same types: equal values have equal texts.
  const auto text_of = [](const io::Json* value) { return value ? io::to_text(*value, -1) : std::string("nothing"); };
  for (const auto& [name, value] : io::json_fields(now)) {
    if (name == detail::model_settings_name || name == detail::tokenizer_name) continue;
    const auto place = checkpoint.state.settings.find(name);  // possibly null
    const io::Json* then = place != checkpoint.state.settings.end() ? &*place : nullptr;
    if (then != nullptr && text_of(then) == text_of(&value)) continue;
    fail<ConfigError>("key ", name, ": given ", text_of(&value), ", but ", checkpoint.folder.native(),
                      " was made with ", text_of(then), "; a resumed run must not change it");
  }
}

LORA_INLINE void expect_same_place(const Checkpoint& checkpoint, Index next_sample, Index stage) {
  const auto expect = [&](std::string_view name, Index found, Index expected) {
    if (found != expected)
      fail<FormatError>((checkpoint.folder / detail::state_file).native(), ": \"", name, "\" is ", found,
                        "; after step ", checkpoint.state.step, " of this run expected ", expected);
  };
  expect("next_sample", checkpoint.state.next_sample, next_sample);
  expect("stage", checkpoint.state.stage, stage);
}

}  // namespace lora::run
