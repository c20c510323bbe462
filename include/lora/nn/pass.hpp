#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lora/kernel/attention.hpp"
#include "lora/kernel/elementwise.hpp"
#include "lora/nn/batch.hpp"
#include "lora/nn/footprint.hpp"
#include "lora/tensor/staging.hpp"
#include "lora/tensor/tensor.hpp"

namespace lora::nn {

namespace detail {

/// All that a pass uploads, as one block of host memory, so that one copy is enough.
struct PassBlock {
  struct Part {
    Index begin = 0, count = 0;
  };

  explicit PassBlock(const Batch& batch);

  /// Numbers that a part of `count` takes of the block: each part begins on 64 bytes.
  static constexpr Index part_size(Index count) {
    constexpr Index unit = Arena::alignment / sizeof(std::int32_t);
    return (count + unit - 1) / unit * unit;
  }
  std::span<const std::int32_t> numbers_of(const Part& part) const {
    return std::span(numbers).subspan(static_cast<std::size_t>(part.begin), static_cast<std::size_t>(part.count));
  }

  std::vector<std::int32_t> numbers{};
  Part tokens{}, positions{}, sequence_index{}, cache_rows{};
  Part labeled{}, labels{};  // (n) rows that have a label, and which
  Index max_position = -1;

 private:
  Part add(std::span<const std::int32_t> part);
};

}  // namespace detail

/// Keys and values of the tokens so far, for every layer, in rows that whoever has the cache shares out among
/// sequences. Not in the arena, since it outlives passes.
template <AnyDevice D, class T>
class KvCache {
 public:
  /// kv_width = G·C
  KvCache(D& dev, Index layers, Index rows, Index kv_width) : kv_width_(kv_width) {
    keys_.resize(static_cast<std::size_t>(layers));
    values_.resize(static_cast<std::size_t>(layers));
    if (rows > 0) grow(dev, rows);
  }
  Index rows() const { return rows_; }
  View<D, T> keys(Index layer) { return keys_[static_cast<std::size_t>(layer)].view(); }
  View<D, T> values(Index layer) { return values_[static_cast<std::size_t>(layer)].view(); }

  /// Gives it more rows; what is in those that it has stays. One layer at a time, so that little is there twice.
  void grow(D& dev, Index rows) {
    for_each([&](Tensor<D, T>& tensor) {
      Tensor<D, T> larger(dev, rows, kv_width_);
      if (rows_ > 0) kernel::convert(dev, tensor.view().row_slice(0, rows_), larger.view().row_slice(0, rows_));
      tensor = std::move(larger);
    });
    rows_ = rows;
  }
  /// Copies `count` rows from row `from` on to row `to` and following, which are others.
  void copy(D& dev, Index from, Index to, Index count) {
    if (count == 0) return;
    for_each([&](Tensor<D, T>& tensor) {
      kernel::convert(dev, tensor.view().row_slice(from, count), tensor.view().row_slice(to, count));
    });
  }

 private:
  template <class F>
  void for_each(F&& f) {
    for (auto* tensors : {&keys_, &values_})
      for (Tensor<D, T>& tensor : *tensors) f(tensor);
  }

