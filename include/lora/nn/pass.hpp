#pragma once

#include <algorithm>
#include <atomic>
#include <span>
#include <vector>

#include "lora/kernel/attention.hpp"
#include "lora/tensor/transfer.hpp"

namespace lora::nn {

/// The rows of one pass as the host describes them: sequences end to end, without padding.
struct Rows {
  std::span<const std::int32_t> tokens;     ///< (N)
  std::span<const std::int32_t> positions;  ///< (N) place of the row in its sequence
  std::span<const std::int32_t>
      places;  ///< (N) place of the row's sequence in the whole step; may be empty without dropout
  std::span<const kernel::Segment> segments{};  ///< (B) rows of each sequence
};

/// Keys and values of what was decoded so far, for every layer: B slots of `capacity` rows each. Outside the arena,
/// since it outlives passes.
template <AnyDevice D, class T>
class KvCache {
 public:
  /// kv_width = G·C
  KvCache(D& dev, Index layers, Index slots, Index capacity, Index kv_width) : capacity_(capacity) {
    for (Index layer = 0; layer < layers; ++layer) {
      keys_.emplace_back(dev, slots * capacity, kv_width);
      values_.emplace_back(dev, slots * capacity, kv_width);
    }
  }
  Index capacity() const { return capacity_; }
  View<D, T> keys(Index layer) { return keys_[static_cast<std::size_t>(layer)].view(); }
  View<D, T> values(Index layer) { return values_[static_cast<std::size_t>(layer)].view(); }

 private:
  Index capacity_;
  std::vector<Tensor<D, T>> keys_;    // L × (B·capacity, G·C)
  std::vector<Tensor<D, T>> values_;  // L × (B·capacity, G·C)
};

/// What a whole pass shares, on host and device. Decoding is a pass with a cache, through the same modules.
template <AnyDevice D, class T>
class Pass {
 public:
  Pass(D& dev, const Rows& rows, std::uint64_t dropout_key = 0)
      : segments_(rows.segments.begin(), rows.segments.end()),
        keys_(segments_),
        count_(static_cast<Index>(rows.tokens.size())),
        dropout_key_(dropout_key) {
    if (rows.positions.size() != rows.tokens.size() ||
        (!rows.places.empty() && rows.places.size() != rows.tokens.size()))
      fail<ShapeError>("[pass] ", rows.tokens.size(), " tokens, ", rows.positions.size(), " positions, ",
                       rows.places.size(), " places");
    tokens_ = tensor_of<std::int32_t>(dev, rows.tokens, 1, count_);
    positions_ = tensor_of<std::int32_t>(dev, rows.positions, 1, count_);
    if (!rows.places.empty()) places_ = tensor_of<std::int32_t>(dev, rows.places, 1, count_);
    for (const auto position : rows.positions) max_position_ = std::max(max_position_, Index{position});
  }

  /// A pass that appends to a cache: row i goes to cache row cache_rows[i]; the queries of segment b see keys[b].
  Pass(D& dev, const Rows& rows, KvCache<D, T>& cache, std::span<const std::int32_t> cache_rows,
       std::vector<kernel::Segment> keys)
      : Pass(dev, rows) {
    cache_ = &cache;
    cache_rows_ = tensor_of<std::int32_t>(dev, cache_rows, 1, count_);
    keys_ = std::move(keys);
  }

  Index count() const { return count_; }
  Index max_position() const { return max_position_; }
  std::span<const kernel::Segment> segments() const { return segments_; }
  std::span<const kernel::Segment> keys() const { return keys_; }
  View<D, const std::int32_t> tokens() const { return tokens_.view(); }
  View<D, const std::int32_t> positions() const { return positions_.view(); }
  View<D, const std::int32_t> places() const { return places_.view(); }
  View<D, const std::int32_t> cache_rows() const { return cache_rows_.view(); }
  KvCache<D, T>* cache() const { return cache_; }
  /// Of seed and step; 0 switches dropout off (evaluation).
  std::uint64_t dropout_key() const { return dropout_key_; }

  /// A pass that keeps nothing ends before its next layer once *stop is no longer 0; its output then means nothing.
  void stop_by(const std::atomic<int>* stop) { stop_ = stop; }
  bool stopped() const { return stop_ != nullptr && stop_->load() != 0; }

 private:
  std::vector<kernel::Segment> segments_;
  std::vector<kernel::Segment> keys_;
  Index count_ = 0;
  Index max_position_ = -1;
  std::uint64_t dropout_key_ = 0;
  Tensor<D, std::int32_t> tokens_;      // (N)
  Tensor<D, std::int32_t> positions_;   // (N)
  Tensor<D, std::int32_t> places_;      // (N)
  Tensor<D, std::int32_t> cache_rows_;  // (N)
  KvCache<D, T>* cache_ = nullptr;
  const std::atomic<int>* stop_ = nullptr;
};

}  // namespace lora::nn
