#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "lora/core/scalar.hpp"

namespace lora::model {

/// A record's prompt and answer, and what the model answers.
struct GeneratedAnswer {
  std::string prompt, expected, answer;
};

/// How well a model predicts some records, as sums over their labeled tokens: from a pass to a run's log.
struct Evaluation {
  Index step = 0;       ///< of a run, after which it was made
  double loss_sum = 0;  ///< Σ −log p
  Index labeled = 0;
  Index correct = 0;  ///< labels that no token's logit exceeds
  Index records = 0;
  Index tokens = 0;                     ///< of these records
  Index computed_tokens = 0;            ///< fewer where sequences have had beginnings in common, more in windows
  bool stopped = false;                 ///< stopped early: the sums cover a part only
  std::optional<double> exact_match{};  ///< of generated answers
  std::optional<double> rouge_l{};
  std::vector<GeneratedAnswer> samples{};  ///< of these, a few to look at

  double loss() const { return loss_sum / static_cast<double>(labeled); }
  double perplexity() const { return std::exp(loss()); }
  double token_accuracy() const { return static_cast<double>(correct) / static_cast<double>(labeled); }

  /// Adds the sums over other records.
  Evaluation& operator+=(const Evaluation& other) {
    loss_sum += other.loss_sum;
    labeled += other.labeled;
    correct += other.correct;
    records += other.records;
    tokens += other.tokens;
    computed_tokens += other.computed_tokens;
    stopped = stopped || other.stopped;
    return *this;
  }
};

}  // namespace lora::model
