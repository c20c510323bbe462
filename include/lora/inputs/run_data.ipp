#pragma once

#include "lora/core/config.hpp"
#include "lora/inputs/run_data.hpp"

namespace lora::inputs::detail {

/// Records that come more than once are held back, once each, or learned from as often as they come.
inline data::Split split_of(const data::Dataset& dataset, double val_size, std::uint64_t seed) {
  if (!dataset.repeats()) return data::split_records(dataset.size(), val_size, seed);
  std::vector<std::uint32_t> different, train, held_back;
  for (Index record = 0; record < dataset.size(); ++record)
    if (dataset.first_of(record) == record) different.push_back(data::Sequences::as_number(record));
  const data::Split split = data::split_records(std::ssize(different), val_size, seed);
  std::vector<bool> held(static_cast<std::size_t>(dataset.size()));
  for (Index i = 0; i < split.held_back.size(); ++i) {
    held_back.push_back(different[static_cast<std::size_t>(split.held_back[i])]);
    held[held_back.back()] = true;
  }
  for (Index record = 0; record < dataset.size(); ++record)
    if (!held[static_cast<std::size_t>(dataset.first_of(record))]) train.push_back(data::Sequences::as_number(record));
  return {data::Sequences(std::move(train)), data::Sequences(std::move(held_back))};
}

}  // namespace lora::inputs::detail

