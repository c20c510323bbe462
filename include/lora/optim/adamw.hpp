#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/kernel/elementwise.hpp"
#include "lora/kernel/optimizer.hpp"
#include "lora/nn/param_store.hpp"
#include "lora/optim/exchange.hpp"
#include "lora/tensor/arena.hpp"

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

/// Which part of the state this optimizer has: that of `rank`'s shares of every group, of `size` ranks.
struct AdamWShard {
  int rank = 0, size = 1;
};

/// What differs from one group of the parameters to another.
struct AdamWGroup {
  double learning_rate_factor = 1;
  double weight_decay = 0;
};

/// AdamW over the parameters of a store: one launch for each bucket of a group and each step in which its tensors began
/// to train. It keeps m and v of each, as slabs laid out as the store's, on a device of its own: the parameters' own,
/// or a host beside it (offload). Then the values are kept there as well, gradients come to the host in pieces, and
/// values go back, beside the work on the pieces before; where the store itself has its values there, none goes.
template <AnyDevice D, class T, AnyDevice S = D>
class AdamW {
  using A = Accum<T>;
  using GroupSize = nn::GroupSize;
  static constexpr bool apart = !std::same_as<S, D>;
  static_assert(!apart || S::reads_host_memory, "state lies on the parameters' device, or on the host");

 public:
  /// Elements that travel together where the state lies apart: some MiB. Whole blocks.
  static constexpr Index default_piece = Index{1} << 20;

