#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/kernel/elementwise.hpp"
#include "lora/kernel/reduce.hpp"
#include "lora/nn/param_table.hpp"
#include "lora/tensor/tensor.hpp"

namespace lora::nn {

/// One trainable tensor as files, optimizer and tests see it: a matrix of a storage or some rows of it. Where
/// `transposed`, files hold the transpose (lora_B lies in memory as (R, O)). `grad` is empty where it is frozen, and
/// zero between passes where gradients leave by layer.
template <AnyDevice D, class T>
struct ParamRef {
  std::string name;
  View<D, Accum<T>> value;
  View<D, Accum<T>> grad;
  bool transposed = false;
};

template <AnyDevice D, class T>
class ParamStore;

/// A module's handle to a trainable matrix, whose memory a ParamStore owns. It stays valid when the store moves memory,
/// which happens between steps only; views taken from it do not.
template <AnyDevice D, class T>
class Param {
 public:
  static constexpr bool has_copy = !std::same_as<T, Accum<T>>;

  Param() = default;

  bool empty() const { return storage_ == nullptr; }
  /// Whether gradients are formed; else `grad` is empty.
  bool trains() const { return storage_ != nullptr && storage_->trains; }
  View<D, Accum<T>> value() const { return storage_->value; }
  View<D, Accum<T>> grad() const { return storage_->grad; }

  /// What products read; valid since the store's last refresh.
  /// Throws   DeviceError for one that has no memory now
  View<D, const T> use() const {
    View<D, const T> numbers;
    if constexpr (has_copy) {
      numbers = storage_->copy;
    } else {
      numbers = storage_->value;
    }
    if (numbers.empty())
      fail<DeviceError>("[param] a matrix (", storage_->rows, ", ", storage_->cols,
                        ") is read while it is not on the device; expected its store to be built before");
    return numbers;
  }

 private:
  friend class ParamStore<D, T>;

  struct Storage {
    Index rows = 0, cols = 0;
    Index group = 0;
    bool trains = true;
    Index begin = 0;  // of the group's slab, in elements
    View<D, Accum<T>> value, grad;
    View<D, T> copy;  // where T is narrower
  };

  explicit Param(const Storage* storage) : storage_(storage) {}

  const Storage* storage_ = nullptr;
};

/// Owns every tensor that may train. For each group, whose tensors share learning rate and decay, there is one slab of
/// each kind: values (masters in Accum<T>), copies in T for products where T is narrower, gradients. A tensor begins
/// with a block of 1,024 elements, and those that train lie before those that are frozen, for which there are no
/// gradients: an optimizer step is a launch a group, or a bucket of it, and whatever goes by blocks gives the same bits
/// however the blocks are dealt out. Padding is 0 and stays 0.
///
/// First everything is added, then `build` gives it memory. What trains may change between steps: `train`.
template <AnyDevice D, class T>
class ParamStore {
  using Storage = typename Param<D, T>::Storage;

 public:
  static constexpr Index block = ParamTable::block;
  using Entry = ParamTable::Entry;

  /// What an optimizer and a norm go over: (1, n), whole blocks of one group. Of gradients that leave by layer there is
  /// this rank's share, one bucket's after the other.
  struct Slab {
    View<D, Accum<T>> value;
    View<D, Accum<T>> grad;
  };

  /// Before anything is added: ranks share out what trains layer by layer, and as rank `rank` of `ranks`, several, this
  /// one keeps its share of the gradients only. They are formed in memory that layers take turns with.
  void share_by_layer(int rank, int ranks) {
    table_.share_by_layer();
    rank_ = rank;
    ranks_ = ranks;
  }
  /// Whether gradients are formed layer by layer, to be given away.
  bool gives_gradients_away() const { return ranks_ > 1; }
  /// What is added from now on belongs to a layer, or, −1, to none.
  void begin_layer(Index layer) { layer_ = layer; }

  /// A matrix of `group`; `build` makes it zero.
  Param<D, T> add(Index rows, Index cols, Index group = 0) {
    auto& storage = storages_.emplace_back(std::make_unique<Storage>());
    storage->rows = rows;
    storage->cols = cols;
    storage->group = group;
    table_.add({rows, cols, group, layer_});
    groups_.resize(static_cast<std::size_t>(table_.groups()));
    return Param<D, T>(storage.get());
  }

  /// Says what files call `rows` rows of a matrix that was added last or before.
  void name(const Param<D, T>& param, std::string name, Index first_row, Index rows, bool transposed = false) {
    const auto of = [&](const auto& storage) { return storage.get() == param.storage_; };
    const auto place = std::find_if(storages_.rbegin(), storages_.rend(), of);
    table_.name({std::move(name), static_cast<std::size_t>(storages_.rend() - place) - 1, first_row, rows, transposed});
  }

  /// Forgets all tensors; handles to them must not be used again.
  void clear() {
    storages_.clear();
    table_.clear();
    groups_.clear();
    layer_ = -1;
  }

