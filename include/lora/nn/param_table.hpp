#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/shape.hpp"
#include "lora/kernel/reduce.hpp"

namespace lora::nn {

/// Elements of a group of parameters, and of those the ones that train: whole blocks both.
struct GroupSize {
  Index all = 0, trained = 0;
};

/// What may train, by names and extents, without memory: the table of a ParamStore, or of a model that nobody has
/// loaded. A storage is a matrix of a group of parameters; files know rows of it by names.
class ParamTable {
 public:
  static constexpr Index block = kernel::sum_block;

  struct Storage {
    Index rows = 0, cols = 0;
    Index group = 0;

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
  void clear() { *this = {}; }

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
    const std::vector<bool> chosen = told(trains);
    std::vector<GroupSize> result(static_cast<std::size_t>(groups_));
    for (std::size_t i = 0; i < storages_.size(); ++i) {
      GroupSize& group = result[static_cast<std::size_t>(storages_[i].group)];
      group.all += storages_[i].in_blocks();
      if (chosen[i]) group.trained += storages_[i].in_blocks();
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
};

}  // namespace lora::nn
