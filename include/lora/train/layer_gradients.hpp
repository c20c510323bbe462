#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "lora/train/gradient_sum.hpp"

namespace lora::train {

/// No rank holds whole gradients (ZeRO-2). Ranks take turns with the units; a layer's gradient goes to those who have
/// shares of it as soon as backward has formed it, and each adds up what comes, in the order of units: as a binary
/// counter does, which gives the sums of the tree. On a device with links of its own that goes beside backward of the
/// layer before. Every rank makes the same exchanges, also with a unit that has no labels, and where it has no unit
/// left.
template <AnyDevice D, class T>
class LayerGradients final : public GradientSum<D, T>, private nn::GradientHook<D> {
  using typename GradientSum<D, T>::A;
  using typename GradientSum<D, T>::Form;
  using GradientSum<D, T>::comm_;
  using GradientSum<D, T>::params_;
  using GradientSum<D, T>::whole_;

 public:
  /// The parameters have been told to `share_by_layer`. `layers`: of the model.
  LayerGradients(comm::Communicator<D>& comm, nn::ParamStore<D, T>& params, Index units, Index layers)
      : GradientSum<D, T>(comm, params, units), layers_(layers) {}

  comm::OwnUnits units_of(int rank) const override { return comm::units_in_turn(whole_.end, rank, comm_.size()); }

  void run(D& dev, const Form& form) override {
    sent_.clear();  // of a run that has failed
    prepare(dev);
    {
      const ProfileScope phase(dev, Profile::Kind::phase, "update");
      params_.zero_grad(dev);
    }
    const comm::OwnUnits own = this->own();
    for (Index first = 0; first < whole_.end; first += comm_.size()) {
      first_unit_ = first;
      next_ = layers_;
      const Index unit = first + comm_.rank();
      form(own.has(unit) ? unit : -1, this);
      give_above(dev, -1);
      give(dev, nn::before_layers);
      add_up(dev);
    }
    const ProfileScope phase(dev, Profile::Kind::phase, "update");
    for (auto bits = static_cast<std::uint64_t>(whole_.end); std::popcount(bits) > 1; bits &= bits - 1)
      for (Index group = 0; group < params_.groups(); ++group)
        if (const auto depth = static_cast<std::size_t>(std::popcount(bits)); !sum(depth - 1, group).empty())
          kernel::convert(dev, sum(depth - 1, group), sum(depth - 2, group), 1, true);
  }

 private:
  void formed(D& dev, Index layer) override { give_above(dev, layer == nn::behind_layers ? layers_ - 1 : layer - 1); }

  // What lies behind layers, and layers down to `end`, without it, which have not been given away yet.
  void give_above(D& dev, Index end) {
    for (; next_ > end; --next_) give(dev, next_ == layers_ ? nn::behind_layers : next_);
  }

  // The gradients of a layer, or of what belongs to none: from all units of this round to their owners. What came of
  // the one before is added up first, whose place the next one's may be.
  void give(D& dev, Index layer) {
    add_up(dev);
    const ProfileScope phase(dev, Profile::Kind::phase, "update");
    Index at = 0;
    for (Index group = 0; group < params_.groups(); ++group) {
      const auto& buckets = params_.size(group).buckets;
      for (std::size_t i = 0; i < buckets.size(); ++i)
        if (buckets[i].layer == layer) {
          at += send(dev, group, i, at);
          if (nn::forming_layers<D> > 1) continue;
          add_up(dev);
          at = 0;
        }
    }
  }
  // Returns how many elements this rank gets of each unit, which go to their place `at`.
  Index send(D& dev, Index group, std::size_t bucket, Index at) {
    const nn::GroupSize& size = params_.size(group);
    const nn::Share share = nn::shares_of(size, comm_.rank(), comm_.size())[bucket];
    const Index count = share.end - share.begin;
    const View<D, A> own = params_.forming(group, bucket);
    const bool forms = comm_.rank() < units_of_round();
    std::vector<int> owners(static_cast<std::size_t>(units_of_round()));
    std::iota(owners.begin(), owners.end(), 0);
    Sent sent{group, share, forms ? own : View<D, A>(), {}};
    for (std::size_t unit = 0; unit < owners.size(); ++unit)
      sent.brought.push_back(received_[unit].view().col_slice(at, count));
    comm_.exchange(dev, std::span(&own, forms ? 1 : 0), std::span<const int>(owners),
                   nn::parts_of(size.buckets[bucket], comm_.size()), std::span<const View<D, A>>(sent.brought),
                   Stream::links);
    sent_.push_back(std::move(sent));
    return count;
  }
  // Adds up what has been sent, once it is there.
  void add_up(D& dev) {
    if (sent_.empty()) return;
    const ProfileScope phase(dev, Profile::Kind::phase, "update");
    wait_and_release(dev, Stream::compute, dev.record(Stream::links));
    for (const Sent& sent : std::exchange(sent_, {})) {
      if (sent.share.begin < sent.share.end)
        for (std::size_t unit = 0; unit < sent.brought.size(); ++unit)
          add(dev, first_unit_ + static_cast<Index>(unit), sent.group, sent.share, sent.brought[unit]);
      if (!sent.formed.empty()) kernel::fill(dev, sent.formed, 0.0);  // others form theirs there
    }
  }