  /// Memory for all that was added; everything is zero and trains.
  void build(D& dev) {
    for (Group& g : groups_) g = {};
    forming_ = {};
    for (auto& storage : storages_) storage->value = {};
    take_places(dev, std::vector<bool>(storages_.size(), true), true);
    refresh(dev);
  }

  /// From now on, tensors train for whose names `trains(name)` is true. Values stay, gradients become zero. To be
  /// called between steps; an optimizer follows with `AdamW::follow`. Where nothing changes, nothing moves; otherwise
  /// gradients and copies are freed first and allocated again at the end, and values are moved group by group.
  /// Throws   ConfigError if names that share a matrix are told apart, or nothing is left to train; DeviceError where
  ///          memory is short. Then the values and what trains are as before, and gradients are zero; where even the
  ///          memory for that is gone by then, there are no gradients and copies, but all values
  template <class Trains>
  void train(D& dev, const Trains& trains) {
    const std::vector<bool> now = table_.told(trains), before = those_that_train();
    if (whole_ && now == before) return zero_grad(dev);
    try {
      take_places(dev, now, true);
      refresh(dev);
      dev.synchronize();
    } catch (...) {
      take_back(dev, before);
      throw;
    }
  }

  /// Of each group.
  std::vector<GroupSize> sizes() const {
    std::vector<GroupSize> result;
    for (const Group& g : groups_) result.push_back(g.size);
    return result;
  }
  /// Names and extents, and what a choice of them comes to.
  const ParamTable& table() const { return table_; }

  Index groups() const { return static_cast<Index>(groups_.size()); }
  const std::vector<Entry>& entries() const { return table_.entries(); }

  /// Values and gradients of what trains of a group; empty if nothing does.
  Slab slab(Index group) {
    Group& g = groups_[static_cast<std::size_t>(group)];
    if (g.size.trained == 0) return {};
    return {g.value.view().col_slice(0, g.size.trained), g.grad.view()};
  }
  /// Elements of a group, and how ranks share them out.
  const GroupSize& size(Index group) const { return groups_[static_cast<std::size_t>(group)].size; }

  /// The gradient of elements that this rank has a share of.   Shapes   (1, end − begin)
  View<D, Accum<T>> grad_of(Index group, const Share& share) {
    const Index begin = gives_gradients_away() ? share.at : share.begin;
    return groups_[static_cast<std::size_t>(group)].grad.view().col_slice(begin, share.end - share.begin);
  }
  /// Where a bucket's gradients are formed, if they leave by layer.   Shapes   (1, its elements)
  View<D, Accum<T>> forming(Index group, std::size_t bucket) {
    const auto g = static_cast<std::size_t>(group);
    return forming_.view().col_slice(places_.begins[g][bucket], groups_[g].size.buckets[bucket].size());
  }

  /// Where a storage's elements begin in its group's slab; whether it trains.
  struct Place {
    Index group, begin, rows, cols;
    bool trains;
  };
  std::size_t storages() const { return storages_.size(); }
  Place place(std::size_t storage) const {
    const Storage& s = *storages_[storage];
    return {s.group, s.begin, s.rows, s.cols, s.trains};
  }

  /// f(ParamRef) for every tensor, in the order in which they were named.
  template <class F>
  void for_each(F&& f) {
    for (const Entry& entry : entries()) {
      const Storage& s = *storages_[entry.storage];
      f(ParamRef<D, T>{entry.name, s.value.row_slice(entry.first_row, entry.rows),
                       s.trains ? s.grad.row_slice(entry.first_row, entry.rows) : View<D, Accum<T>>(),
                       entry.transposed});
    }
  }

  /// Brings the copies that products read up to date with the values; to be called whenever these have changed.
  void refresh(D& dev) {
    ++changes_;
    refresh_copies(dev);
  }
  /// The same after an optimizer's own step, which it knows of.
  void refresh_copies(D& dev) {
    if constexpr (Param<D, T>::has_copy)
      for (Group& g : groups_)
        if (!g.value.empty()) kernel::convert(dev, g.value.view(), g.copy.view());
  }
  /// How often values have changed, but for the optimizer's steps.
  std::uint64_t changes() const { return changes_; }
  void zero_grad(D& dev) {
    for (Group& g : groups_)
      if (!g.grad.view().empty()) kernel::fill(dev, g.grad.view(), 0.0);
    if (gives_gradients_away()) kernel::fill(dev, forming_.view(), 0.0);
  }

 private:
  struct Group {
    GroupSize size{};  // those that train come first
    Tensor<D, Accum<T>> value, grad;
    Tensor<D, T> copy;
  };

  std::vector<bool> those_that_train() const {
    std::vector<bool> result;
    for (const auto& s : storages_) result.push_back(s->trains);
    return result;
  }

