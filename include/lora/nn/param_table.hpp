#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/core/error.hpp"
#include "lora/core/shape.hpp"
#include "lora/kernel/reduce.hpp"

namespace lora::nn {

/// Neighbours among the elements of a group that train, in whole blocks, which ranks share out at once: all of them or,
/// where gradients leave by layer, a layer's.
struct Bucket {
  Index begin = 0, end = 0;  ///< of the group's elements
  Index layer = -1;          ///< or before_layers, behind_layers

  Index size() const { return end - begin; }
};

/// What belongs to no layer: what a pass begins with, the embedding (and where the head is the same matrix, all else),
/// and what it ends with, the final norm and the head.
constexpr Index before_layers = -1, behind_layers = -2;

/// Elements of a group of parameters, and of those the ones that train: whole blocks both.
struct GroupSize {
  Index all = 0, trained = 0;
  std::vector<Bucket> buckets{};  ///< of what trains; none: all at once
  std::vector<Bucket> frozen{};   ///< of what does not, where values are shared out
  bool shares_values = false;     ///< a rank has its shares of the values alone
  bool in_full = false;           ///< read in the type of sums: biases and the weights of norms

  /// At least one.
  std::vector<Bucket> shared_out() const { return buckets.empty() ? std::vector{Bucket{0, trained}} : buckets; }
};

/// Where each rank's part of a bucket begins, counted from the bucket's first element, and where the last ends.
inline std::vector<Index> parts_of(const Bucket& bucket, int ranks) {
  return comm::even_parts(bucket.size() / kernel::sum_block, kernel::sum_block, ranks);
}

/// Elements of a group that a rank has of a bucket, and where they begin among all that it has of the group.
struct Share {
  Index begin = 0, end = 0;
  Index at = 0;
};

/// The shares of `rank`, one of each bucket.
inline std::vector<Share> shares_of(const std::vector<Bucket>& buckets, int rank, int ranks) {
  std::vector<Share> shares;
  Index at = 0;
  for (const Bucket& bucket : buckets) {
    const auto parts = parts_of(bucket, ranks);
    const auto own = static_cast<std::size_t>(rank);
    shares.push_back({bucket.begin + parts[own], bucket.begin + parts[own + 1], at});
    at += parts[own + 1] - parts[own];
  }
  return shares;
}
/// Of what trains.
inline std::vector<Share> shares_of(const GroupSize& group, int rank, int ranks) {
  return shares_of(group.shared_out(), rank, ranks);
}

/// How ranks share out a tensor, whose elements [first, first + size) of a group all lie in one bucket.
struct Dealt {
  std::size_t bucket = 0;
  Index first;
  std::vector<Index> begins;  ///< of the ranks' elements, counted from the tensor's first, and where the last end

  Dealt(const std::vector<Bucket>& buckets, Index first_, Index size, int ranks) : first(first_) {
    while (first >= buckets[bucket].end) ++bucket;
    begins = parts_of(buckets[bucket], ranks);
    for (Index& begin : begins) begin = std::clamp<Index>(begin + buckets[bucket].begin - first, 0, size);
  }

