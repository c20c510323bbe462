#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/comm/sum_tree.hpp"
#include "lora/kernel/elementwise.hpp"
#include "lora/nn/layer_access.hpp"
#include "lora/nn/param_store.hpp"

namespace lora::train {

/// Adds up the gradients of a step's units in a fixed binary tree, over all ranks. The communicator and the parameters
/// outlive it.
template <AnyDevice D, class T>
class GradientSum {
 public:
  /// Adds a unit's gradient to the parameters', and tells the hook of it where there is one. −1 for a rank that has no
  /// unit when others have.
  using Form = std::function<void(Index unit, nn::GradientHook<D>* hook)>;

  virtual ~GradientSum() = default;

  /// Afterward the parameters hold the gradient of the whole step, on each rank its own shares (ParamStore::grad_of).
  virtual void run(D& dev, const Form& form) = 0;

  Index units() const { return whole_.end; }
  /// Those that a rank forms.
  virtual comm::OwnUnits units_of(int rank) const = 0;
  comm::OwnUnits own() const { return units_of(comm_.rank()); }

 protected:
  using A = Accum<T>;

  /// Throws   ConfigError for fewer units than ranks
  GradientSum(comm::Communicator<D>& comm, nn::ParamStore<D, T>& params, Index units)
      : comm_(comm), params_(params), whole_{0, units} {
    if (units < comm.size())
      fail<ConfigError>("a step of ", units, " units can't be shared by ", comm.size(), " ranks; every rank needs one");
  }

  comm::Communicator<D>& comm_;
  nn::ParamStore<D, T>& params_;
  comm::Units whole_;
};

/// Each rank holds whole gradients. It forms neighboring units, and those nodes of the tree of which it has all units;
/// then each gets its share of all nodes and adds these up. A rank's only unit lies where it is formed and takes no
/// memory.
template <AnyDevice D, class T>
class WholeGradients final : public GradientSum<D, T> {
  using typename GradientSum<D, T>::A;
  using typename GradientSum<D, T>::Form;
  using GradientSum<D, T>::comm_;
  using GradientSum<D, T>::params_;
  using GradientSum<D, T>::whole_;

 public:
  using GradientSum<D, T>::own;

  WholeGradients(comm::Communicator<D>& comm, nn::ParamStore<D, T>& params, Index units)
      : GradientSum<D, T>(comm, params, units) {
    comm::RankNodes all(units, comm.size());
    nodes_ = std::move(all.nodes);
    owners_ = std::move(all.owners);
  }

  comm::OwnUnits units_of(int rank) const override { return comm::units_of(whole_.end, rank, comm_.size()); }

  void run(D& dev, const Form& form) override {
    prepare(dev);
    if (whole_.count() == 1) {
      clear(dev);
      return form(0, nullptr);
    }
    std::vector<std::size_t> own_nodes;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (owners_[i] == comm_.rank()) own_nodes.push_back(i);
    if (has_one()) {
      clear(dev);
      form(own().begin, nullptr);
    } else {
      for (std::size_t i = 0; i < own_nodes.size(); ++i) form_node(dev, nodes_[own_nodes[i]], i, form);
    }
    const ProfileScope phase(dev, Profile::Kind::phase, "update");
    for (Index group = 0; group < params_.groups(); ++group) {
      const nn::GroupSize& size = params_.size(group);
      if (size.trained == 0) continue;
      const auto begins = nn::parts_of(size.shared_out().front(), comm_.size());
      const nn::Share share = nn::shares_of(size, comm_.rank(), comm_.size()).front();
      std::vector<View<D, A>> summed;
      if (comm_.size() == 1) {
        summed = {slab(0, group)};
      } else {
        std::vector<View<D, A>> mine;
        for (std::size_t i = 0; i < own_nodes.size(); ++i)
          mine.push_back(has_one() ? params_.slab(group).grad : slab(i, group));
        for (std::size_t i = 0; i < nodes_.size(); ++i)
          summed.push_back(received_[i][static_cast<std::size_t>(group)].view());
        comm_.exchange(dev, std::span<const View<D, A>>(mine), std::span<const int>(owners_), begins,
                       std::span<const View<D, A>>(summed));
      }
      if (share.begin < share.end) kernel::convert(dev, add_up(dev, whole_, summed), params_.grad_of(group, share));
    }
  }

