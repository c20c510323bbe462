#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "lora/data/chat/answer_scores.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/inputs/records.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/model/decoder/evaluation.hpp"
#include "lora/settings/config.hpp"
#include "lora/train/evaluate.hpp"

namespace lora::evaluation {

/// One of the data sets that are evaluated together, and what came of it.
struct EvaluatedSet {
  std::string name;  ///< unique
  std::string path;
  inputs::Records records;
  model::Evaluation totals{};
  std::vector<train::RecordLoss> each{};    ///< of the records
  std::optional<model::Evaluation> base{};  ///< without the adapter
  std::optional<data::AnswerScores> scores{};
};

/// Of all sets, with the adapter or without.
model::Evaluation sum_of(std::span<const EvaluatedSet> sets, bool of_base);

/// An earlier evaluation, from its evaluation_results.json.
struct EarlierEvaluation {
  std::string file;
  io::Json json;
};

/// Given a file, or the folder that has it.
/// Throws   IoError, FormatError if it is not such a file
EarlierEvaluation read_earlier(const std::string& path);
/// Throws   ConfigError for one that is given twice
std::vector<EarlierEvaluation> read_all_earlier(std::span<const std::string> paths);

/// What an evaluation was done with.
struct Circumstances {
  std::string dtype, device;
};

/// evaluation_results.json: measures of all sets and of each, its records with the largest losses, and what changed
/// since earlier evaluations of sets with the same name, if nothing speaks for other data. `scores`: of all answers.
io::Json results_of(const settings::Config& config, const Circumstances& with, std::span<const EvaluatedSet> sets,
                    const std::optional<data::AnswerScores>& scores, std::span<const EarlierEvaluation> earlier,
                    const inputs::TextFiles& text, double seconds);

}  // namespace lora::evaluation

#ifndef LORA_COMPILED
#  include "lora/evaluation/results.ipp"
#endif
