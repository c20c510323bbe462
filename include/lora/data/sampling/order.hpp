#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/random.hpp"
#include "lora/core/scalar.hpp"
#include "lora/data/sampling/class_draws.hpp"

namespace lora::data {

namespace detail {

constexpr std::uint64_t curriculum_purpose = 0x63757272u;

}  // namespace detail

/// Numbers of sequences, in an order: of large data sets they take four bytes each, or none where they are all numbers
/// below `count`. Copies share them.
class Sequences {
 public:
  static constexpr Index most = 0xFFFFFFFF;

  /// 0, 1, … count − 1.
  /// Throws   ConfigError if there are too many
  static Sequences below(Index count);
  /// These, none of which is negative.
  /// Throws   ConfigError if one is above `most`
  Sequences(const std::vector<Index>& numbers) : Sequences(narrowed(numbers)) {}
  explicit Sequences(std::vector<std::uint32_t> numbers);

  /// A number as it is stored.
  /// Throws   ConfigError if it is above `most`
  static std::uint32_t as_number(Index number);

  Index size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Index operator[](Index place) const { return listed_ ? Index{(*listed_)[static_cast<std::size_t>(place)]} : place; }
  /// All of them.
  std::vector<Index> numbers() const;
  /// False where each is its place.
  bool lists() const { return listed_ != nullptr; }
  /// Forgets all but the first ones.
  void keep(Index count) { size_ = std::min(size_, count); }

 private:
  Sequences() = default;
  static Index checked(Index count);
  static std::vector<std::uint32_t> narrowed(const std::vector<Index>& numbers);

  Index size_ = 0;
  std::shared_ptr<const std::vector<std::uint32_t>> listed_;  // null: each is its place
};

/// Several files of which each gives a fixed number of samples to an epoch, drawn again where it has fewer.
struct Mixture {
  std::vector<SequenceClass> files{};
  std::vector<Index> counts{};  ///< samples of each in an epoch

  Index size() const { return std::accumulate(counts.begin(), counts.end(), Index{0}); }
};

/// Samples of each file in an epoch in which they have these shares (above 0, their sum 1), given how many sequences
/// each has: as many as there are until the first file has none left or, with `over`, so many that each sequence of
/// every file comes once at least. Shares are met to the sample, by largest remainder.
/// Throws   ConfigError if an epoch would have 2³² samples or more, a thousand times as many as there are sequences, or
///          none of a file
std::vector<Index> mixed_counts(std::span<const Index> sizes, std::span<const double> shares, bool over);

/// The order of the records. Samples are counted over the whole run: sample g is the (g mod n)-th of epoch g / n, and
/// its record depends only on g and the seed, not on the number of processes or where a run was resumed.
class Order {
 public:
  /// Without shuffling every epoch has the order of the files.
  Order(Sequences records, std::uint64_t seed, bool shuffle);

  /// Of several files that are mixed. A file's sequences come in an order drawn by the seed, each once before any comes
  /// again, over all epochs.
  Order(Mixture mixture, std::uint64_t seed)
      : records_(Sequences::below(mixture.size())), seed_(seed), shuffle_(true), mixture_(std::move(mixture)) {}

  /// Samples of an epoch.
  Index size() const { return records_.size(); }

  /// The record of sample g. Caches the order of one epoch.
  Index operator[](Index sample);

  /// The records of the samples [begin, end).
  std::vector<Index> between(Index begin, Index end);

 private:
  /// Places in records_ or, of a mixture, sequences.
  std::vector<std::uint32_t> draw(Index epoch) const;

  Sequences records_;
  std::uint64_t seed_;
  bool shuffle_;
  Mixture mixture_;
  Index epoch_ = -1;
  std::vector<std::uint32_t> order_;  // of that epoch
};

/// Splits epochs of n records into optimizer steps; the last step of an epoch may be smaller.
struct StepPlan {
  Index records;
  Index per_step;  ///< sequences in a micro-batch × micro-batches × processes

  Index steps_per_epoch() const { return (records + per_step - 1) / per_step; }

  /// Steps of a run: `max_steps` if it is not negative, else those of the epochs after the first `before`, rounded up.
  Index steps(double epochs, Index max_steps, Index before = 0) const;

  struct Range {
    Index begin;
    Index end;
  };
  /// The samples of a step, both counted from 0 over the whole run.
  Range samples(Index step) const;
  /// The samples of `unit` of a step with `units` units: neighbors, as even as possible.
  static Range unit_of(const Range& step, Index unit, Index units);
  /// Number of epochs after `steps_done` steps, as logged.
  double epoch_after(Index steps_done) const;
};

struct Split {
  Sequences train;
  Sequences held_back;
};

/// Splits off records for evaluation: `val_size` below 1 is a fraction (at least one record), else a count. Both parts
/// keep the order of the files.
/// Throws   ConfigError if nothing would be left to train on
Split split_records(Index records, double val_size, std::uint64_t seed);

}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/sampling/order.ipp"
#endif
