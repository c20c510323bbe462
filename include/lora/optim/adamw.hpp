#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lora/kernel/elementwise.hpp"
#include "lora/kernel/optimizer.hpp"
#include "lora/nn/param.hpp"
#include "lora/tensor/transfer.hpp"

namespace lora::optim {

struct AdamWSettings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double lr_ratio = 1;  ///< learning rate of `faster_group` over the others' (LoRA+: of B over A)
};

/// What differs from one group of the parameters to another: see `AdamWGroup`. Matrices are 0; biases and the weights
/// of norms, which do not decay, 1.
constexpr Index faster_group = 2;

/// Which part of the state this optimizer has: that of `rank`'s blocks of every group, of `size` ranks.
struct AdamWShard {
  int rank = 0, size = 1;
};

/// What differs from one group of the parameters to another.
struct AdamWGroup {
  double learning_rate_factor = 1;
  double weight_decay = 0;
};

/// AdamW over the parameters of a store: one launch for each group and for each step in which some of its tensors began
/// to train. It keeps m and v of each, as slabs laid out as the store's, on a device of its own: the parameters' own,
/// or a host beside it (offload), to which gradients and values then travel.
template <AnyDevice D, class T, AnyDevice S = D>
class AdamW {
  using A = Accum<T>;

 public:
  /// Groups that `groups` does not have decay as `settings` says.
  AdamW(D& dev, nn::ParamStore<D, T>& params, AdamWSettings settings,
        std::vector<AdamWGroup> groups = {}) requires(std::same_as<S, D>)
      : AdamW(dev, dev, params, settings, std::move(groups)) {}
  AdamW(D& dev, S& state_device, nn::ParamStore<D, T>& params, AdamWSettings settings,
        std::vector<AdamWGroup> groups = {}, AdamWShard shard = {})
      : state_device_(state_device), params_(params), settings_(settings), groups_(std::move(groups)), shard_(shard) {
    follow(dev);
  }

  nn::ParamStore<D, T>& params() const { return params_; }

  /// Updates that were made; a step that was left out makes none.
  Index updates() const { return updates_; }
  void set_updates(Index updates) { updates_ = updates; }

  /// To be called when what trains has changed. What trains on keeps its m and v; what begins to train starts with
  /// zeros and, as in PyTorch, with a count of updates of its own; what is frozen loses both.
  /// Throws   ConfigError where the state is shared out among ranks
  void follow(D&) {
    S& dev = state_device_;
    if (shard_.size > 1 && !places_.empty())
      fail<ConfigError>("what trains can't change while ", shard_.size, " ranks share the optimizer's state");
    const std::vector<Slab> old_slabs = std::move(slabs_);
    const std::vector<Place> old_places = std::move(places_);
    slabs_ = std::vector<Slab>(static_cast<std::size_t>(params_.groups()));
    places_.clear();
    for (Index g = 0; g < params_.groups(); ++g) {
      const auto begins = params_.parts(g, shard_.size);
      Slab& slab = slabs_[static_cast<std::size_t>(g)];
      slab.begin = begins[static_cast<std::size_t>(shard_.rank)];
      slab.end = begins[static_cast<std::size_t>(shard_.rank) + 1];
      const Index size = slab.end - slab.begin;
      if (size == 0) continue;
      for (auto* moment : {&slab.m, &slab.v}) {
        *moment = Tensor<S, A>(dev, size);
        kernel::fill(dev, moment->view(), 0.0);
      }
    }
    for (std::size_t i = 0; i < params_.storages(); ++i) {
      const auto now = params_.place(i);
      Place place{now.group, now.begin, now.rows * now.cols, old_places.empty() ? 0 : updates_, now.trains};
      if (now.trains && i < old_places.size() && old_places[i].trains) {
        const Place& before = old_places[i];
        place.since = before.since;
        const Slab& from = old_slabs[static_cast<std::size_t>(before.group)];
        Slab& to = slabs_[static_cast<std::size_t>(place.group)];
        for (const auto moment : {&Slab::m, &Slab::v})
          kernel::convert(dev, (from.*moment).view().col_slice(before.begin, place.size),
                          (to.*moment).view().col_slice(place.begin, place.size));
      }
      places_.push_back(place);
    }
  }

