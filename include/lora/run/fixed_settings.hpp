#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/precision.hpp"
#include "lora/model/decoder/adapter.hpp"
#include "lora/model/decoder/trainable.hpp"
#include "lora/run/base_checksum.hpp"
#include "lora/run/checkpoint.hpp"
#include "lora/settings/settings.hpp"
#include "lora/tokenizer/fingerprints.hpp"

namespace lora::run {

/// Facts that identify the data of a run, and what its adapter began as.
struct DataFacts {
  std::uint64_t fingerprint = 0;
  Index records = 0;
  std::string template_name{};
  std::string date{};                                  ///< printed by the template; empty if it prints none
  std::optional<bool> enable_thinking{};               ///< if the template depends on it
  std::optional<Index> text_blocks{};                  ///< number of sequences, if some files are texts
  std::vector<Index> file_records{};                   ///< of each file of the training data
  std::vector<Index> curriculum_steps{};               ///< of each stage that has a curriculum
  std::optional<tokenizer::Fingerprints> tokenizer{};  ///< if some records are text
  std::optional<std::uint64_t> adapter_start{};        ///< checksum of the adapter that it starts from
};

/// Records as settings and checkpoints note them.
std::string records_text(Index records, std::uint64_t fingerprint);

/// What trains where a program that uses the library has not left that to the settings: its tensors' names.
std::string chosen_text(const std::vector<std::string>& names);
constexpr std::string_view all_text = "all";
/// The setting of the sequences of a step, over all ranks.
constexpr std::string_view sequences_setting = "per_device_train_batch_size x gradient_accumulation_steps";

namespace detail {

// Objects among the settings, which checkpoints of earlier versions lack.
constexpr std::string_view model_settings_name = "config.json", tokenizer_name = "tokenizer";

io::Json to_json(const tokenizer::Fingerprints& fingerprints);

}  // namespace detail

/// The settings that must not change on resume: with other values the steps already done would have been different. All
/// others may change. `adapter`: null where the model itself trains. `trains`: `chosen_text` or `all_text`.
io::Json fixed_settings(const settings::Config& config, const model::Source& source,
                        const model::AdapterConfig* adapter, const std::string& trains, const DataFacts& data,
                        Precision precision);

/// The settings in the form of the version that wrote the checkpoint.
io::Json settings_as(io::Json now, const Checkpoint& checkpoint, const settings::Config& config,
                     const model::Source& source);

/// Throws   ConfigError with the first setting that changed and both values
void expect_same_settings(const io::Json& now, const Checkpoint& checkpoint);

/// `next_sample` and `stage`: of the step after the checkpoint's.
/// Throws   FormatError if the checkpoint says otherwise: some records would be skipped or seen twice
void expect_same_place(const Checkpoint& checkpoint, Index next_sample, Index stage);

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/fixed_settings.ipp"
#endif
