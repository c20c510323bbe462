#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lora/kernel/elementwise.hpp"
#include "lora/kernel/optimizer.hpp"
#include "lora/nn/param.hpp"
#include "lora/optim/exchange.hpp"

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
/// or a host beside it (offload). Then the values are kept there as well, gradients come to the host in pieces, and
/// values go back, beside the work on the pieces before.
template <AnyDevice D, class T, AnyDevice S = D>
class AdamW {
  using A = Accum<T>;
  static constexpr bool apart = !std::same_as<S, D>;
  static_assert(!apart || S::reads_host_memory, "state lies on the parameters' device, or on the host");

 public:
  /// Elements that travel together where the state lies apart: some MiB. Whole blocks.
  static constexpr Index default_piece = Index{1} << 20;

  /// Groups that `groups` does not have decay as `settings` says.
  AdamW(D& dev, nn::ParamStore<D, T>& params, AdamWSettings settings,
        std::vector<AdamWGroup> groups = {}) requires(std::same_as<S, D>)
      : AdamW(dev, dev, params, settings, std::move(groups)) {}
  AdamW(D& dev, S& state_device, nn::ParamStore<D, T>& params, AdamWSettings settings,
        std::vector<AdamWGroup> groups = {}, AdamWShard shard = {}, Index piece = default_piece)
      : state_device_(state_device),
        params_(params),
        settings_(settings),
        groups_(std::move(groups)),
        shard_(shard),
        piece_(piece) {
    follow(dev);
  }

  /// What it takes on the host where it lies apart, in bytes.
  static std::size_t host_bytes(const nn::ParamStore<D, T>& params, AdamWShard shard = {},
                                Index piece = default_piece) {
    Index all = 0, largest = 0;
    for (Index g = 0; g < params.groups(); ++g) {
      const auto begins = params.parts(g, shard.size);
      const auto rank = static_cast<std::size_t>(shard.rank);
      all += begins[rank + 1] - begins[rank];
      largest = std::max(largest, begins[rank + 1] - begins[rank]);
    }
    return 3 * static_cast<std::size_t>(all) * sizeof(A) + Exchange<D, A>::bytes(std::min(piece, largest));
  }

  nn::ParamStore<D, T>& params() const { return params_; }

  /// Updates that were made; a step that was left out makes none.
  Index updates() const { return updates_; }
  void set_updates(Index updates) { updates_ = updates; }

