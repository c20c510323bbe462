#pragma once

#include <cstddef>

#include "lora/core/config.hpp"
#include "lora/data/sampling/order.hpp"

namespace lora::data::detail {

constexpr std::uint64_t shuffle_purpose = 0x6F72646572u;

constexpr std::uint64_t split_purpose = 0x73706C6974u;

constexpr std::uint64_t mix_purpose = 0x6D6978u;

}  // namespace lora::data::detail

namespace lora::data {

LORA_INLINE Sequences Sequences::below(Index count) {
  Sequences all;
  all.size_ = checked(count);
  return all;
}

LORA_INLINE Sequences::Sequences(std::vector<std::uint32_t> numbers)
    : size_(checked(std::ssize(numbers))),
      listed_(std::make_shared<const std::vector<std::uint32_t>>(std::move(numbers))) {}

LORA_INLINE std::uint32_t Sequences::as_number(Index number) {
  if (number > most) fail<ConfigError>("sequence ", number, "; at most ", most, " are supported");
  return static_cast<std::uint32_t>(number);
}

LORA_INLINE std::vector<Index> Sequences::numbers() const {
  std::vector<Index> numbers;
  for (Index place = 0; place < size_; ++place) numbers.push_back((*this)[place]);
  return numbers;
}

LORA_INLINE Index Sequences::checked(Index count) {
  if (count > most) fail<ConfigError>(count, " records; at most ", most, " are supported");
  return count;
}

LORA_INLINE std::vector<std::uint32_t> Sequences::narrowed(const std::vector<Index>& numbers) {
  std::vector<std::uint32_t> narrow;
  narrow.reserve(numbers.size());
  for (const Index number : numbers) narrow.push_back(as_number(number));
  return narrow;
}

LORA_INLINE std::vector<Index> mixed_counts(std::span<const Index> sizes, std::span<const double> shares, bool over) {
  constexpr double most_repeats = 1000;
  double total = 0;
  std::size_t decides = 0;  // the file by which the total is as it is
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const double own = static_cast<double>(sizes[i]) / shares[i];
    if (i > 0 && (over ? own <= total : own >= total)) continue;
    total = own;
    decides = i;
  }
  const Index sequences = std::accumulate(sizes.begin(), sizes.end(), Index{0});
  if (!(total <= most_repeats * static_cast<double>(sequences)))
    fail<ConfigError>("a mix in which file ", decides + 1, " has the share ", shares[decides],
                      ", so that an epoch needs ", total, " samples of ", sequences, " records; at most ", most_repeats,
                      " times as many are allowed");
  const double rounding = std::min(1e-9 * total, 1e-3);  // of a quotient that is a whole number but for its last bits
  total = over ? std::ceil(total - rounding) : std::floor(total + rounding);
  if (!(total <= static_cast<double>(Sequences::most)))
    fail<ConfigError>("a mix in which an epoch has ", total, " samples; at most ", Sequences::most, " are supported");
  std::vector<Index> counts = apportion(static_cast<Index>(total), shares);
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] == 0)
      fail<ConfigError>("a mix in which an epoch has ", total, " samples and none of file ", i + 1, ", whose share is ",
                        shares[i]);
  return counts;
}

LORA_INLINE Order::Order(Sequences records, std::uint64_t seed, bool shuffle)
    : records_(std::move(records)), seed_(seed), shuffle_(shuffle) {
  if (records_.empty()) fail<ConfigError>("no records are left to train on");
}

LORA_INLINE Index Order::operator[](Index sample) {
  const Index epoch = sample / size();
  const Index place = sample % size();
  if (!shuffle_) return records_[place];
  if (epoch != epoch_) {
    order_ = draw(epoch);
    epoch_ = epoch;
  }
  const Index drawn = order_[static_cast<std::size_t>(place)];
  return mixture_.files.empty() ? records_[drawn] : drawn;
}

