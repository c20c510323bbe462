#pragma once

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>
#include <vector>

#include "lora/kernel/attention.hpp"
#include "lora/kernel/elementwise.hpp"
#include "lora/nn/footprint.hpp"
#include "lora/tensor/staging.hpp"
#include "lora/tensor/tensor.hpp"

namespace lora::nn {

/// The rows of one pass, on the host: sequences end to end, without padding.
struct Rows {
  using Numbers = std::span<const std::int32_t>;
  Numbers tokens;          ///< (N)
  Numbers positions;       ///< (N) of the row in its sequence
  Numbers sequence_index;  ///< (N) index of the row's sequence in the step; needed for dropout and noise only
  std::span<const kernel::Segment> segments{};  ///< (B) rows of each sequence
  Numbers cache_rows{};                         ///< (N) where a row goes in a key/value cache
  Numbers labelled{};                           ///< (n) rows that have a label
  Numbers labels{};                             ///< (n) their labels
};

/// All that a pass uploads, as one block of host memory, so that one copy is enough.
class StagedRows {
 public:
  struct Part {
    Index begin = 0, count = 0;
  };

  StagedRows() = default;
  explicit StagedRows(const Rows& rows);

  Index count() const { return tokens.count; }
  Index max_position() const { return max_position_; }
  std::span<const kernel::Segment> segments() const { return segments_; }
  std::span<const std::int32_t> block() const { return block_; }
  std::span<const std::int32_t> numbers(const Part& part) const {
    return std::span(block_).subspan(static_cast<std::size_t>(part.begin), static_cast<std::size_t>(part.count));
  }

  /// Numbers that a part of `count` takes of the block: each part begins on 64 bytes.
  static constexpr Index part_size(Index count) {
    constexpr Index unit = Arena::alignment / sizeof(std::int32_t);
    return (count + unit - 1) / unit * unit;
  }

  Part tokens, positions, sequence_index, cache_rows, labelled, labels;  ///< of the block

 private:
  Part add(Rows::Numbers numbers);

  std::vector<kernel::Segment> segments_;
  std::vector<std::int32_t> block_;
  Index max_position_ = -1;
};

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
  /// `rows` must live as long as the pass.
  Pass(D& dev, const StagedRows& rows, std::uint64_t random_key = 0)
      : scope_(dev.arena()), rows_(&rows), random_key_(random_key) {
    upload(dev);
  }
  /// The same with a copy of the rows in the pass.
  Pass(D& dev, const Rows& rows, std::uint64_t random_key = 0)
      : scope_(dev.arena()), own_(rows), rows_(&own_), random_key_(random_key) {
    upload(dev);
  }
  /// A pass that appends to a cache: row i goes to cache row cache_rows[i]; the queries of segment b see keys[b].
  /// Throws   ShapeError for rows that the cache does not have
  Pass(D& dev, const Rows& rows, KvCache<D, T>& cache, std::vector<kernel::Segment> keys) : Pass(dev, rows) {
    const auto own = own_.numbers(own_.cache_rows);
    if (own_.cache_rows.count != own_.count())
      fail<ShapeError>("[pass] ", own_.cache_rows.count, " cache rows for ", own_.count(), " tokens");
    for (std::size_t i = 0; i < own.size(); ++i)
      if (own[i] < 0 || own[i] >= cache.rows())
        fail<ShapeError>("[pass] row ", i, " goes to row ", own[i], " of a cache of ", cache.rows());
    cache_ = &cache;
    keys_ = std::move(keys);
  }
  /// Scratch of the block of a pass over so many rows, with the index of each row's sequence, of which so many are
  /// labelled.
  static Index footprint(const PassShape& pass, Index labelled) {
    const Index count = 3 * StagedRows::part_size(pass.rows) + 2 * StagedRows::part_size(labelled);
    return pass.piece<std::int32_t>(1, count);
  }

  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  Index count() const { return rows_->count(); }
  Index max_position() const { return rows_->max_position(); }
  /// The tokens as the host has them.
  std::span<const std::int32_t> host_tokens() const { return rows_->numbers(rows_->tokens); }
  std::span<const kernel::Segment> segments() const { return rows_->segments(); }
  std::span<const kernel::Segment> keys() const { return cache_ == nullptr ? segments() : keys_; }
  View<D, const std::int32_t> tokens() const { return part(rows_->tokens); }
  View<D, const std::int32_t> positions() const { return part(rows_->positions); }
  View<D, const std::int32_t> sequence_index() const { return part(rows_->sequence_index); }
  View<D, const std::int32_t> cache_rows() const { return part(rows_->cache_rows); }
  View<D, const std::int32_t> labelled() const { return part(rows_->labelled); }
  View<D, const std::int32_t> labels() const { return part(rows_->labels); }
  KvCache<D, T>* cache() const { return cache_; }
  /// Of the random numbers of a step, made of its seed and number; 0: no dropout and no noise (evaluation).
  std::uint64_t random_key() const { return random_key_; }

  /// A pass that keeps nothing ends before its next layer once *stop is no longer 0; its output is then undefined.
  void stop_by(const std::atomic<int>* stop) { stop_ = stop; }
  bool stopped() const { return stop_ != nullptr && stop_->load() != 0; }

 private:
  void upload(D& dev) {
    const auto block = rows_->block();
    if (block.empty()) return;
    block_ = scratch<std::int32_t>(dev, 1, static_cast<Index>(block.size()));
    copy_staged<D, std::int32_t>(dev, block, block_);
  }
  View<D, const std::int32_t> part(const StagedRows::Part& part) const {
    return part.count == 0 ? View<D, const std::int32_t>() : block_.col_slice(part.begin, part.count);
  }

  Arena::Scope scope_;
  StagedRows own_;
  const StagedRows* rows_;
  View<D, std::int32_t> block_;
  std::uint64_t random_key_;
  std::vector<kernel::Segment> keys_;
  KvCache<D, T>* cache_ = nullptr;
  const std::atomic<int>* stop_ = nullptr;
};

}  // namespace lora::nn

#ifndef LORA_COMPILED
#  include "lora/nn/pass.ipp"
#endif