 private:
  using Slabs = std::vector<Tensor<D, A>>;  // of each group

  bool has_one() const { return own().count() == 1; }

  View<D, A> slab(std::size_t place, Index group) { return own_[place][static_cast<std::size_t>(group)].view(); }

  Slabs slabs(D& dev, bool part) {
    Slabs result;
    for (Index group = 0; group < params_.groups(); ++group) {
      const nn::GroupSize& of = params_.size(group);
      const Index size = part ? nn::share_size(of, comm_.rank(), comm_.size()) : of.trained;
      result.push_back(size > 0 ? Tensor<D, A>(dev, size) : Tensor<D, A>());
    }
    return result;
  }

  // Allocates the buffers for partial sums; again if the set of trained tensors has changed.
  void prepare(D& dev) {
    if (whole_.count() == 1) return;
    std::vector<Index> sizes;
    for (Index group = 0; group < params_.groups(); ++group) sizes.push_back(params_.slab(group).grad.size());
    if (sizes == sizes_) return;
    sizes_ = sizes;
    own_.clear();
    received_.clear();
    const Index depth = comm::waiting_sums(own().count());
    const auto own_nodes = std::count(owners_.begin(), owners_.end(), comm_.rank());
    for (Index i = 0; i < own_nodes + depth && !has_one(); ++i) own_.push_back(slabs(dev, false));
    if (comm_.size() > 1)
      for (std::size_t i = 0; i < nodes_.size(); ++i) received_.push_back(slabs(dev, true));
  }

  void clear(D& dev) {
    const ProfileScope phase(dev, Profile::Kind::phase, "update");
    params_.zero_grad(dev);
  }

  // The node's sum, in own_[place]; places behind it are free.
  void form_node(D& dev, const comm::Units& node, std::size_t place, const Form& form) {
    if (node.count() == 1) {
      clear(dev);
      form(node.begin, nullptr);
      return take(dev, place, false);
    }
    const auto [first, second] = comm::halves(node);
    form_node(dev, first, place, form);
    if (second.count() == 1) {
      clear(dev);
      form(second.begin, nullptr);
      return take(dev, place, true);
    }
    form_node(dev, second, place + 1, form);
    const ProfileScope phase(dev, Profile::Kind::phase, "update");
    for (Index group = 0; group < params_.groups(); ++group)
      if (!slab(place, group).empty()) kernel::convert(dev, slab(place + 1, group), slab(place, group), 1, true);
  }

  void take(D& dev, std::size_t place, bool add) {
    const ProfileScope phase(dev, Profile::Kind::phase, "update");
    for (Index group = 0; group < params_.groups(); ++group)
      if (const auto grad = params_.slab(group).grad; !grad.empty())
        kernel::convert(dev, grad, slab(place, group), 1, add);
  }

  // The sum of a node whose parts, or those below it, are in `summed`, in the place of its first.
  View<D, A> add_up(D& dev, const comm::Units& node, const std::vector<View<D, A>>& summed) {
    const auto found = std::find(nodes_.begin(), nodes_.end(), node);
    if (found != nodes_.end()) return summed[static_cast<std::size_t>(found - nodes_.begin())];
    const auto [first, second] = comm::halves(node);
    const View<D, A> left = add_up(dev, first, summed), right = add_up(dev, second, summed);
    kernel::convert(dev, right, left, 1, true);
    return left;
  }

  std::vector<comm::Units> nodes_;  // of all ranks, in order
  std::vector<int> owners_;         // of those
  std::vector<Index> sizes_;
  std::vector<Slabs> own_;       // sums of this rank's nodes, and of halves on the way
  std::vector<Slabs> received_;  // this rank's part of every node
};

}  // namespace lora::train