  Index kv_width_;
  Index rows_ = 0;                    // of every tensor; larger ones are left where growing failed
  std::vector<Tensor<D, T>> keys_;    // L × (rows, G·C)
  std::vector<Tensor<D, T>> values_;  // L × (rows, G·C)
};

/// What all modules of a pass share, on host and device. Decoding is a pass with a cache, through the same modules. The
/// uploaded block is scratch of the arena: passes nest like scopes.
template <AnyDevice D, class T>
class Pass {
 public:
  /// `random_key`: see below. Keeps nothing of the batch.
  /// Throws   ShapeError for parts that are not as long as its tokens, or a position below 0
  explicit Pass(D& dev, const Batch& batch, std::uint64_t random_key = 0)
      : scope_(dev.arena()), block_(batch), segments_(batch.segments), random_key_(random_key) {
    if (block_.numbers.empty()) return;
    const std::span<const std::int32_t> numbers(block_.numbers);
    uploaded_ = scratch<std::int32_t>(dev, 1, static_cast<Index>(numbers.size()));
    copy_staged<D, std::int32_t>(dev, numbers, uploaded_);
  }
  /// A pass that appends to a cache: row i goes to cache row cache_rows[i]; the queries of segment b see keys[b].
  /// Throws   ShapeError for rows that the cache does not have
  Pass(D& dev, const Batch& batch, KvCache<D, T>& cache, std::vector<kernel::Segment> keys) : Pass(dev, batch) {
    if (batch.cache_rows.size() != batch.tokens.size())
      fail<ShapeError>("[pass] ", batch.cache_rows.size(), " cache rows for ", batch.tokens.size(), " tokens");
    for (std::size_t i = 0; i < batch.cache_rows.size(); ++i)
      if (const Index row = batch.cache_rows[i]; row < 0 || row >= cache.rows())
        fail<ShapeError>("[pass] row ", i, " goes to row ", row, " of a cache of ", cache.rows());
    cache_ = &cache;
    keys_ = std::move(keys);
    decodes_ = true;
    for (std::size_t b = 0; b < segments_.size(); ++b)
      decodes_ = decodes_ && segments_[b].end - segments_[b].begin == 1 && keys_[b].end - keys_[b].begin > 1;
  }
  /// Scratch of the block of a pass over so many rows, with the index of each row's sequence, of which so many are
  /// labeled.
  static Index footprint(const PassShape& pass, Index labeled) {
    const Index count = 3 * detail::PassBlock::part_size(pass.rows) + 2 * detail::PassBlock::part_size(labeled);
    return pass.piece<std::int32_t>(1, count);
  }

  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  Index count() const { return block_.tokens.count; }
  Index max_position() const { return block_.max_position; }
  /// The tokens as the host has them.
  std::span<const std::int32_t> host_tokens() const { return block_.numbers_of(block_.tokens); }
  std::span<const kernel::Segment> segments() const { return segments_; }
  /// Whether sequences have rows in common.
  bool shares() const {
    return std::any_of(segments_.begin(), segments_.end(), [](const auto& segment) { return segment.parent >= 0; });
  }
  std::span<const kernel::Segment> keys() const { return cache_ == nullptr ? segments() : keys_; }
  View<D, const std::int32_t> tokens() const { return part(block_.tokens); }
  View<D, const std::int32_t> positions() const { return part(block_.positions); }
  View<D, const std::int32_t> sequence_index() const { return part(block_.sequence_index); }
  View<D, const std::int32_t> cache_rows() const { return part(block_.cache_rows); }
  View<D, const std::int32_t> labeled() const { return part(block_.labeled); }
  View<D, const std::int32_t> labels() const { return part(block_.labels); }
  KvCache<D, T>* cache() const { return cache_; }
  /// Whether each sequence gets one row behind others: a decoding step, for whose few rows there are kernels of their
  /// own.
  bool decodes() const { return decodes_; }
  /// Of the random numbers of a step, made of its seed and number; 0: no dropout and no noise (evaluation).
  std::uint64_t random_key() const { return random_key_; }

  /// Of the stack's output the labeled rows alone will be read.
  void want_labeled() { wants_labeled_ = true; }
  /// Those that will; empty: all.
  View<D, const std::int32_t> wanted() const { return wants_labeled_ ? labeled() : View<D, const std::int32_t>(); }

  /// A pass that keeps nothing ends before its next layer once *stop is no longer 0; its output is then undefined.
  void stop_by(const std::atomic<int>* stop) { stop_ = stop; }
  bool stopped() const { return stop_ != nullptr && stop_->load() != 0; }

 private:
  View<D, const std::int32_t> part(const detail::PassBlock::Part& part) const {
    return part.count == 0 ? View<D, const std::int32_t>() : uploaded_.col_slice(part.begin, part.count);
  }

  Arena::Scope scope_;
  detail::PassBlock block_;
  std::vector<kernel::Segment> segments_;
  View<D, std::int32_t> uploaded_;
  std::uint64_t random_key_;
  std::vector<kernel::Segment> keys_;
  KvCache<D, T>* cache_ = nullptr;
  bool decodes_ = false;
  bool wants_labeled_ = false;
  const std::atomic<int>* stop_ = nullptr;
};

}  // namespace lora::nn

#ifndef LORA_COMPILED
#  include "lora/nn/pass.ipp"
#endif
