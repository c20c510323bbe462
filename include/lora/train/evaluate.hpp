#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/data/batch.hpp"
#include "lora/model/decoder.hpp"

namespace lora::train {

/// The loss of a data set, as sums over its labelled tokens.
struct EvaluationTotals {
  double loss_sum = 0;  ///< Σ −log p
  Index labelled = 0;
  Index correct = 0;  ///< labels that are the most likely token
  Index records = 0;
  Index tokens = 0;
  bool stopped = false;  ///< stopped early: the sums cover a part only

  double loss() const { return loss_sum / static_cast<double>(labelled); }
  double perplexity() const { return std::exp(loss()); }
  double token_accuracy() const { return static_cast<double>(correct) / static_cast<double>(labelled); }
};

/// The loss of one record of a data set.
struct RecordLoss {
  double loss_sum = 0;  ///< Σ −log p
  Index labelled = 0;

  double loss() const { return loss_sum / static_cast<double>(labelled); }
};

/// Splits a long record into windows of at most `window` tokens with a stride of half a window. Each label is scored
/// once, in the first window that contains it, with at least half a window of context if the record has that much.
std::vector<data::Example> windows_of(const data::Example& example, Index window);

/// Evaluates example_of(0 … count − 1), encoded without a cutoff, `batch` sequences at a time, until `stop` is set.
/// Calls `see` with the sums after each batch. `each`, if it is not null, gets the loss of every record.
/// Throws   FormatError if no token is labelled
template <AnyDevice D, class T, class ExampleOf>
EvaluationTotals evaluate(D& dev, model::Decoder<D, T>& decoder, Index count, ExampleOf&& example_of, Index batch,
                          Index window, const std::function<void(const EvaluationTotals&)>& see = {},
                          const std::atomic<int>* stop = nullptr, std::vector<RecordLoss>* each = nullptr) {
  EvaluationTotals totals;
  data::Batch rows;
  std::vector<Index> places;  // of the batch's sequences among the records
  if (each != nullptr) each->assign(static_cast<std::size_t>(count), {});
  const auto flush = [&] {
    const auto result = decoder.evaluate(dev, nn::Rows{rows.tokens, rows.positions, rows.sequence_index, rows.segments},
                                         std::span(std::as_const(rows.labels)), stop);
    totals.stopped = result.stopped;
    totals.loss_sum += result.loss;
    totals.labelled += result.labelled;
    totals.correct += result.correct;
    std::size_t next = 0;
    for (std::size_t row = 0; each != nullptr && !result.stopped && row < rows.labels.size(); ++row) {
      if (rows.labels[row] == ignore_index) continue;
      RecordLoss& record =
          (*each)[static_cast<std::size_t>(places[static_cast<std::size_t>(rows.sequence_index[row])])];
      record.loss_sum += result.losses[next++];
      ++record.labelled;
    }
    rows = {};
    places.clear();
    if (see) see(totals);
  };
  const auto is_stopped = [&] { return totals.stopped = stop != nullptr && stop->load() != 0; };
  for (Index i = 0; i < count; ++i) {
    if (is_stopped()) return totals;
    const data::Example example = example_of(i);
    ++totals.records;
    totals.tokens += static_cast<Index>(example.tokens.size());
    for (const data::Example& part : windows_of(example, window)) {
      if (part.labelled() == 0) continue;
      rows.append(part, rows.sequences());
      places.push_back(i);
      if (rows.sequences() < batch) continue;
      if (is_stopped()) return totals;  // a long record may take many batches
      flush();
      if (totals.stopped) return totals;
    }
  }
  if (rows.sequences() > 0) {
    if (is_stopped()) return totals;
    flush();
    if (totals.stopped) return totals;
  }
  if (totals.labelled == 0) fail<FormatError>("nothing to evaluate: none of ", count, " records has a labelled token");
  return totals;
}

}  // namespace lora::train

#ifndef LORA_COMPILED
#  include "lora/train/evaluate.ipp"
#endif