  int units_of_round() const { return static_cast<int>(std::min<Index>(comm_.size(), whole_.end - first_unit_)); }

  // Counts one more unit: sums of as many units as each other become one.
  void add(D& dev, Index unit, Index group, const nn::Share& share, View<D, A> carry) {
    const auto of_share = [&](std::size_t place) {
      return sum(place, group).col_slice(share.at, share.end - share.begin);
    };
    auto bits = static_cast<std::uint64_t>(unit);
    auto depth = static_cast<std::size_t>(std::popcount(bits));  // sums that wait
    if ((bits & 1u) == 0) return kernel::convert(dev, carry, of_share(depth));
    for (; (bits & 1u) != 0; bits >>= 1) {
      const View<D, A> before = of_share(--depth);
      kernel::convert(dev, carry, before, 1, true);
      carry = before;
    }
  }

  // This rank's shares of a group, summed up over some of the units; the first place has the whole in the end.
  View<D, A> sum(std::size_t place, Index group) {
    return place == 0 ? params_.slab(group).grad : waiting_[place - 1][static_cast<std::size_t>(group)].view();
  }

  // Allocates what is summed up; again if the set of trained tensors has changed.
  void prepare(D& dev) {
    std::vector<Index> sizes;
    for (Index group = 0; group < params_.groups(); ++group) {
      const nn::GroupSize& size = params_.size(group);
      for (const nn::Share& share : nn::shares_of(size, comm_.rank(), comm_.size())) sizes.push_back(share.end);
      sizes.push_back(size.trained);
    }
    const Index largest = nn::most_at_once(params_.sizes(), comm_.rank(), comm_.size());
    sizes.push_back(largest);
    if (sizes == sizes_) return;
    sizes_ = std::move(sizes);
    waiting_.clear();
    received_.clear();
    for (Index i = 1; i < comm::held_in_turn(whole_.end); ++i) {
      auto& sums = waiting_.emplace_back();
      for (Index group = 0; group < params_.groups(); ++group) {
        const Index size = nn::share_size(params_.size(group), comm_.rank(), comm_.size());
        sums.push_back(size > 0 ? Tensor<D, A>(dev, size) : Tensor<D, A>());
      }
    }
    for (int i = 0; i < comm_.size(); ++i)
      received_.push_back(largest > 0 ? Tensor<D, A>(dev, largest) : Tensor<D, A>());
  }

  // A bucket of this round on its way.
  struct Sent {
    Index group;
    nn::Share share;                  // of this rank
    View<D, A> formed;                // by this rank's unit, if it has one
    std::vector<View<D, A>> brought;  // of each unit
  };

  Index layers_;
  Index first_unit_ = 0;  // of the round
  Index next_ = 0;        // layer to be given away, or behind them all
  std::vector<Index> sizes_;
  std::vector<std::vector<Tensor<D, A>>> waiting_;  // sums, of each group
  std::vector<Tensor<D, A>> received_;              // of each rank's unit
  std::vector<Sent> sent_;                          // what is not added up yet
};

}  // namespace lora::train
