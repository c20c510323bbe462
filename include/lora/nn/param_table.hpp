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
  Index layer = -1;          ///< −1: of none

  Index size() const { return end - begin; }
};

/// Elements of a group of parameters, and of those the ones that train: whole blocks both.
struct GroupSize {
  Index all = 0, trained = 0;
  std::vector<Bucket> buckets{};  ///< of what trains; none: all at once

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
inline std::vector<Share> shares_of(const GroupSize& group, int rank, int ranks) {
  std::vector<Share> shares;
  Index at = 0;
  for (const Bucket& bucket : group.shared_out()) {
    const auto parts = parts_of(bucket, ranks);
    const auto own = static_cast<std::size_t>(rank);
    shares.push_back({bucket.begin + parts[own], bucket.begin + parts[own + 1], at});
    at += parts[own + 1] - parts[own];
  }
  return shares;
}

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
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t i = 0; i < groups[g].buckets.size(); ++i)
      if (groups[g].buckets[i].layer < 0) places.begins[g][i] += places.size;
  places.size += taken[-1];
  return places;
}

/// Elements of all shares of `rank`.
inline Index share_size(const GroupSize& group, int rank, int ranks) {
  const Share last = shares_of(group, rank, ranks).back();
  return last.at + last.end - last.begin;
}

/// What may train, by names and extents, without memory: the table of a ParamStore, or of a model that nobody has
/// loaded. A storage is a matrix of a group of parameters; files know rows of it by names.
class ParamTable {
 public:
  static constexpr Index block = kernel::sum_block;

  struct Storage {
    Index rows = 0, cols = 0;
    Index group = 0;
    Index layer = -1;  ///< that it belongs to; −1: none

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

  /// From now on each layer is a bucket of its own.
  void share_by_layer() { by_layer_ = true; }

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
      group.all += storage.in_blocks();
      if (!trains[i]) continue;
      const Index begin = group.trained;
      group.trained += storage.in_blocks();
      if (!by_layer_) continue;
      if (!group.buckets.empty() && group.buckets.back().layer == storage.layer)
        group.buckets.back().end = group.trained;
      else
        group.buckets.push_back({begin, group.trained, storage.layer});
    }
    return result;
  }
  /// Whether one choice trains anything else than the other.
  template <class Before, class Trains>
  bool differs(const Before& before, const Trains& trains) const {
    return told(before) != told(trains);
  }

 private:
  std::vector<Storage> storages_;
  std::vector<Entry> entries_;
  Index groups_ = 0;
  bool by_layer_ = false;
};

}  // namespace lora::nn
