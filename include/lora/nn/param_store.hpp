#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/kernel/elementwise.hpp"
#include "lora/kernel/reduce.hpp"
#include "lora/nn/gathered_layers.hpp"
#include "lora/nn/param.hpp"
#include "lora/nn/param_table.hpp"
#include "lora/nn/shares.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/page_locked.hpp"
#include "lora/tensor/tensor.hpp"

namespace lora::nn {

/// Owns every tensor that may train. For each group, whose tensors share learning rate and decay, there is one slab of
/// each kind: values (masters in Accum<T>), copies in T for products where T is narrower, gradients. A tensor begins
/// with a block of 1,024 elements, and those that train lie before those that are frozen, for which there are no
/// gradients: an optimizer step is a launch a group, or a bucket of it, and whatever goes by blocks gives the same bits
/// however the blocks are dealt out. Padding is 0 and stays 0.
///
/// First everything is added, then `build` gives it memory. What trains may change between steps: `train`.
///
/// Where ranks share values out too (ZeRO-3), a rank has its shares of the values, and no copies: all gather a layer
/// ahead of its use (`acquire`), in the types that are read, into room that layers take turns with. Values, a rank's
/// shares or all, may also lie on the host beside the device, where their optimizer works: then they come likewise.
template <AnyDevice D, class T>
class ParamStore {
  using Storage = typename Param<D, T>::Storage;

 public:
  static constexpr Index block = ParamTable::block;
  using Entry = ParamTable::Entry;

  /// What an optimizer and a norm go over: (1, n), whole blocks of one group. Of gradients that leave by layer, and of
  /// values that are shared out, there is this rank's share, one bucket's after the other.
  struct Slab {
    View<D, Accum<T>> value;
    View<D, Accum<T>> grad;
  };

  /// Before anything is added: ranks share out what trains layer by layer, and as rank `rank` of `ranks`, several, this
  /// one keeps its share of the gradients only. They are formed in memory that layers take turns with.
  void share_by_layer(int rank, int ranks) {
    table_.share_by_layer(forming_layers<D>);
    rank_ = rank;
    ranks_ = ranks;
  }
  /// The same of values. From `build` on, what gathers them (it says so) is called by all ranks, in the same order. The
  /// communicator outlives this. Matrices of an adapter read their values as a whole: they can't be shared out.
  /// Throws   Error for one rank, which has nobody to share with
  void share_values(comm::Communicator<D>& comm) {
    if (comm.size() == 1) fail<Error>("[param] one rank shares no values out");
    share_by_layer(comm.rank(), comm.size());
    table_.share_by_layer(forming_layers<D>, true);
    comm_ = &comm;
  }
  /// Rounds numbers in the host's memory to what products read.
  using Round = std::function<void(const Accum<T>* from, T* to, Index count)>;
  /// Before anything is added: values lie in page-locked memory of the host, for a device that can't read it. Layers
  /// come from there when they are acquired. An adapter's can't, as above.
  void keep_values_on_host(Round round) {
    table_.keep_values_on_host();
    round_ = std::move(round);
  }
  /// Whether gradients are formed layer by layer, to be given away.
  bool gives_gradients_away() const { return ranks_ > 1; }
  bool shares_values() const { return comm_ != nullptr; }
  bool values_on_host() const { return round_ != nullptr; }
  /// Whether what products read is on the device only while its layer is acquired.
  bool brings_layers() const { return shares_values() || values_on_host(); }
  /// What is added from now on belongs to a layer, or before_layers, behind_layers.
  void begin_layer(Index layer) { layer_ = layer; }

  /// A matrix of `group`; `build` makes it zero. `in_full`: it is read in the type of sums, as all of its group.
  Param<D, T> add(Index rows, Index cols, Index group = 0, bool in_full = false) {
    auto& storage = storages_.emplace_back(std::make_unique<Storage>());
    storage->rows = rows;
    storage->cols = cols;
    storage->group = group;
    storage->number = storages_.size() - 1;
    table_.add({rows, cols, group, layer_, in_full});
    groups_.resize(static_cast<std::size_t>(table_.groups()));
    return Param<D, T>(storage.get());
  }

  /// Says what files call `rows` rows of a matrix that was added last or before.
  void name(const Param<D, T>& param, std::string name, Index first_row, Index rows, bool transposed = false) {
    table_.name({std::move(name), param.storage_->number, first_row, rows, transposed});
  }