LORA_INLINE std::vector<Index> Order::between(Index begin, Index end) {
  std::vector<Index> records;
  for (Index sample = begin; sample < end; ++sample) records.push_back((*this)[sample]);
  return records;
}

LORA_INLINE std::vector<std::uint32_t> Order::draw(Index epoch) const {
  const auto number = static_cast<std::uint64_t>(epoch);
  if (mixture_.files.empty()) return permutation(size(), mix_key(seed_, detail::shuffle_purpose, number));
  std::vector<Index> before = mixture_.counts;
  for (Index& count : before) count *= epoch;
  return draw_classes(mixture_.files, mixture_.counts, before, seed_, mix_key(seed_, detail::mix_purpose, number));
}

/// ceil((epochs − before) · steps), without rounding: epochs are the decimal number that the double is written as, so
/// that 1.1 epochs of 10 steps are 11. Not above 0 where `before` is not below `epochs`.
LORA_INLINE Index steps_between(Index before, double epochs, Index steps) {
  if (!(epochs > static_cast<double>(before))) return 0;
  __extension__ typedef __int128 Wide;
  char text[32];  // "1.25e-03"
  const std::string_view number(
      text, static_cast<std::size_t>(
                std::to_chars(text, text + sizeof text, epochs, std::chars_format::scientific).ptr - text));
  const std::size_t exponent_at = number.find('e');
  Wide digits = 0;
  int decimals = 0;  // epochs = digits / 10^decimals
  for (const char c : number.substr(0, exponent_at)) {
    if (c == '.') continue;
    digits = digits * 10 + (c - '0');
    ++decimals;
  }
  --decimals;
  int exponent = 0;
  std::from_chars(number.data() + exponent_at + (number[exponent_at + 1] == '+' ? 2 : 1), text + number.size(),
                  exponent);
  decimals -= exponent;
  for (; decimals < 0; ++decimals) digits *= 10;
  if (decimals > 27) return 1;  // less than a step, of an epoch of fewer than 2³³
  Wide one = 1;
  for (int i = 0; i < decimals; ++i) one *= 10;
  return static_cast<Index>(((digits - before * one) * steps + one - 1) / one);
}

LORA_INLINE Index StepPlan::steps(double epochs, Index max_steps, Index before) const {
  return max_steps >= 0 ? max_steps : steps_between(before, epochs, steps_per_epoch());
}

LORA_INLINE StepPlan::Range StepPlan::samples(Index step) const {
  const Index epoch = step / steps_per_epoch();
  const Index first = step % steps_per_epoch() * per_step;
  return {epoch * records + first, epoch * records + std::min(first + per_step, records)};
}

LORA_INLINE StepPlan::Range StepPlan::unit_of(const Range& step, Index unit, Index units) {
  const Index count = step.end - step.begin;
  return {step.begin + count * unit / units, step.begin + count * (unit + 1) / units};
}

LORA_INLINE double StepPlan::epoch_after(Index steps_done) const {
  const Index epoch = steps_done / steps_per_epoch();
  const Index rest = steps_done % steps_per_epoch() * per_step;
  return static_cast<double>(epoch) + static_cast<double>(rest) / static_cast<double>(records);
}

LORA_INLINE Split split_records(Index records, double val_size, std::uint64_t seed) {
  const double wanted = val_size < 1 ? std::ceil(val_size * static_cast<double>(records)) : std::floor(val_size);
  if (!(wanted >= 0) || wanted >= static_cast<double>(records))
    fail<ConfigError>("val_size is ", val_size, " but there are only ", records, " records");
  const auto held = static_cast<std::ptrdiff_t>(wanted);
  std::vector<std::uint32_t> order = permutation(records, mix_key(seed, detail::split_purpose));
  std::sort(order.begin(), order.begin() + held);
  std::sort(order.begin() + held, order.end());
  return {Sequences(std::vector<std::uint32_t>(order.begin() + held, order.end())),
          Sequences(std::vector<std::uint32_t>(order.begin(), order.begin() + held))};
}

}  // namespace lora::data