  /// Writes   the value of every parameter that this part of the state is of; the copies in T are refreshed by the
  /// caller
  void step(D& dev, double learning_rate, double gradient_scale) {
    ++updates_;
    for (Index g = 0; g < params_.groups(); ++g) {
      const auto slab = params_.slab(g);
      if (slab.value.empty()) continue;
      const auto group = static_cast<std::size_t>(g);
      const double factor = group < groups_.size() ? groups_[group].learning_rate_factor : 1;
      const double decay = group < groups_.size() ? groups_[group].weight_decay : settings_.weight_decay;
      kernel::AdamWStep step{learning_rate * factor, settings_.beta1, settings_.beta2, settings_.epsilon, decay,
                             gradient_scale,         updates_};
      Slab& state = slabs_[group];
      for_each_run(g, slab.value.size(), [&](Index begin, Index count, Index since) {
        step.step = updates_ - since;
        const Index first = std::max(begin, state.begin), size = std::min(begin + count, state.end) - first;
        if (size <= 0) return;
        update(dev, step, slab.grad.col_slice(first, size), slab.value.col_slice(first, size),
               state.m.view().col_slice(first - state.begin, size),
               state.v.view().col_slice(first - state.begin, size));
      });
    }
  }

  /// A tensor of the state, of which each rank that shares it has a part.
  struct StateTensor {
    std::string name;
    Shape shape;
    std::vector<Index> begins;  ///< where each rank's elements begin, and the last one's end
    View<S, A> own;             ///< (1, n) this rank's
  };

  /// f(StateTensor) for every tensor of the state, in an order that is the same on every rank: what a checkpoint holds
  /// besides the parameters.
  template <class F>
  void for_each_state(F&& f) {
    const auto rank = static_cast<std::size_t>(shard_.rank);
    for (const auto& entry : params_.entries()) {
      const Place& place = places_[entry.storage];
      if (!place.trains) continue;
      const Index cols = params_.place(entry.storage).cols, size = entry.rows * cols;
      const Index first = place.begin + entry.first_row * cols;  // in the group's slab
      std::vector<Index> begins = params_.parts(place.group, shard_.size);
      for (Index& begin : begins) begin = std::clamp<Index>(begin - first, 0, size);
      const Index count = begins[rank + 1] - begins[rank];
      Slab& slab = slabs_[static_cast<std::size_t>(place.group)];
      for (const auto& [suffix, moment] : {std::pair{".exp_avg", &slab.m}, std::pair{".exp_avg_sq", &slab.v}})
        f(StateTensor{entry.name + suffix,
                      {entry.rows, cols},
                      begins,
                      count == 0 ? View<S, A>() : moment->view().col_slice(first + begins[rank] - slab.begin, count)});
    }
  }
  /// Whether ranks share the state, and which of them this is.
  bool is_shared() const { return shard_.size > 1; }
  int rank() const { return shard_.rank; }

  /// Updates that were made before a tensor of this entry began to train.
  Index since(const typename nn::ParamStore<D, T>::Entry& entry) const { return places_[entry.storage].since; }
  void set_since(const typename nn::ParamStore<D, T>::Entry& entry, Index since) {
    places_[entry.storage].since = since;
  }

 private:
  struct Slab {
    Tensor<S, A> m, v;         // (1, end − begin)
    Index begin = 0, end = 0;  // of the store's slab
  };
  struct Place {
    Index group = 0, begin = 0, size = 0;  // elements of the group's slab
    Index since = 0;                       // updates made before it began to train
    bool trains = false;
  };

  // f(begin, count, since) for neighbours in a slab that began to train together.
  template <class F>
  void for_each_run(Index group, Index size, F&& f) const {
    std::vector<const Place*> order;
    for (const Place& place : places_)
      if (place.trains && place.group == group) order.push_back(&place);
    for (std::size_t i = 0, next = 0; i < order.size(); i = next) {
      while (next < order.size() && order[next]->since == order[i]->since) ++next;
      f(order[i]->begin, (next < order.size() ? order[next]->begin : size) - order[i]->begin, order[i]->since);
    }
  }

  void update(D& dev, const kernel::AdamWStep& step, View<D, const A> grad, View<D, A> value, View<S, A> m,
              View<S, A> v) {
    if constexpr (std::same_as<S, D>) {
      kernel::adamw<T>(dev, step, grad, value, m, v);
    } else {
      const std::vector<A> grads = to_host(dev, grad), before = to_host(dev, value);
      const auto g = tensor_of<A>(state_device_, grads, 1, grad.cols());
      auto w = tensor_of<A>(state_device_, before, 1, value.cols());
      kernel::adamw<T>(state_device_, step, g.view(), w.view(), m, v);
      const std::vector<A> after = to_host(state_device_, w.view());
      copy_from_host<D, A>(dev, after, value);
      dev.synchronize();  // the source of the copy goes away
    }
  }

  S& state_device_;
  nn::ParamStore<D, T>& params_;
  AdamWSettings settings_;
  std::vector<AdamWGroup> groups_;
  AdamWShard shard_;
  std::vector<Slab> slabs_;    // of each group
  std::vector<Place> places_;  // of each storage
  Index updates_ = 0;
};

}  // namespace lora::optim