  /// Of `rank`.
  Index count(int rank) const {
    const auto own = static_cast<std::size_t>(rank);
    return begins[own + 1] - begins[own];
  }
  /// Where its elements lie among all that it has, of which these are its shares.
  Index place(const std::vector<Share>& shares, int rank) const {
    const Share& share = shares[bucket];
    return share.at + first + begins[static_cast<std::size_t>(rank)] - share.begin;
  }
};

/// Where the gradients of each bucket are formed where they leave by layer: layers take turns with the same memory, and
/// what belongs to none has some of its own.
struct FormingPlaces {
  std::vector<std::vector<Index>> begins{};  ///< of each group's buckets
  Index size = 0;
};
inline FormingPlaces forming_places(const std::vector<GroupSize>& groups) {
  std::map<Index, Index> taken;  // elements of each layer
  FormingPlaces places;
  for (const GroupSize& group : groups) {
    auto& begins = places.begins.emplace_back();
    for (const Bucket& bucket : group.buckets) {
      begins.push_back(taken[bucket.layer]);
      taken[bucket.layer] += bucket.size();
    }
  }
  for (const auto& [layer, size] : taken)
    if (layer >= 0) places.size = std::max(places.size, size);
  for (const Index apart : {before_layers, behind_layers}) {
    for (std::size_t g = 0; g < groups.size(); ++g)
      for (std::size_t i = 0; i < groups[g].buckets.size(); ++i)
        if (groups[g].buckets[i].layer == apart) places.begins[g][i] += places.size;
    places.size += taken[apart];
  }
  return places;
}

/// Elements of all shares of `rank` of what trains.
inline Index share_size(const GroupSize& group, int rank, int ranks) {
  const Share last = shares_of(group, rank, ranks).back();
  return last.at + last.end - last.begin;
}

/// The buckets of a group whose values are shared out: of what trains, then of what does not.
inline std::vector<Bucket> buckets_of_values(const GroupSize& group) {
  std::vector<Bucket> buckets = group.buckets;
  buckets.insert(buckets.end(), group.frozen.begin(), group.frozen.end());
  return buckets;
}
/// Elements of the values of a group that a rank has.
inline Index values_held(const GroupSize& group, int rank, int ranks) {
  if (!group.shares_values) return group.all;
  const auto shares = shares_of(buckets_of_values(group), rank, ranks);
  return shares.empty() ? 0 : shares.back().at + shares.back().end - shares.back().begin;
}

/// A bucket of a group among the bytes of a layer that ranks have gathered.
struct GatheredPiece {
  std::size_t group = 0, bucket = 0;  ///< as buckets_of_values has it
  Index begin = 0, end = 0;           ///< of the group's elements
  bool in_full = false;
  std::size_t offset = 0;  ///< bytes
};
struct GatheredLayer {
  std::vector<GatheredPiece> pieces{};
  std::size_t bytes = 0;
};

/// What is gathered of each layer, and of what belongs to none, where values are shared out: for products in numbers of
/// `narrow` bytes, the rest in numbers of `wide`. Everything begins on whole blocks.
inline std::map<Index, GatheredLayer> gathered_layers(const std::vector<GroupSize>& groups, std::size_t narrow,
                                                      std::size_t wide) {
  std::map<Index, GatheredLayer> layers;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (!groups[g].shares_values) continue;
    const std::vector<Bucket> buckets = buckets_of_values(groups[g]);
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      GatheredLayer& layer = layers[buckets[i].layer];
      layer.pieces.push_back({g, i, buckets[i].begin, buckets[i].end, groups[g].in_full, layer.bytes});
      layer.bytes += static_cast<std::size_t>(buckets[i].size()) * (groups[g].in_full ? wide : narrow);
    }
  }
  return layers;
}

/// Layers that there is room for, of those that are gathered; and of what belongs to none, one.
constexpr int gathered_slots = 2;

/// Bytes of that room.
inline std::size_t room_for_gathered(const std::map<Index, GatheredLayer>& layers) {
  std::size_t largest = 0, apart = 0;
  for (const auto& [number, layer] : layers)
    (number < 0 ? apart : largest) = std::max(number < 0 ? apart : largest, layer.bytes);
  return gathered_slots * largest + apart;
}

/// What may train, by names and extents, without memory: the table of a ParamStore, or of a model that nobody has
/// loaded. A storage is a matrix of a group of parameters; files know rows of it by names.
class ParamTable {
 public:
  static constexpr Index block = kernel::sum_block;

  struct Storage {
    Index rows = 0, cols = 0;
    Index group = 0;
    Index layer = before_layers;  ///< that it belongs to
    bool in_full = false;         ///< as GroupSize has it, the same for all of a group

    /// Elements in whole blocks.
    Index in_blocks() const { return (rows * cols + block - 1) / block * block; }
  };