namespace lora::inputs {

LORA_INLINE RunData::RunData(const cpu::Threads& threads, const settings::Config& config, const io::Path& model,
                             Index vocab_size, const Earlier& earlier, const data::RecordLists& lists) {
  auto dataset = open_dataset(config, config.dataset, config.max_samples, lists, class_field(config));
  auto kinds = dataset.kinds();
  std::optional<data::Dataset> held_back;
  if (!config.eval_dataset.empty()) {
    held_back = open_dataset(config, config.eval_dataset, config.max_eval_samples, lists);
    for (const auto kind : held_back->kinds()) kinds.push_back(kind);
  }
  text_ = text_files(config, model, kinds);
  const settings::Config settled = settle(config, earlier);

  order_ = data::Sequences::below(dataset.size());
  if (held_back) {
    eval_order_ = data::Sequences::below(held_back->size());
  } else if (config.val_size > 0) {
    auto split = detail::split_of(dataset, config.val_size, static_cast<std::uint64_t>(config.seed));
    order_ = std::move(split.train);
    eval_order_ = std::move(split.held_back);
    if (config.max_eval_samples) eval_order_.keep(*config.max_eval_samples);
    held_back = dataset;
  }
  if (held_back) eval_.emplace(encoded_records(settled, std::move(*held_back), text_, vocab_size, false));
  train_.emplace(encoded_records(settled, std::move(dataset), text_, vocab_size, true));
  train_->cut_texts(threads);
  order_ = train_->sequences_of(order_);
  if (settings::any_curriculum(config)) find_classes(threads, config);
  if (config.interleaves()) mix(config);
}

LORA_INLINE const std::string& RunData::label_of(Index record) const {
  return classes_->labels[static_cast<std::size_t>(class_of_record_[static_cast<std::size_t>(record)])];
}

LORA_INLINE std::vector<data::Sample> RunData::answered() const {
  std::vector<data::Sample> samples;
  for (Index i = 0; i < eval_order_.size(); ++i) {
    data::Sample sample = eval_->dataset()[eval_order_[i]];
    if (!sample.answer().empty()) samples.push_back(std::move(sample));
  }
  return samples;
}

LORA_INLINE RunData::Survey RunData::survey(const cpu::Threads& threads, const settings::Config& config) const {
  Survey found{train_->survey(threads, order_)};
  if (found.train.labeled() == 0) fail_unlabeled(found.train, config);
  if (!evaluates()) return found;
  found.eval = eval_->survey(threads, eval_order_);
  if (found.eval.labeled() == 0)
    fail<FormatError>("nothing to evaluate: not one token of the evaluation records is labeled");
  if (config.eval_predict && !text_.tokenizer)
    fail<ConfigError>("key eval_predict: given true, allowed: false where the model has no tokenizer files");
  if (config.eval_predict && answered().empty())
    fail<FormatError>(eval_->dataset().name(), ": eval_predict needs records with an answer; there is none");
  return found;
}

LORA_INLINE void RunData::fail_unlabeled(const data::EncodeSummary& found, const settings::Config& config) {
  const std::string what = concat(config.dataset.front().path, ": there is nothing to learn: ");
  if (found.lost() > 0)
    fail<FormatError>(what, "not one token is labeled within cutoff_len ", settings::longest_cutoff(config));
  if (found.unanswered() > 0 && found.left_out() == 0)
    fail<FormatError>(what, "every record is left out since its answer is empty");
  fail<FormatError>(what,
                    "no record has a labeled token: they, or their answers, are marked as not learned, such as by ",
                    "\"weight\" 0, or their labels are all ", ignore_index);
}

LORA_INLINE settings::Config RunData::settle(settings::Config config, const Earlier& earlier) {
  if (!text_.chat_template) return config;
  const data::ChatTemplate& chat = *text_.chat_template;
  if (chat.prints_date()) {
    const io::Json was = config.date.empty() ? earlier("date") : io::Json();
    if (was.is_string()) config.date = was.get<std::string>();
    date_ = config.date = config.date.empty() ? chat.date() : config.date;
  }
  if (chat.thinks_at_will()) {
    const io::Json was = config.enable_thinking ? io::Json() : earlier("enable_thinking");
    if (was.is_boolean()) config.enable_thinking = was.get<bool>();
    if (!config.enable_thinking && !chat.is_interpreted()) config.enable_thinking = true;
    enable_thinking_ = config.enable_thinking;
  }
  return config;
}

LORA_INLINE void RunData::find_classes(const cpu::Threads& threads, const settings::Config& config) {
  classes_ = train_->classes(threads, order_);
  if (!classes_->labels.empty()) {
    class_of_record_.resize(static_cast<std::size_t>(train_->dataset().size()), -1);
    for (Index i = 0; i < order_.size(); ++i)
      class_of_record_[static_cast<std::size_t>(train_->record_of(order_[i]))] =
          classes_->of[static_cast<std::size_t>(i)];
    return;
  }
  classes_.reset();
  absent_field_ = config.curriculum_field;
  refuse_lessons(config);
  log::warn("'", config.curriculum_field, "' field not found in any record of ", train_->dataset().name(),
            ": the run goes on without a curriculum");
}

LORA_INLINE void RunData::refuse_lessons(const settings::Config& config) const {
  const settings::StageConfigs stages(config);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const settings::Config stage = stages[i];
    if (!stage.use_curriculum) continue;
    for (const std::string_view name : {"curriculum_field", "curriculum_stages", "curriculum_seed"}) {
      const settings::Key& key = *settings::find_key(name);
      const bool own = name == "curriculum_stages" && !config.stages.empty() && config.stages[i].curriculum_stages;
      if (!own && !settings::is_given(stage, key) && !config.from_command_line.contains(name)) continue;
      fail<ConfigError>("key ", name, ": given ", io::shown(settings::value_of(stage, key)), ", but no record of ",
                        train_->dataset().name(), " has the field \"", config.curriculum_field,
                        "\", so that there is no curriculum; allowed: a curriculum_field that records have");
    }
  }
}

LORA_INLINE void RunData::mix(const settings::Config& config) {
  for (Index file = 0; file < train_->dataset().files(); ++file)
    mixture_.files.push_back({concat("file ", file), {}});  // whatever its name
  for (Index i = 0; i < order_.size(); ++i) {
    const Index file = train_->dataset().file_number(train_->record_of(order_[i]));
    mixture_.files[static_cast<std::size_t>(file)].sequences.push_back(data::Sequences::as_number(order_[i]));
  }
  std::vector<Index> sizes;
  for (std::size_t i = 0; i < mixture_.files.size(); ++i) {
    sizes.push_back(std::ssize(mixture_.files[i].sequences));
    if (sizes.back() == 0) fail<ConfigError>(config.dataset[i].path, ": no record is left to train on");
  }
  try {
    mixture_.counts = data::mixed_counts(sizes, settings::shares_of(config), config.mix_strategy == "interleave_over");
  } catch (const ConfigError& error) {
    fail<ConfigError>(
        config.interleave_probs.empty() ? "key dataset: its weights give " : "key interleave_probs: given ",
        std::string_view(error.what()));
  }
}

}  // namespace lora::inputs