  // Where each storage begins in its group's slab.
  std::vector<Index> lay_out(const std::vector<bool>& trains) const {
    std::vector<Index> begins(storages_.size()), sizes(groups_.size());
    for (const bool first : {true, false})
      for (std::size_t i = 0; i < storages_.size(); ++i) {
        if (trains[i] != first) continue;
        Index& size = sizes[static_cast<std::size_t>(storages_[i]->group)];
        begins[i] = size;
        size += table_.storages()[i].in_blocks();
      }
    return begins;
  }

  // Lays out each group for the storages that train from now on: values are moved to their new offsets, gradients and
  // copies reallocated. `all`: groups whose layout stays the same too. If an allocation throws, every group is still
  // consistent with its storages.
  void take_places(D& dev, const std::vector<bool>& trains, bool all) {
    whole_ = false;
    forming_ = {};
    for (Group& g : groups_) {
      g.grad = {};
      g.copy = {};
    }
    for (auto& s : storages_) {
      s->grad = {};
      s->copy = {};
    }
    const std::vector<GroupSize> sizes = table_.sizes_of(trains);
    const std::vector<Index> begins = lay_out(trains);
    for (std::size_t g = 0; g < groups_.size(); ++g) take_places(dev, g, sizes[g], begins, trains, all);
    allocate(dev);
  }
  void take_places(D& dev, std::size_t group, const GroupSize& size, const std::vector<Index>& begins,
                   const std::vector<bool>& trains, bool moves) {
    Group& g = groups_[group];
    for (std::size_t i = 0; i < storages_.size(); ++i)
      if (is_of(i, group)) moves = moves || storages_[i]->begin != begins[i];
    if (moves && size.all > 0) {
      Tensor<D, Accum<T>> values(dev, size.all);
      kernel::fill(dev, values.view(), 0.0);
      for (std::size_t i = 0; i < storages_.size(); ++i)
        if (const Storage& s = *storages_[i]; is_of(i, group) && !s.value.empty())
          kernel::convert(dev, s.value, View<D, Accum<T>>(values.view().data() + begins[i], s.rows, s.cols));
      g.value = std::move(values);
    }
    g.size = size;
    for (std::size_t i = 0; i < storages_.size(); ++i) {
      if (!is_of(i, group)) continue;
      Storage& s = *storages_[i];
      s.begin = begins[i];
      s.trains = trains[i];
      s.value = matrix(g.value.view(), s);
    }
  }
  bool is_of(std::size_t storage, std::size_t group) const {
    return static_cast<std::size_t>(storages_[storage]->group) == group;
  }

  // After a failure. It takes no more memory than was there when it began.
  void take_back(D& dev, const std::vector<bool>& before) noexcept {
    try {
      take_places(dev, before, false);
      refresh(dev);
      dev.synchronize();
    } catch (...) {  // the first failure is reported
    }
  }

  // Gradients, zero, and copies.
  void allocate(D& dev) {
    for (Group& g : groups_) {
      if (g.size.all == 0) continue;
      if constexpr (Param<D, T>::has_copy) g.copy = Tensor<D, T>(dev, g.size.all);
      if (const Index own = share_size(g.size, rank_, ranks_); own > 0) g.grad = Tensor<D, Accum<T>>(dev, own);
    }
    if (gives_gradients_away()) {
      places_ = forming_places(sizes());
      forming_ = Tensor<D, Accum<T>>(dev, places_.size);
    }
    zero_grad(dev);
    for (auto& s : storages_) {
      Group& g = groups_[static_cast<std::size_t>(s->group)];
      s->grad = s->trains ? grad_matrix(g, *s) : View<D, Accum<T>>();
      if constexpr (Param<D, T>::has_copy) s->copy = matrix(g.copy.view(), *s);
    }
    whole_ = true;
  }
  View<D, Accum<T>> grad_matrix(Group& g, const Storage& s) {
    if (!gives_gradients_away()) return matrix(g.grad.view(), s);
    const auto& buckets = g.size.buckets;
    const auto bucket = std::find_if(buckets.begin(), buckets.end(), [&](const Bucket& b) { return s.begin < b.end; });
    const View<D, Accum<T>> there = forming(s.group, static_cast<std::size_t>(bucket - buckets.begin()));
    return View<D, Accum<T>>(there.data() + s.begin - bucket->begin, s.rows, s.cols);
  }

  template <class E>
  static View<D, E> matrix(View<D, E> slab, const Storage& s) {
    return View<D, E>(slab.data() + s.begin, s.rows, s.cols);
  }

  std::vector<std::unique_ptr<Storage>> storages_;
  ParamTable table_;
  std::vector<Group> groups_;
  std::uint64_t changes_ = 0;
  int rank_ = 0, ranks_ = 1;     // that share out gradients by layer
  Index layer_ = -1;             // of what is added
  FormingPlaces places_;         // and
  Tensor<D, Accum<T>> forming_;  // of gradients that leave by layer
  bool whole_ = false;           // there are gradients and copies
};

}  // namespace lora::nn