  /// Groups that `groups` does not have decay as `settings` says.
  AdamW(D& dev, nn::ParamStore<D, T>& params, AdamWSettings settings, std::vector<AdamWGroup> groups = {})
    requires(std::same_as<S, D>)
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
    return host_bytes(params.sizes(), shard, piece);
  }
  static std::size_t host_bytes(const std::vector<GroupSize>& sizes, AdamWShard shard = {},
                                Index piece = default_piece) {
    return state_bytes(sizes, shard) + exchange_bytes(sizes, shard, piece);
  }
  /// The most that it takes on the host while it follows from what trained to what trains now.
  static std::size_t host_bytes_to_follow(const std::vector<GroupSize>& before, const std::vector<GroupSize>& now,
                                          AdamWShard shard = {}, Index piece = default_piece) {
    // Values are freed first and read again last. The buffers of the exchange keep their size.
    return std::max({state_bytes(before, shard), moment_bytes_to_follow(before, now, shard), state_bytes(now, shard)}) +
           std::max(exchange_bytes(before, shard, piece), exchange_bytes(now, shard, piece));
  }
  /// The most that m and v take while they follow, beside one tensor that ranks gather.
  static std::size_t moment_bytes_to_follow(const std::vector<GroupSize>& before, const std::vector<GroupSize>& now,
                                            AdamWShard shard = {}) {
    Index held = 0, most = 0;
    for (const GroupSize& group : before) held += 2 * part_of(group, shard);
    for (std::size_t g = 0; g < now.size(); ++g)
      for (int moment = 0; moment < 2; ++moment) {
        most = std::max(most, held + part_of(now[g], shard));
        held += part_of(now[g], shard) - part_of(before[g], shard);
      }
    return static_cast<std::size_t>(most) * sizeof(A);
  }

  nn::ParamStore<D, T>& params() const { return params_; }

  /// Updates that were made; a step that was left out makes none.
  Index updates() const { return updates_; }
  void set_updates(Index updates) { updates_ = updates; }

  /// To be called when what trains may have changed. What trains on keeps its m and v; what begins to train starts with
  /// zeros and, as in PyTorch, with a count of updates of its own; what is frozen loses both. Where nothing has
  /// changed, nothing moves; else one moment of one group after the other is there twice. Ranks that share the state
  /// call this together, with their communicator, and gather one tensor's after the other.
  /// Throws   DeviceError where memory is short, after which nothing but this may be called until it has come to its
  ///          end: what trains on, then as before, has kept its moments
  void follow(D& parameter_device, comm::Communicator<D>* ranks = nullptr) {
    std::vector<Place> now;
    bool same = followed_ && places_.size() == params_.storages();
    for (std::size_t i = 0; i < params_.storages(); ++i) {
      const auto at = params_.place(i);
      Place place{at.group, at.begin, at.rows * at.cols, places_.empty() ? 0 : updates_, at.trains};
      if (at.trains && keeps(i)) place.since = places_[i].since;
      same = same && place.is_where(places_[i]);
      now.push_back(place);
    }
    if (same) return;
    if (shard_.size > 1 && !places_.empty() && (ranks == nullptr || ranks->size() != shard_.size))
      fail<Error>("what trains changes, but the ", shard_.size, " ranks that share the optimizer's state aren't given");
    followed_ = false;
    lost_.resize(now.size());
    slabs_.resize(static_cast<std::size_t>(params_.groups()));
    if constexpr (apart) {
      values_known_.reset();
      for (Slab& slab : slabs_) slab.value = {};
    }
    std::vector<bool> kept(now.size());  // the moments may lie where a call that failed has left them
    for (std::size_t i = 0; i < now.size(); ++i) kept[i] = now[i].trains && keeps(i);
    Index largest = 0;
    for (Index g = 0; g < params_.groups(); ++g) {
      Slab& slab = slabs_[static_cast<std::size_t>(g)];
      slab.size = params_.size(g);
      slab.shares = nn::shares_of(slab.size, shard_.rank, shard_.size);
      for (Moment* moment : {&slab.m, &slab.v}) move(*moment, g, slab, now, kept, ranks);
      largest = std::max(largest, own_size(slab));
    }
    if constexpr (apart) {
      for (Slab& slab : slabs_)
        if (const Index size = own_size(slab); size > 0 && !params_.values_on_host())
          slab.value = Tensor<S, A>(state_device_, size);
      const Index elements = std::min(piece_, largest);
      if (!exchange_ || exchange_->elements() < elements) exchange_.emplace(parameter_device, elements);
    }
    places_ = std::move(now);
    lost_.clear();
    followed_ = true;
  }

  /// Writes   the value of every parameter that this part of the state is of; the copies in T are refreshed by the
  /// caller, by ParamStore::refresh_copies
  void step(D& dev, double learning_rate, double gradient_scale) {
    expect_followed();
    if constexpr (apart)
      if (!params_.values_on_host()) read_values();
    const Index number = updates_ + 1;
    Travel travel;
    for (Index g = 0; g < params_.groups(); ++g) {
      const Index trained = params_.size(g).trained;
      if (trained == 0) continue;
      const auto group = static_cast<std::size_t>(g);
      const double factor = group < groups_.size() ? groups_[group].learning_rate_factor : 1;
      const double decay = group < groups_.size() ? groups_[group].weight_decay : settings_.weight_decay;
      kernel::AdamWStep step{learning_rate * factor, settings_.beta1, settings_.beta2, settings_.epsilon, decay,
                             gradient_scale,         number};
      for_each_run(g, trained, [&](Index begin, Index count, Index since) {
        step.step = number - since;
        for (const nn::Share& share : slabs_[group].shares) {
          const Index first = std::max(begin, share.begin), end = std::min(begin + count, share.end);
          if (first < end) update(dev, step, group, {first, end, share.at + first - share.begin}, travel);
        }
      });
    }
    if constexpr (apart) exchange(travel, &AdamW::step_on_host);
    updates_ = number;
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
    expect_followed();
    for (const auto& entry : params_.entries()) {
      const Place& place = places_[entry.storage];
      if (!place.trains) continue;
      const Index cols = params_.place(entry.storage).cols, size = entry.rows * cols;
      const Index first = place.begin + entry.first_row * cols;  // in the group's slab
      Slab& slab = slabs_[static_cast<std::size_t>(place.group)];
      const nn::Dealt dealt(slab.size.shared_out(), first, size, shard_.size);
      const Index count = dealt.count(shard_.rank);
      for (const auto& [suffix, moment] : {std::pair{".exp_avg", &slab.m}, std::pair{".exp_avg_sq", &slab.v}})
        f(StateTensor{entry.name + suffix,
                      {entry.rows, cols},
                      dealt.begins,
                      count == 0 ? View<S, A>() : dealt.part(moment->numbers.view(), slab.shares, shard_.rank)});
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
  struct Place {
    Index group = 0, begin = 0, size = 0;  // elements of the group's slab
    Index since = 0;                       // updates made before it began to train
    bool trains = false;

    bool is_where(const Place& other) const {
      return group == other.group && begin == other.begin && size == other.size && trains == other.trains;
    }
  };
  struct Moment {
    Tensor<S, A> numbers;       // (1, n) this rank's shares
    std::vector<Place> places;  // of each storage, as they were when this group's numbers last moved
    nn::GroupSize size{};       // of the group, then
  };
  struct Slab {
    Moment m, v;
    Tensor<S, A> value;  // (1, n), where the state lies apart from them
    nn::GroupSize size{};
    std::vector<nn::Share> shares{};
  };

  static Index own_size(const Slab& slab) {
    const nn::Share& last = slab.shares.back();
    return last.at + last.end - last.begin;
  }

  // Where it lies apart, of moments and values, unless these are the store's.
  static std::size_t state_bytes(const std::vector<GroupSize>& sizes, AdamWShard shard) {
    Index all = 0;
    for (const GroupSize& group : sizes) all += (group.on_host ? 2 : 3) * part_of(group, shard);
    return static_cast<std::size_t>(all) * sizeof(A);
  }
  static std::size_t exchange_bytes(const std::vector<GroupSize>& sizes, AdamWShard shard, Index piece) {
    Index largest = 0;
    for (const GroupSize& group : sizes) largest = std::max(largest, part_of(group, shard));
    return Exchange<D, A>::bytes(std::min(piece, largest));
  }
  static Index part_of(const GroupSize& group, AdamWShard shard) {
    return nn::share_size(group, shard.rank, shard.size);
  }

  // Whether a storage's moments are there: it trained when `follow` last came to its end, and has lost neither since.
  bool keeps(std::size_t storage) const {
    return storage < places_.size() && places_[storage].trains && (storage >= lost_.size() || !lost_[storage]);
  }

  // Gives a moment of a group the places of what trains now. What is `kept` keeps its numbers.
  void move(Moment& moment, Index group, const Slab& to, const std::vector<Place>& now, const std::vector<bool>& kept,
            comm::Communicator<D>* ranks) {
    Tensor<S, A> result;
    if (const Index size = own_size(to); size > 0) {
      result = Tensor<S, A>(state_device_, size);
      kernel::fill(state_device_, result.view(), 0.0);
    }
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (!kept[i] || now[i].group != group) continue;
      const Arena::Scope scope(state_device_.arena());
      const View<S, A> whole = shard_.size == 1 ? moment.numbers.view().col_slice(moment.places[i].begin, now[i].size)
                                                : gather(moment, moment.places[i], *ranks);
      for (const nn::Share& share : to.shares) {
        const Index first = std::max(share.begin, now[i].begin), last = std::min(share.end, now[i].begin + now[i].size);
        if (first < last)
          kernel::convert(state_device_, whole.col_slice(first - now[i].begin, last - first),
                          result.view().col_slice(share.at + first - share.begin, last - first));
      }
    }
    std::vector<Place> places = now;
    moment.numbers = std::move(result);
    moment.places = std::move(places);
    moment.size = to.size;
    for (std::size_t i = 0; i < now.size(); ++i)
      if (now[i].group == group && !kept[i]) lost_[i] = true;
  }

  // The moment of a tensor, of whose place each rank has a part, in scratch of the enclosing scope.
  View<S, A> gather(Moment& moment, const Place& place, comm::Communicator<D>& ranks) {
    const View<S, A> whole = scratch<A>(state_device_, 1, place.size);
    const nn::Dealt dealt(moment.size.shared_out(), place.begin, place.size, shard_.size);
    const auto shares = nn::shares_of(moment.size, shard_.rank, shard_.size);
    if (dealt.count(shard_.rank) > 0)
      kernel::convert(state_device_, dealt.part(moment.numbers.view(), shares, shard_.rank),
                      dealt.place(whole, shard_.rank));
    ranks.all_gather_on(state_device_, whole, dealt.begins);
    return whole;
  }

  void expect_followed() const {
    if (!followed_) fail<Error>("the optimizer has not followed what trains: follow failed, and must come to its end");
  }

  // f(begin, count, since) for neighbors in a slab that began to train together.
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

  // Of a state that lies apart: pieces of the slabs on their way, and what the host does with each.
  struct Part {
    kernel::AdamWStep step;
    std::size_t group;
    Index begin, count;  // of the state's slab
    A* value;            // on the host
  };
  struct Travel {
    std::vector<typename Exchange<D, A>::Piece> pieces;
    std::vector<Part> parts;
  };

  // Elements of a group at once or, where the state lies apart, with the others.
  void update(D& dev, const kernel::AdamWStep& step, std::size_t group, const nn::Share& share,
              [[maybe_unused]] Travel& travel) {
    const Index size = share.end - share.begin;
    const View<D, A> grad = params_.grad_of(static_cast<Index>(group), share);
    Slab& state = slabs_[group];
    if constexpr (!apart) {
      const auto own = [&](auto view) { return view.col_slice(share.at, size); };
      kernel::adamw<T>(dev, step, grad, params_.value_of(static_cast<Index>(group), share), own(state.m.numbers.view()),
                       own(state.v.numbers.view()));
    } else {
      const bool there = params_.values_on_host();
      A* const values =
          there ? params_.value_on_host(static_cast<Index>(group), share) : state.value.view().data() + share.at;
      const View<D, A> back = there ? View<D, A>() : params_.value_of(static_cast<Index>(group), share);
      for (Index begin = 0; begin < size; begin += piece_) {
        const Index count = std::min(piece_, size - begin);
        travel.pieces.push_back(
            {View<D, const A>(grad.col_slice(begin, count)), there ? View<D, A>() : back.col_slice(begin, count)});
        travel.parts.push_back({step, group, share.at + begin, count, values + begin});
      }
    }
  }

  void exchange(const Travel& travel, void (AdamW::*work)(const Part&, const A* down, A* up)) {
    exchange_->run(travel.pieces,
                   [&](std::size_t i, const A* down, A* up) { (this->*work)(travel.parts[i], down, up); });
  }
  void step_on_host(const Part& part, const A* grad, A* up) {
    Slab& state = slabs_[part.group];
    const auto own = [&](auto& tensor) { return tensor.view().col_slice(part.begin, part.count); };
    kernel::adamw<T>(state_device_, part.step, View<S, const A>(grad, part.count), View<S, A>(part.value, part.count),
                     own(state.m.numbers), own(state.v.numbers));
    if (!params_.values_on_host()) std::copy_n(part.value, part.count, up);
  }
  void take_values(const Part& part, const A* down, A*) { std::copy_n(down, part.count, part.value); }
  // The values that the host has are the device's, unless something else than its own steps has changed those.
  void read_values() {
    if (values_known_ == params_.changes()) return;
    Travel travel;
    for (Index g = 0; g < params_.groups(); ++g) {
      const auto group = static_cast<std::size_t>(g);
      for (const nn::Share& share : slabs_[group].shares)
        for (Index begin = share.begin; begin < share.end; begin += piece_) {
          const Index count = std::min(piece_, share.end - begin), at = share.at + begin - share.begin;
          travel.pieces.push_back({View<D, const A>(params_.value_of(g, {begin, begin + count, at})), {}});
          travel.parts.push_back({{}, group, at, count, slabs_[group].value.view().data() + at});
        }
    }
    exchange(travel, &AdamW::take_values);
    values_known_ = params_.changes();
  }

  S& state_device_;
  nn::ParamStore<D, T>& params_;
  AdamWSettings settings_;
  std::vector<AdamWGroup> groups_;
  AdamWShard shard_;
  Index piece_;
  std::vector<Slab> slabs_;    // of each group
  std::vector<Place> places_;  // of each storage, when `follow` last came to its end
  bool followed_ = false;      // whether it has, since it was last called
  std::vector<bool> lost_;     // whether a call that failed has dropped a moment of a storage
  Index updates_ = 0;
  // Where the state lies apart.
  std::optional<Exchange<D, A>> exchange_;
  std::optional<std::uint64_t> values_known_;  // ParamStore::changes() when the values were read
};

}  // namespace lora::optim
