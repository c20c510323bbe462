#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/data/sampling/curriculum.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/settings/config.hpp"
#include "lora/tokenizer/unicode.hpp"

// Keys whose values are lists of objects: their JSON, and what must hold in them.

namespace lora::settings {

namespace detail {

/// Throws   FormatError naming the first field that is none of these
void expect_fields(const io::JsonView& object, std::initializer_list<std::string_view> names);

/// Reads "split", which is empty where it is all.
void take_split(const io::JsonView& object, data::DataFile& file);

/// Reads {"prompt": "question", …}, but what is null.
void take_names(const io::JsonView& object, std::string_view field, data::RecordColumns::Names& names);

}  // namespace detail

/// The array of files that JSON has where one of them is an object, or that a text is; nothing for mere paths.
/// Throws   FormatError for a text that begins as such an array and is none
std::optional<io::Json> file_objects(const io::Json& json);

/// Reads ["a.jsonl", {"path": "b.jsonl", "weight": 2, "name": "b", "max_samples": 100, "num_samples": 200,
/// "split": "train[:10%]", "columns": {…}}, …].
/// Throws   FormatError naming the file and what is wrong
std::vector<data::DataFile> files_from(const io::Json& json);

/// Whether code, too, set only what a file can be given.
bool fits(const data::DataFile& file);

io::Json as_json(const data::DataFile& file);
io::Json as_json(const std::vector<data::DataFile>& files);

Index weights_in(const std::vector<data::DataFile>& files);
bool have_names(const std::vector<data::DataFile>& files);
bool share_a_name(const std::vector<data::DataFile>& files);

/// The share of each file of dataset where mix_strategy interleaves them; their sum is 1.
std::vector<double> shares_of(const Config& config);

/// Reads [{"until": 0.5, "mix": {"label": 1, …}}, …].
/// Throws   FormatError naming the stage and what is wrong
std::vector<data::CurriculumStage> curriculum_from(const io::Json& json);

io::Json as_json(const std::vector<data::CurriculumStage>& stages);

/// What is wrong with a curriculum; nothing if it can be followed.
std::optional<std::string> offence(const std::vector<data::CurriculumStage>& stages);

/// f(name, member of StageSettings, member of Config) for each key that a stage may say itself.
template <class F>
void for_each_stage_key(F&& f) {
  using S = StageSettings;
  using C = Config;
  f("finetuning_type", &S::finetuning_type, &C::finetuning_type);
  f("trainable", &S::trainable, &C::trainable);
  f("learning_rate", &S::learning_rate, &C::learning_rate);
  f("lr_scheduler_type", &S::lr_scheduler_type, &C::lr_scheduler_type);
  f("warmup_steps", &S::warmup_steps, &C::warmup_steps);
  f("warmup_ratio", &S::warmup_ratio, &C::warmup_ratio);
  f("cutoff_len", &S::cutoff_len, &C::cutoff_len);
  f("per_device_train_batch_size", &S::per_device_train_batch_size, &C::per_device_train_batch_size);
  f("max_tokens_per_micro_batch", &S::max_tokens_per_micro_batch, &C::max_tokens_per_micro_batch);
  f("gradient_accumulation_steps", &S::gradient_accumulation_steps, &C::gradient_accumulation_steps);
  f("gradient_checkpointing", &S::gradient_checkpointing, &C::gradient_checkpointing);
  f("use_curriculum", &S::use_curriculum, &C::use_curriculum);
  f("curriculum_stages", &S::curriculum_stages, &C::curriculum_stages);
}

/// A text of the user's within a line: line feeds and quotes as JSON writes them.
std::string in_line(const std::string& text);

/// The name of a stage in messages.
std::string stage_name(const Config& config, std::size_t stage);

/// The settings of each stage of a run, or of the run where it has none. What they share is there once, however many
/// there are: a stage's settings are made from it, and from what the stage says, when they are asked for.
class StageConfigs {
 public:
  /// `run` outlives this.
  explicit StageConfigs(const Config& run);
  explicit StageConfigs(Config&&) = delete;

  std::size_t size() const { return said_->empty() ? 1 : said_->size(); }

  /// Without stages of its own. Of two keys that exclude each other the stage's holds.
  Config operator[](std::size_t number) const;

 private:
  const std::vector<StageSettings>* said_;
  Config shared_;
};

/// The longest sequence of any stage, in tokens.
Index longest_cutoff(const Config& config);
/// Whether a stage has a curriculum.
bool any_curriculum(const Config& config);

io::Json as_json(const std::vector<StageSettings>& stages);

/// What is wrong with where stages end, as far as that is known without the data; nothing if it may be right.
std::optional<std::string> offence(const std::vector<StageSettings>& stages);

}  // namespace lora::settings

#ifndef LORA_COMPILED
#  include "lora/settings/stage_lists.ipp"
#endif
