#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/shape.hpp"
#include "lora/kernel/reduce.hpp"
#include "lora/nn/shares.hpp"

namespace lora::nn {

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

  /// From now on each layer is a bucket of its own. `forming`: as GroupSize has it. `values`: are shared out too.
  void share_by_layer(int forming, bool values = false) {
    by_layer_ = true;
    forming_ = forming;
    shares_values_ = values;
  }
  /// From now on values lie on the host beside the device.
  void keep_values_on_host() { values_on_host_ = true; }

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
                          " apart from its neighbors, with which it shares a matrix");
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
    for (const bool now : {true, false}) {  // behind what trains lies what does not
      std::vector<std::vector<Bucket>> values(result.size());
      for (std::size_t i = 0; i < storages_.size(); ++i) {
        if (trains[i] != now) continue;
        const Storage& storage = storages_[i];
        const auto number = static_cast<std::size_t>(storage.group);
        GroupSize& group = result[number];
        const Bucket bucket{group.all, group.all + storage.in_blocks(), storage.layer};
        group.all = bucket.end;
        group.in_full = storage.in_full;
        if (now) group.trained = bucket.end;
        if (now && by_layer_) append(group.buckets, bucket);
        if (shares_values_ || values_on_host_) append(values[number], bucket);
      }
      for (std::size_t i = 0; i < result.size(); ++i)
        result[i].values.insert(result[i].values.end(), values[i].begin(), values[i].end());
    }
    for (GroupSize& group : result) {
      group.shares_values = shares_values_;
      group.on_host = values_on_host_;
      group.forming = forming_;
    }
    return result;
  }
  /// Whether one choice trains anything else than the other.
  template <class Before, class Trains>
  bool differs(const Before& before, const Trains& trains) const {
    return told(before) != told(trains);
  }

 private:
  // Neighbors of a layer are one bucket.
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
  int forming_ = 1;
  bool shares_values_ = false;
  bool values_on_host_ = false;
};

}  // namespace lora::nn