  /// A row of the table: a tensor under its name in files.
  struct Entry {
    std::string name;
    std::size_t storage = 0;
    Index first_row = 0, rows = 0;  ///< of the storage
    bool transposed = false;
  };

  /// Returns its number.
  std::size_t add(const Storage& storage) {
    storages_.push_back(storage);
    groups_ = std::max(groups_, storage.group + 1);
    return storages_.size() - 1;
  }
  void name(Entry entry) { entries_.push_back(std::move(entry)); }
  void clear() {
    storages_.clear();
    entries_.clear();
    groups_ = 0;
  }

  /// From now on each layer is a bucket of its own. `values`: are shared out too.
  void share_by_layer(bool values = false) {
    by_layer_ = true;
    shares_values_ = values;
  }

  const std::vector<Storage>& storages() const { return storages_; }
  const std::vector<Entry>& entries() const { return entries_; }
  Index groups() const { return groups_; }
  Index elements_of(const Entry& entry) const { return entry.rows * storages_[entry.storage].cols; }

  /// Of each storage, whether it trains where tensors do for whose names `trains(name)` is true; one without a name
  /// does.
  /// Throws   ConfigError if names that share a matrix are told apart, or nothing is left to train
  template <class Trains>
  std::vector<bool> told(const Trains& trains) const {
    std::vector<int> all(storages_.size(), -1);
    bool any = false;
    for (const Entry& entry : entries_) {
      const int now = trains(std::string_view(entry.name)) ? 1 : 0;
      int& before = all[entry.storage];
      if (before >= 0 && before != now)
        fail<ConfigError>(entry.name, " can't be ", now == 1 ? "trained" : "frozen",
                          " apart from its neighbours, with which it shares a matrix");
      before = now;
      any = any || now == 1;
    }
    if (!any) fail<ConfigError>("none of the model's ", entries_.size(), " trainable tensors is left to train");
    std::vector<bool> result;
    for (const int one : all) result.push_back(one != 0);
    return result;
  }

  /// Of each group, where this choice trains.
  template <class Trains>
  std::vector<GroupSize> sizes(const Trains& trains) const {
    return sizes_of(told(trains));
  }
  /// The same, told of each storage.
  std::vector<GroupSize> sizes_of(const std::vector<bool>& trains) const {
    std::vector<GroupSize> result(static_cast<std::size_t>(groups_));
    for (std::size_t i = 0; i < storages_.size(); ++i) {
      const Storage& storage = storages_[i];
      GroupSize& group = result[static_cast<std::size_t>(storage.group)];
      group.shares_values = shares_values_;
      group.in_full = storage.in_full;
      group.all += storage.in_blocks();
      if (!trains[i]) continue;
      if (by_layer_) append(group.buckets, {group.trained, group.trained + storage.in_blocks(), storage.layer});
      group.trained += storage.in_blocks();
    }
    // Behind what trains lies what does not.
    std::vector<Index> ends;
    for (const GroupSize& group : result) ends.push_back(group.trained);
    for (std::size_t i = 0; shares_values_ && i < storages_.size(); ++i) {
      if (trains[i]) continue;
      const auto group = static_cast<std::size_t>(storages_[i].group);
      append(result[group].frozen, {ends[group], ends[group] + storages_[i].in_blocks(), storages_[i].layer});
      ends[group] += storages_[i].in_blocks();
    }
    return result;
  }
  /// Whether one choice trains anything else than the other.
  template <class Before, class Trains>
  bool differs(const Before& before, const Trains& trains) const {
    return told(before) != told(trains);
  }

 private:
  // Neighbours of a layer are one bucket.
  static void append(std::vector<Bucket>& buckets, const Bucket& next) {
    if (!buckets.empty() && buckets.back().layer == next.layer)
      buckets.back().end = next.end;
    else
      buckets.push_back(next);
  }

  std::vector<Storage> storages_;
  std::vector<Entry> entries_;
  Index groups_ = 0;
  bool by_layer_ = false;
  bool shares_values_ = false;
};

}  // namespace lora::nn