  /// Forgets all tensors; handles to them must not be used again.
  void clear() {
    room_.reset();  // first: a layer may still be on its way from a group's memory
    storages_.clear();
    table_.clear();
    groups_.clear();
    layer_ = before_layers;
  }

  /// Memory for all that was added; everything is zero and trains.
  void build(D& dev) {
    room_.reset();  // as in clear
    for (Group& g : groups_) g = {};
    forming_ = {};
    for (auto& storage : storages_) storage->value = {};
    valued_ = false;
    take_places(dev, std::vector<bool>(storages_.size(), true), true);
    refresh(dev);
  }

  /// From now on, tensors train for whose names `trains(name)` is true. Values stay, gradients become zero. To be
  /// called between steps; an optimizer follows with `AdamW::follow`. Where nothing changes, nothing moves; otherwise
  /// gradients and copies are freed first and allocated again at the end, and values are moved group by group; those
  /// that come by layer are gathered on the device, one tensor's after the other.
  /// Throws   ConfigError if names that share a matrix are told apart, or nothing is left to train; DeviceError where
  ///          memory is short. Where values come by layer, the store must not be used any more then; else the values
  ///          and what trains are as before, and gradients are zero; where even the memory for that is gone by then,
  ///          there are no gradients and copies, but all values
  template <class Trains>
  void train(D& dev, const Trains& trains) {
    const std::vector<bool> now = table_.told(trains), before = those_that_train();
    if (whole_ && now == before) return zero_grad(dev);
    try {
      take_places(dev, now, true);
      refresh(dev);
      dev.synchronize();
    } catch (...) {
      if (!brings_layers()) take_back(dev, before);  // other ranks may be elsewhere
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

  /// Values and gradients of what trains of a group; empty if nothing does. Values that lie on the host are not there.
  Slab slab(Index group) {
    Group& g = groups_[static_cast<std::size_t>(group)];
    if (g.size.trained == 0) return {};
    const Index size = shares_values() ? share_size(g.size, rank_, ranks_) : g.size.trained;
    return {size > 0 && !values_on_host() ? g.value.view().col_slice(0, size) : View<D, Accum<T>>(), g.grad.view()};
  }
  /// Elements of a group, and how ranks share them out.
  const GroupSize& size(Index group) const { return groups_[static_cast<std::size_t>(group)].size; }

  /// The gradient of elements that this rank has a share of.   Shapes   (1, end − begin)
  View<D, Accum<T>> grad_of(Index group, const Share& share) {
    const Index begin = gives_gradients_away() ? share.at : share.begin;
    return groups_[static_cast<std::size_t>(group)].grad.view().col_slice(begin, share.end - share.begin);
  }
  /// The values of elements that this rank has a share of.   Shapes   (1, end − begin)
  View<D, Accum<T>> value_of(Index group, const Share& share) {
    return groups_[static_cast<std::size_t>(group)].value.view().col_slice(place_of(share), share.end - share.begin);
  }
  /// Where the first of them lies, if that is on the host. What is copied from there must be waited for before they
  /// change.
  Accum<T>* value_on_host(Index group, const Share& share) {
    return on_host(groups_[static_cast<std::size_t>(group)]) + place_of(share);
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
      f(ParamRef<D, T>{
          entry.name, brings_layers() ? View<D, Accum<T>>() : s.value.row_slice(entry.first_row, entry.rows),
          s.trains ? s.grad.row_slice(entry.first_row, entry.rows) : View<D, Accum<T>>(), entry.transposed});
    }
  }

  /// All values of a tensor, in scratch of the enclosing scope where values come by layer. Where ranks share them out,
  /// it gathers.
  /// Shapes   (rows, cols), of a matrix or of the rows that have a name
  View<D, Accum<T>> whole(D& dev, const Entry& entry) {
    const Storage& s = *storages_[entry.storage];
    if (!brings_layers()) return s.value.row_slice(entry.first_row, entry.rows);
    return gather(dev, s, entry.first_row * s.cols, entry.rows, groups_[static_cast<std::size_t>(s.group)]);
  }
  View<D, Accum<T>> whole(D& dev, const Param<D, T>& param) {
    return whole(dev, Entry{{}, param.storage_->number, 0, param.storage_->rows, false});
  }
  /// f(dev, to) writes all values of a matrix, of which a rank keeps its shares where they are shared out.
  template <class F>
  void fill(D& dev, const Param<D, T>& param, F&& f) {
    const Storage& s = *param.storage_;
    const Arena::Scope scope(dev.arena());
    if (!brings_layers()) return f(dev, s.value);
    const View<D, Accum<T>> all = scratch<Accum<T>>(dev, s.rows, s.cols);
    f(dev, all);
    keep(dev, s, View<D, const Accum<T>>(all.data(), all.size()), groups_[static_cast<std::size_t>(s.group)]);
  }
  /// f(begin, values) where `values` (1, n) are those of a named tensor from its element `begin` on that this rank has.
  /// It may change them.
  template <class F>
  void own_values(D& dev, const Entry& entry, F&& f) {
    const Storage& s = *storages_[entry.storage];
    if (!brings_layers()) {
      const View<D, Accum<T>> all = s.value.row_slice(entry.first_row, entry.rows);
      return f(Index{0}, View<D, Accum<T>>(all.data(), all.size()));
    }
    Group& g = groups_[static_cast<std::size_t>(s.group)];
    const Dealt dealt(g.size.values, s.begin + entry.first_row * s.cols, entry.rows * s.cols, value_ranks());
    const Index count = dealt.count(value_rank()), begin = dealt.begins[static_cast<std::size_t>(value_rank())];
    if (count == 0) return;
    if (!values_on_host()) return f(begin, dealt.part(g.value.view(), value_shares(g.size), rank_));
    const Arena::Scope scope(dev.arena());
    const View<D, Accum<T>> own = scratch<Accum<T>>(dev, 1, count);
    Accum<T>* const there = on_host(g) + dealt.at(value_shares(g.size), value_rank());
    dev.copy_from_host(own.data(), there, bytes_of<Accum<T>>(count));
    f(begin, own);
    dev.synchronize();
    dev.copy_to_host(there, own.data(), bytes_of<Accum<T>>(count));
  }

  /// Where values come by layer: those of a layer can be read by what is queued from now on, and `next` comes ahead of
  /// its use, if it is not −1. Every layer that is acquired is released. Where ranks share values out, it gathers.
  void acquire(D& dev, Index layer, Index next = -1) {
    if (!room_ || !room_->has(layer)) return;
    std::byte* const begin =
        room_->acquire(dev, layer, next, [&](D& to_dev, Index one, View<D, std::byte> to) { bring(to_dev, one, to); });
    show(layer, begin);
  }
  void release(D& dev, Index layer) noexcept {
    if (!room_ || !room_->has(layer)) return;
    for (const auto& s : storages_)
      if (table_.storages()[s->number].layer == layer) {
        s->value = {};
        s->copy = {};
      }
    room_->release(dev, layer);
  }

  /// Brings the copies that products read up to date with the values; to be called whenever these have changed.
  void refresh(D& dev) {
    ++changes_;
    copy_values(dev, false);
  }
  /// The same after an optimizer's own step, which it knows of.
  void refresh_copies(D& dev) { copy_values(dev, true); }
  /// Bytes on the host of values and copies, where they lie there.
  std::size_t host_bytes() const {
    std::size_t bytes = 0;
    for (const Group& g : groups_) bytes += g.value_on_host.bytes() + g.copy_on_host.bytes();
    return bytes;
  }
  /// Bytes of the device: of values, of copies, and of the room for what comes by layer.
  std::size_t value_bytes() const {
    std::size_t bytes = room_ ? room_->bytes() : 0;
    for (const Group& g : groups_)
      bytes += static_cast<std::size_t>(g.value.view().size()) * sizeof(Accum<T>) +
               static_cast<std::size_t>(g.copy.view().size()) * sizeof(T);
    return bytes;
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
    PageLocked<D> value_on_host, copy_on_host;  // in the place of values and, of what products read, copies
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

  // To what products read; `trained`: of what trains alone, since nothing else has changed.
  void copy_values(D& dev, bool trained) {
    if (room_) room_->forget();
    if constexpr (Param<D, T>::has_copy) {
      if (values_on_host()) dev.synchronize();  // nothing is copied from there any more
      for (Group& g : groups_) {
        const Index all = values_held(g.size, rank_, ranks_);
        const Index count = !trained ? all : shares_values() ? share_size(g.size, rank_, ranks_) : g.size.trained;
        if (count == 0) continue;
        if (!g.copy.view().empty())
          kernel::convert(dev, g.value.view().col_slice(0, count), g.copy.view().col_slice(0, count));
        if (g.copy_on_host.bytes() > 0) round_(on_host(g), reinterpret_cast<T*>(g.copy_on_host.data()), count);
      }
    }
  }

  // Of those that share values out.
  int value_rank() const { return shares_values() ? rank_ : 0; }
  int value_ranks() const { return shares_values() ? ranks_ : 1; }
  std::vector<Share> value_shares(const GroupSize& size) const {
    return shares_of(size.values, value_rank(), value_ranks());
  }
  // Of a share's first element among the values that this rank has.
  Index place_of(const Share& share) const { return shares_values() ? share.at : share.begin; }

  static Accum<T>* on_host(const Group& g) { return reinterpret_cast<Accum<T>*>(g.value_on_host.data()); }
  template <class E>
  static std::size_t bytes_of(Index count) {
    return static_cast<std::size_t>(count) * sizeof(E);
  }
  PageLocked<D> page_locked(D& dev, std::size_t bytes) const try {
    return PageLocked<D>(dev, bytes);
  } catch (const DeviceError& error) {
    fail<DeviceError>("[param] ", bytes, " bytes of page-locked memory, for values of what trains, can't be had: ",
                      std::string_view(error.what()));
  }

  // Queues what is read of a layer: this rank's shares, or all of it, and then, beside kernels, those of the others.
  void bring(D& dev, Index layer, View<D, std::byte> to) {
    const auto of_each = [&](const auto& f) {
      for (const GatheredPiece& piece : room_->pieces(layer)) {
        if (piece.in_full)
          f(piece, piece_in<Accum<T>>(piece, to));
        else
          f(piece, piece_in<T>(piece, to));
      }
    };
    of_each([&](const GatheredPiece& piece, const auto& all) {
      Group& g = groups_[piece.group];
      const Share own = value_shares(g.size)[piece.bucket];
      const Index count = own.end - own.begin;
      if (count == 0) return;
      const auto part = all.col_slice(own.begin - piece.begin, count);
      if (!values_on_host()) return kernel::convert(dev, g.value.view().col_slice(own.at, count), part);
      using E = std::remove_pointer_t<decltype(part.data())>;
      const PageLocked<D>& there = std::same_as<E, Accum<T>> ? g.value_on_host : g.copy_on_host;
      dev.copy_from_host(part.data(), there.data() + bytes_of<E>(own.at), bytes_of<E>(count), Stream::copy);
    });
    if (!shares_values()) return;
    of_each([&](const GatheredPiece& piece, const auto& all) {
      comm_->all_gather(dev, all, parts_of({piece.begin, piece.end}, ranks_), Stream::copy);
    });
  }
  template <class E>
  static View<D, E> piece_in(const GatheredPiece& piece, View<D, std::byte> layer) {
    return {reinterpret_cast<E*>(layer.data() + piece.offset), piece.end - piece.begin};
  }

  // The matrices of a layer whose bytes begin there.
  void show(Index layer, std::byte* begin) {
    const auto& pieces = room_->pieces(layer);
    for (const auto& s : storages_) {
      if (table_.storages()[s->number].layer != layer) continue;
      const auto piece = std::find_if(pieces.begin(), pieces.end(), [&](const GatheredPiece& one) {
        return one.group == static_cast<std::size_t>(s->group) && one.begin <= s->begin && s->begin < one.end;
      });
      std::byte* const at = begin + piece->offset;
      const Index first = s->begin - piece->begin;
      if constexpr (Param<D, T>::has_copy) {
        if (!piece->in_full) {
          s->copy = View<D, T>(reinterpret_cast<T*>(at) + first, s->rows, s->cols);
          continue;
        }
      }
      s->value = View<D, Accum<T>>(reinterpret_cast<Accum<T>*>(at) + first, s->rows, s->cols);
    }
  }

  // Elements of a storage from `first` on, of which this rank has those that the group's sizes say, in scratch.
  View<D, Accum<T>> gather(D& dev, const Storage& s, Index first, Index rows, Group& g) {
    const View<D, Accum<T>> all = scratch<Accum<T>>(dev, rows, s.cols), flat(all.data(), all.size());
    const Dealt dealt(g.size.values, s.begin + first, all.size(), value_ranks());
    if (const Index count = dealt.count(value_rank()); count > 0) {
      const View<D, Accum<T>> own = dealt.place(flat, value_rank());
      const std::vector<Share> shares = value_shares(g.size);
      if (values_on_host())
        dev.copy_from_host(own.data(), on_host(g) + dealt.at(shares, value_rank()), bytes_of<Accum<T>>(count));
      else
        kernel::convert(dev, dealt.part(g.value.view(), shares, rank_), own);
    }
    if (shares_values()) comm_->all_gather(dev, flat, dealt.begins);
    return all;
  }
  // Of all values (1, n) of a storage, this rank's go to where the group has them.
  void keep(D& dev, const Storage& s, View<D, const Accum<T>> all, Group& g) {
    const Dealt dealt(g.size.values, s.begin, all.size(), value_ranks());
    const Index count = dealt.count(value_rank());
    if (count == 0) return;
    const View<D, const Accum<T>> own = dealt.place(all, value_rank());
    const std::vector<Share> shares = value_shares(g.size);
    if (!values_on_host()) return kernel::convert(dev, own, dealt.part(g.value.view(), shares, rank_));
    dev.synchronize();
    dev.copy_to_host(on_host(g) + dealt.at(shares, value_rank()), own.data(), bytes_of<Accum<T>>(count));
  }

  // As take_places of a group, where values come by layer.
  void deal_places(D& dev, std::size_t group, const GroupSize& size, const std::vector<Index>& begins,
                   const std::vector<bool>& trains) {
    Group& g = groups_[group];
    Group next;
    next.size = size;
    if (const Index own = values_held(size, rank_, ranks_); own > 0) {
      if (values_on_host()) {
        next.value_on_host = page_locked(dev, bytes_of<Accum<T>>(own));
        std::fill_n(on_host(next), own, Accum<T>{});
      } else {
        next.value = Tensor<D, Accum<T>>(dev, own);
        kernel::fill(dev, next.value.view(), 0.0);
      }
    }
    for (std::size_t i = 0; i < storages_.size(); ++i) {
      if (!is_of(i, group)) continue;
      Storage& s = *storages_[i];
      if (!valued_) {
        s.begin = begins[i];
      } else {
        const Arena::Scope scope(dev.arena());
        const View<D, Accum<T>> all = gather(dev, s, 0, s.rows, g);
        s.begin = begins[i];
        keep(dev, s, View<D, const Accum<T>>(all.data(), all.size()), next);
      }
      s.trains = trains[i];
      s.value = {};
    }
    if (values_on_host()) dev.synchronize();  // values are copied from what goes away
    g = std::move(next);
  }

  // Lays out each group for the storages that train from now on: values are moved to their new offsets, gradients and
  // copies reallocated. `all`: groups whose layout stays the same too. If an allocation throws, every group is still
  // consistent with its storages.
  void take_places(D& dev, const std::vector<bool>& trains, bool all) {
    whole_ = false;
    forming_ = {};
    room_.reset();
    for (Group& g : groups_) {
      g.grad = {};
      g.copy = {};
      g.copy_on_host = {};
    }
    for (auto& s : storages_) {
      s->grad = {};
      s->copy = {};
    }
    const std::vector<GroupSize> sizes = table_.sizes_of(trains);
    const std::vector<Index> begins = lay_out(trains);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (brings_layers())
        deal_places(dev, g, sizes[g], begins, trains);
      else
        take_places(dev, g, sizes[g], begins, trains, all);
    }
    valued_ = true;
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
      if constexpr (Param<D, T>::has_copy) {
        if (!brings_layers()) g.copy = Tensor<D, T>(dev, g.size.all);
        if (values_on_host() && !g.size.in_full)
          g.copy_on_host = page_locked(dev, bytes_of<T>(values_held(g.size, rank_, ranks_)));
      }
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
      if constexpr (Param<D, T>::has_copy)
        if (!brings_layers()) s->copy = matrix(g.copy.view(), *s);
    }
    if (brings_layers()) room_.emplace(dev, gathered_layers(sizes(), sizeof(T), sizeof(Accum<T>)));
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
  int rank_ = 0, ranks_ = 1;               // that share out gradients by layer
  comm::Communicator<D>* comm_ = nullptr;  // of those that share out values
  Round round_;                            // of values that lie on the host
  std::optional<GatheredLayers<D>> room_;  // where values come by layer
  bool valued_ = false;                    // there are values
  Index layer_ = before_layers;            // of what is added
  FormingPlaces places_;                   // and
  Tensor<D, Accum<T>> forming_;            // of gradients that leave by layer
  bool whole_ = false;                     // there are gradients and copies
};

}  // namespace lora::nn
