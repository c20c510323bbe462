#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/random.hpp"
#include "lora/core/scalar.hpp"

namespace lora::data {

namespace detail {

/// A permutation of the numbers below `count`, at most 2³², determined by the key.
/// Source   Fisher and Yates 1938, Durstenfeld 1964
inline std::vector<std::uint32_t> permutation(Index count, std::uint64_t key) {
  std::vector<std::uint32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::uint32_t{0});
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

/// Numbers of sequences, in an order: of large data sets they take four bytes each, or none where they are all numbers
/// below `count`. Copies share them.
class Sequences {
 public:
  static constexpr Index most = 0xFFFFFFFF;

  /// 0, 1, … count − 1.
  /// Throws   ConfigError if there are too many
  static Sequences below(Index count) {
    Sequences all;
    all.size_ = checked(count);
    return all;
  }
  /// These, none of which is negative or above `most`.
  Sequences(const std::vector<Index>& numbers)
      : Sequences(std::vector<std::uint32_t>(numbers.begin(), numbers.end())) {}
  explicit Sequences(std::vector<std::uint32_t> numbers)
      : size_(checked(std::ssize(numbers))),
        listed_(std::make_shared<const std::vector<std::uint32_t>>(std::move(numbers))) {}

  Index size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Index operator[](Index place) const { return listed_ ? Index{(*listed_)[static_cast<std::size_t>(place)]} : place; }
  /// All of them.
  std::vector<Index> numbers() const {
    std::vector<Index> numbers;
    for (Index place = 0; place < size_; ++place) numbers.push_back((*this)[place]);
    return numbers;
  }
  /// False where each is its place.
  bool lists() const { return listed_ != nullptr; }
  /// Forgets all but the first ones.
  void keep(Index count) { size_ = std::min(size_, count); }

 private:
  Sequences() = default;
  static Index checked(Index count) {
    if (count > most) fail<ConfigError>(count, " records; at most ", most, " are supported");
    return count;
  }

  Index size_ = 0;
  std::shared_ptr<const std::vector<std::uint32_t>> listed_;  // null: each is its place
};

/// The order of the records. Samples are counted over the whole run: sample g is the (g mod n)-th of epoch g / n, and
/// its record depends only on g and the seed, not on the number of processes or where a run was resumed.
class Order {
 public:
  /// Without shuffling every epoch has the order of the files.
  Order(Sequences records, std::uint64_t seed, bool shuffle)
      : records_(std::move(records)), seed_(seed), shuffle_(shuffle) {
    if (records_.empty()) fail<ConfigError>("no records are left to train on");
  }

  /// Records of an epoch.
  Index size() const { return records_.size(); }

  /// The record of sample g. Caches the order of one epoch.
  Index operator[](Index sample) {
    const Index epoch = sample / size();
    const Index place = sample % size();
    if (!shuffle_) return records_[place];
    if (epoch != epoch_) {
      order_ = detail::permutation(size(), mix_key(seed_, detail::shuffle_purpose, static_cast<std::uint64_t>(epoch)));
      epoch_ = epoch;
    }
    return records_[order_[static_cast<std::size_t>(place)]];
  }

  /// The records of the samples [begin, end).
  std::vector<Index> between(Index begin, Index end) {
    std::vector<Index> records;
    for (Index sample = begin; sample < end; ++sample) records.push_back((*this)[sample]);
    return records;
  }

 private:
  Sequences records_;
  std::uint64_t seed_;
  bool shuffle_;
  Index epoch_ = -1;
  std::vector<std::uint32_t> order_;  // of that epoch
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
  Sequences train;
  Sequences held_back;
};

/// Splits off records for evaluation: `val_size` below 1 is a fraction (at least one record), else a count. Both parts
/// keep the order of the files.
/// Throws   ConfigError if nothing would be left to train on
inline Split split_records(Index records, double val_size, std::uint64_t seed) {
  const double wanted = val_size < 1 ? std::ceil(val_size * static_cast<double>(records)) : std::floor(val_size);
  if (!(wanted >= 0) || wanted >= static_cast<double>(records))
    fail<ConfigError>("val_size is ", val_size, " but there are only ", records, " records");
  const auto held = static_cast<std::ptrdiff_t>(wanted);
  std::vector<std::uint32_t> order = detail::permutation(records, mix_key(seed, detail::split_purpose));
  std::sort(order.begin(), order.begin() + held);
  std::sort(order.begin() + held, order.end());
  return {Sequences(std::vector<std::uint32_t>(order.begin() + held, order.end())),
          Sequences(std::vector<std::uint32_t>(order.begin(), order.begin() + held))};
}

}  // namespace lora::data
