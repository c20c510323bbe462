#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/core/error.hpp"
#include "lora/data/batches/batch.hpp"
#include "lora/model/decoder/decoder.hpp"

namespace lora::train {

/// The loss of one record of a data set.
struct RecordLoss {
  double loss_sum = 0;  ///< Σ −log p
  Index labeled = 0;

  double loss() const { return loss_sum / static_cast<double>(labeled); }
};

/// Splits a long record into windows of at most `window` tokens with a stride of half a window. Each label is scored
/// once, in the first window that contains it, with at least half a window of context if the record has that much.
std::vector<data::Example> windows_of(const data::Example& example, Index window);

/// How a data set is evaluated.
struct EvaluationOptions {
  Index batch = 1;  ///< sequences that are evaluated together
  Index window = std::numeric_limits<Index>::max();
  bool shares = true;  ///< what those of a batch have in common at their beginning is computed once
  std::function<void(const model::Evaluation&)> see{};  ///< gets the sums of this rank after each batch
  const std::atomic<int>* stop = nullptr;               ///< once not 0, evaluation ends early, on all ranks
  std::vector<RecordLoss>* each = nullptr;  ///< gets the loss of every record, if it is not null; of one rank
  comm::Ranks* ranks = nullptr;             ///< that share the batches out and agree on the sums
};

/// The sums of batches, dealt out to ranks in turn, added up in the order of the batches: the same on any number of
/// ranks.
class BatchSums {
 public:
  explicit BatchSums(comm::Ranks& ranks) : ranks_(ranks) {}

  /// Whether this rank evaluates the next batch.
  bool next_is_own() { return batches_++ % ranks_.size() == ranks_.rank(); }
  void add(const model::Evaluation& batch);
  /// Ranks that have had fewer batches than the others, and whether this is one.
  Index waiting_ranks() const { return (ranks_.size() - batches_ % ranks_.size()) % ranks_.size(); }
  bool waits() const { return waiting_ranks() > 0 && ranks_.rank() >= batches_ % ranks_.size(); }

  /// Adds all sums to `totals`. Every rank calls it, stopped or not; where one is stopped, all are.
  void add_to(model::Evaluation& totals) const;

 private:
  comm::Ranks& ranks_;
  Index batches_ = 0;         // of all ranks
  std::vector<double> sums_;  // of this rank's batches: their loss, labels, correct ones and rows
};

/// Evaluates example_of(0 … count − 1), encoded without a cutoff. A single rank stops within a batch; several agree on
/// a stop once each has had one. Ranks that gather layers from each other make passes together. Throws   FormatError if
/// no token is labeled
template <AnyDevice D, class T, class ExampleOf>
model::Evaluation evaluate(D& dev, model::Decoder<D, T>& decoder, Index count, ExampleOf&& example_of,
                           const EvaluationOptions& options) {
  model::Evaluation totals, own;
  comm::Single<D> alone;
  comm::Ranks& ranks = options.ranks != nullptr ? *options.ranks : alone;
  if (decoder.gathers_layers() && options.stop != nullptr && options.ranks == nullptr)
    fail<Error>("[evaluate] ranks that gather layers from each other stop together: give them with the stop flag");
  BatchSums sums(ranks);
  std::vector<data::Example> batch;
  std::vector<Index> records;  // of the batch's sequences
  std::vector<double> losses;  // of the batch's labeled rows
  std::vector<RecordLoss>* const each = options.each;
  if (each != nullptr) each->assign(static_cast<std::size_t>(count), {});
  const bool together = ranks.size() > 1;
  const auto is_told = [&] { return options.stop != nullptr && options.stop->load() != 0; };
  const auto flush = [&] {
    if (sums.next_is_own()) {
      losses.clear();
      std::vector<Index> places(batch.size());
      std::iota(places.begin(), places.end(), Index{0});
      data::Batch rows;
      rows.append(batch, places, options.shares);
      const auto result =
          decoder.evaluate(dev, rows, together ? nullptr : options.stop, each != nullptr ? &losses : nullptr);
      totals.stopped = result.stopped;
      sums.add(result);
      own += result;
      std::size_t next = 0;
      for (std::size_t row = 0; each != nullptr && !result.stopped && row < rows.labels.size(); ++row) {
        if (rows.labels[row] == ignore_index) continue;
        RecordLoss& record =
            (*each)[static_cast<std::size_t>(records[static_cast<std::size_t>(rows.sequence_index[row])])];
        record.loss_sum += losses[next++];
        ++record.labeled;
      }
    }
    batch.clear();
    records.clear();
    own.records = totals.records;
    own.tokens = totals.tokens;
    if (together && sums.waiting_ranks() == 0) totals.stopped = ranks.agree(is_told() ? 1u : 0u) != 0;
    if (options.see) options.see(own);
  };
  const auto is_stopped = [&] {
    totals.stopped = totals.stopped || (!together && is_told());
    return totals.stopped;
  };
  for (Index i = 0; i < count && !is_stopped(); ++i) {
    const data::Example example = example_of(i);
    ++totals.records;
    totals.tokens += static_cast<Index>(example.tokens.size());
    for (data::Example& part : windows_of(example, options.window)) {
      if (part.labeled() == 0) continue;
      batch.push_back(std::move(part));
      records.push_back(i);
      if (std::ssize(batch) < options.batch) continue;
      if (is_stopped()) break;  // a long record may take many batches
      flush();
    }
  }
  if (!batch.empty() && !is_stopped()) flush();
  if (sums.waits()) decoder.pass_without_batch(dev, false);
  if (together && sums.waiting_ranks() > 0) totals.stopped = totals.stopped || is_told();  // of the last round
  sums.add_to(totals);
  if (!totals.stopped && totals.labeled == 0)
    fail<FormatError>("nothing to evaluate: none of ", count, " records has a labeled token");
  return totals;
}

}  // namespace lora::train

#ifndef LORA_COMPILED
#  include "lora/train/evaluate.ipp"
#endif
