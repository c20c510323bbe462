#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/random.hpp"
#include "lora/core/scalar.hpp"

namespace lora::data {

namespace detail {

/// A permutation of the numbers below `count`, determined by the key.
/// Source   Fisher and Yates 1938, Durstenfeld 1964
inline std::vector<Index> permutation(Index count, std::uint64_t key) {
  std::vector<Index> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), Index{0});
  Random random(key);
  for (std::size_t left = order.size(); left > 1; --left)
    std::swap(order[left - 1], order[random.below(static_cast<std::uint32_t>(left))]);
  return order;
}

constexpr std::uint64_t shuffle_purpose = 0x6F72646572u;
constexpr std::uint64_t split_purpose = 0x73706C6974u;
constexpr std::uint64_t curriculum_purpose = 0x63757272u;
constexpr std::uint64_t class_purpose = 0x636C617373u;

}  // namespace detail

/// The order of the records. Samples are counted over the whole run: sample g is the (g mod n)-th of epoch g / n, and
/// its record depends only on g and the seed, not on the number of processes or where a run was resumed.
class Order {
 public:
  /// Without shuffling every epoch has the order of the files.
  Order(std::vector<Index> records, std::uint64_t seed, bool shuffle)
      : records_(std::move(records)), seed_(seed), shuffle_(shuffle) {
    if (records_.empty()) fail<ConfigError>("no records are left to train on");
    if (records_.size() > 0xFFFFFFFFu) fail<ConfigError>(records_.size(), " records; at most 4294967295 are supported");
  }

  /// Records of an epoch.
  Index size() const { return static_cast<Index>(records_.size()); }

  /// The record of sample g. Caches the order of one epoch.
  Index operator[](Index sample) {
    const Index epoch = sample / size();
    const auto place = static_cast<std::size_t>(sample % size());
    if (!shuffle_) return records_[place];
    if (epoch != epoch_) {
      order_ = detail::permutation(size(), mix_key(seed_, detail::shuffle_purpose, static_cast<std::uint64_t>(epoch)));
      epoch_ = epoch;
    }
    return records_[static_cast<std::size_t>(order_[place])];
  }

  /// The records of the samples [begin, end).
  std::vector<Index> between(Index begin, Index end) {
    std::vector<Index> records;
    for (Index sample = begin; sample < end; ++sample) records.push_back((*this)[sample]);
    return records;
  }

 private:
  std::vector<Index> records_;
  std::uint64_t seed_;
  bool shuffle_;
  Index epoch_ = -1;
  std::vector<Index> order_;
};

/// Splits epochs of n records into optimizer steps; the last step of an epoch may be smaller.
struct StepPlan {
  Index records;
  Index per_step;  ///< sequences in a micro-batch × micro-batches × processes

  Index steps_per_epoch() const { return (records + per_step - 1) / per_step; }

  /// Steps of a run: `max_steps` if it is not negative, else the steps of the epochs, rounded up like in transformers:
  /// 1.1 epochs of 50 steps are 55.00000000000001 in floating point, and so 56.
  Index steps(double epochs, Index max_steps) const {
    if (max_steps >= 0) return max_steps;
    return static_cast<Index>(std::ceil(epochs * static_cast<double>(steps_per_epoch())));
  }

  struct Range {
    Index begin;
    Index end;
  };
  /// The samples of a step, both counted from 0 over the whole run.
  Range samples(Index step) const {
    const Index epoch = step / steps_per_epoch();
    const Index first = step % steps_per_epoch() * per_step;
    return {epoch * records + first, epoch * records + std::min(first + per_step, records)};
  }
  /// The samples of `unit` of a step with `units` units: neighbours, as even as possible.
  static Range unit_of(const Range& step, Index unit, Index units) {
    const Index count = step.end - step.begin;
    return {step.begin + count * unit / units, step.begin + count * (unit + 1) / units};
  }
  /// Number of epochs after `steps_done` steps, as logged.
  double epoch_after(Index steps_done) const {
    const Index epoch = steps_done / steps_per_epoch();
    const Index rest = steps_done % steps_per_epoch() * per_step;
    return static_cast<double>(epoch) + static_cast<double>(rest) / static_cast<double>(records);
  }
};

struct Split {
  std::vector<Index> train;
  std::vector<Index> held_back;
};

/// Splits off records for evaluation: `val_size` below 1 is a fraction (at least one record), else a count. Both parts
/// keep the order of the files.
/// Throws   ConfigError if nothing would be left to train on
inline Split split_records(Index records, double val_size, std::uint64_t seed) {
  const double wanted = val_size < 1 ? std::ceil(val_size * static_cast<double>(records)) : std::floor(val_size);
  if (!(wanted >= 0) || wanted >= static_cast<double>(records))
    fail<ConfigError>("val_size is ", val_size, " but there are only ", records, " records");
  const auto held = static_cast<std::ptrdiff_t>(wanted);
  std::vector<Index> order = detail::permutation(records, mix_key(seed, detail::split_purpose));
  Split split{{order.begin() + held, order.end()}, {order.begin(), order.begin() + held}};
  std::sort(split.train.begin(), split.train.end());
  std::sort(split.held_back.begin(), split.held_back.end());
  return split;
}

}  // namespace lora::data