  /// To be called when what trains has changed. What trains on keeps its m and v; what begins to train starts with
  /// zeros and, as in PyTorch, with a count of updates of its own; what is frozen loses both.
  /// Throws   ConfigError where the state is shared out among ranks
  void follow(D& parameter_device) {
    S& dev = state_device_;
    if (shard_.size > 1 && !places_.empty())
      fail<ConfigError>("what trains can't change while ", shard_.size, " ranks share the optimizer's state");
    const std::vector<Slab> old_slabs = std::move(slabs_);
    const std::vector<Place> old_places = std::move(places_);
    slabs_ = std::vector<Slab>(static_cast<std::size_t>(params_.groups()));
    places_.clear();
    Index largest = 0;
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
      if constexpr (apart) slab.value = Tensor<S, A>(dev, size);
      largest = std::max(largest, size);
    }
    if constexpr (apart) {
      values_known_.reset();
      const Index elements = std::min(piece_, largest);
      if (!exchange_ || exchange_->elements() < elements) exchange_.emplace(parameter_device, elements);
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
  /// caller, by ParamStore::refresh_copies
  void step(D& dev, double learning_rate, double gradient_scale) {
    if constexpr (apart) read_values();
    ++updates_;
    for (Index g = 0; g < params_.groups(); ++g) {
      const auto slab = params_.slab(g);
      if (slab.value.empty()) continue;
      const auto group = static_cast<std::size_t>(g);
      const double factor = group < groups_.size() ? groups_[group].learning_rate_factor : 1;
      const double decay = group < groups_.size() ? groups_[group].weight_decay : settings_.weight_decay;
      kernel::AdamWStep step{learning_rate * factor, settings_.beta1, settings_.beta2, settings_.epsilon, decay,
                             gradient_scale,         updates_};
      for_each_run(g, slab.value.size(), [&](Index begin, Index count, Index since) {
        step.step = updates_ - since;
        const Slab& state = slabs_[group];
        const Index first = std::max(begin, state.begin), end = std::min(begin + count, state.end);
        if (first < end) update(dev, step, slab, group, first, end);
      });
    }
    if constexpr (apart) exchange(&AdamW::step_on_host);
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
    Tensor<S, A> value;        // likewise, where the state lies apart
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

  // Elements [first, end) of a group's slab, at once or, where the state lies apart, with the others.
  void update(D& dev, const kernel::AdamWStep& step, const typename nn::ParamStore<D, T>::Slab& slab, std::size_t group,
              Index first, Index end) {
    Slab& state = slabs_[group];
    if constexpr (!apart) {
      const auto own = [&](auto view) { return view.col_slice(first - state.begin, end - first); };
      kernel::adamw<T>(dev, step, slab.grad.col_slice(first, end - first), slab.value.col_slice(first, end - first),
                       own(state.m.view()), own(state.v.view()));
    } else {
      for (Index begin = first; begin < end; begin += piece_) {
        const Index count = std::min(piece_, end - begin);
        pieces_.push_back({View<D, const A>(slab.grad.col_slice(begin, count)), slab.value.col_slice(begin, count)});
        parts_.push_back({step, group, begin - state.begin, count});
      }
    }
  }

  // Of a state that lies apart: pieces of the slabs on their way, and what the host does with each.
  struct Part {
    kernel::AdamWStep step;
    std::size_t group;
    Index begin, count;  // of the state's slab
  };

  void exchange(void (AdamW::*work)(const Part&, const A* down, A* up)) {
    exchange_->run(pieces_, [&](std::size_t i, const A* down, A* up) { (this->*work)(parts_[i], down, up); });
    pieces_.clear();
    parts_.clear();
  }
  void step_on_host(const Part& part, const A* grad, A* value) {
    Slab& state = slabs_[part.group];
    const auto own = [&](auto& tensor) { return tensor.view().col_slice(part.begin, part.count); };
    kernel::adamw<T>(state_device_, part.step, View<S, const A>(grad, part.count), own(state.value), own(state.m),
                     own(state.v));
    std::copy_n(own(state.value).data(), part.count, value);
  }
  void take_values(const Part& part, const A* down, A*) {
    std::copy_n(down, part.count, slabs_[part.group].value.view().data() + part.begin);
  }
  // The values that the host has are the device's, unless something else than its own steps has changed those.
  void read_values() {
    if (values_known_ == params_.changes()) return;
    for (Index g = 0; g < params_.groups(); ++g) {
      const auto group = static_cast<std::size_t>(g);
      const Slab& state = slabs_[group];
      for (Index begin = state.begin; begin < state.end; begin += piece_) {
        const Index count = std::min(piece_, state.end - begin);
        pieces_.push_back({View<D, const A>(params_.slab(g).value.col_slice(begin, count)), {}});
        parts_.push_back({{}, group, begin - state.begin, count});
      }
    }
    exchange(&AdamW::take_values);
    values_known_ = params_.changes();
  }

  S& state_device_;
  nn::ParamStore<D, T>& params_;
  AdamWSettings settings_;
  std::vector<AdamWGroup> groups_;
  AdamWShard shard_;
  Index piece_;
  std::vector<Slab> slabs_;    // of each group
  std::vector<Place> places_;  // of each storage
  Index updates_ = 0;
  // Where the state lies apart.
  std::optional<Exchange<D, A>> exchange_;
  std::vector<typename Exchange<D, A>::Piece> pieces_;  // of this step
  std::vector<Part> parts_;                             // what is done with each
  std::optional<std::uint64_t> values_known_;           // ParamStore::changes() when the values were read
};

}  // namespace lora::optim
