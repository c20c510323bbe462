#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "lora/comm/sum_tree.hpp"
#include "lora/core/config.hpp"
#include "lora/model/weights/sharded_layers.hpp"
#include "lora/train/step_traffic.hpp"
#include "lora/train/verdict.hpp"

namespace lora::train::detail {

/// Of which rank `rank` gives its part to all others, and gets theirs.
LORA_INLINE void add_gather(Traffic& traffic, std::span<const Index> begins, int rank, std::size_t bytes,
                            std::size_t piece) {
  const auto at = static_cast<std::size_t>(rank);
  const auto own = static_cast<double>(begins[at + 1] - begins[at]), all = static_cast<double>(begins.back());
  const auto others = static_cast<double>(begins.size() - 2), each = static_cast<double>(bytes);
  Index longest = 0;
  for (std::size_t i = 1; i < begins.size(); ++i) longest = std::max(longest, begins[i] - begins[i - 1]);
  const double part = static_cast<double>(longest) * each;
  traffic.calls += piece > 0 ? std::max(1.0, std::ceil(part / static_cast<double>(piece))) : 1;
  traffic.sent += others * own * each;
  traffic.received += (all - own) * each;
}

/// Slabs, of which this rank has `own` and others have `theirs`: each rank gets its part of all.
LORA_INLINE void add_exchange(Traffic& traffic, std::span<const Index> begins, int rank, Index own, Index theirs,
                              std::size_t bytes) {
  const auto at = static_cast<std::size_t>(rank);
  const Index part = begins[at + 1] - begins[at], all = begins.back();
  traffic.calls += 1;
  traffic.sent += static_cast<double>((all - part) * own) * static_cast<double>(bytes);
  traffic.received += static_cast<double>(part * theirs) * static_cast<double>(bytes);
}

/// As many numbers of every rank.
LORA_INLINE void add_numbers(Traffic& traffic, Index count, int ranks) {
  traffic.calls += 1;
  traffic.sent += static_cast<double>(count * (ranks - 1)) * sizeof(double);
  traffic.received += static_cast<double>(count * (ranks - 1)) * sizeof(double);
}

/// What is gathered of values that ranks share out, in a step of so many rounds of micro-batches: nothing of it stays
/// from the step before. `inside`: of layers, `apart`: of what is in none.
LORA_INLINE void add_values(Traffic& inside, Traffic& apart, const TrafficBasis& basis, int rank, Index rounds) {
  if (std::none_of(basis.sizes.begin(), basis.sizes.end(), [](const auto& group) { return group.shares_values; }))
    return;
  const auto layers = nn::gathered_layers(basis.sizes, basis.product, basis.element);
  std::vector<bool> there(static_cast<std::size_t>(basis.depth));
  for (const auto& [number, layer] : layers)
    if (number >= 0) there[static_cast<std::size_t>(number)] = true;
  const auto gathers = gathers_of(there, nn::gathered_slots, basis.first_trained, rounds, 0);
  const bool alternate = layers.contains(nn::before_layers) && layers.contains(nn::behind_layers);
  for (const auto& [number, layer] : layers) {
    const Index times = number >= 0 ? gathers[static_cast<std::size_t>(number)] : alternate ? rounds : 1;
    for (const nn::GatheredPiece& piece : layer.pieces) {
      const auto begins = nn::parts_of({piece.begin, piece.end}, basis.ranks);
      for (Index i = 0; i < times; ++i)
        add_gather(number >= 0 ? inside : apart, begins, rank, piece.in_full ? basis.element : basis.product,
                   basis.piece);
    }
  }
}

}  // namespace lora::train::detail

namespace lora::train {

LORA_INLINE std::vector<Index> gathers_of(const std::vector<bool>& there, int slots, Index first_trained, Index passes,
                                          Index warm) {
  struct Slot {
    Index layer = -1, used = 0;
  };
  std::vector<Slot> room(static_cast<std::size_t>(slots));
  const Index layers = std::ssize(there);
  std::vector<Index> gathers(there.size());
  Index clock = 0;
  // As nn::LayerSlots chooses: the slot that was used longest ago, but for the one that is held.
  const auto bring = [&](Index layer, const Slot* held) -> Slot& {
    Slot* oldest = nullptr;
    for (Slot& slot : room) {
      if (slot.layer == layer) return slot;
      if (&slot != held && (oldest == nullptr || slot.used < oldest->used)) oldest = &slot;
    }
    ++gathers[static_cast<std::size_t>(layer)];
    *oldest = {layer, ++clock};
    return *oldest;
  };
  const auto acquire = [&](Index layer, Index next) {
    if (!there[static_cast<std::size_t>(layer)]) return;
    Slot& slot = bring(layer, nullptr);
    slot.used = ++clock;
    if (there[static_cast<std::size_t>(next)]) bring(next, &slot);
  };
  for (Index pass = -warm; pass < passes; ++pass) {
    if (pass == 0) gathers.assign(gathers.size(), 0);
    for (Index i = 0; i < layers; ++i) acquire(i, i + 1 < layers ? i + 1 : layers - 1);
    for (Index i = layers - 1; i >= first_trained; --i) acquire(i, i > first_trained ? i - 1 : 0);
  }
  return gathers;
}

LORA_INLINE std::vector<Traffic> step_traffic(const TrafficBasis& basis, int rank) {
  if (basis.ranks == 1) return {};
  const bool by_layer = basis.zero_stage > 1;
  using Beside = Traffic::Beside;
  Traffic gradients{"gradients", "all-to-all"}, last{"last gradients", "all-to-all"}, norm{"norm", "all-gather"},
      layers{"layers", "all-gather"}, numbers{"counts and losses", "all-gather"};
  if (by_layer) gradients.beside = Beside::backward;
  layers.beside = Beside::anything;
  // Where backward ends: it goes from what is behind layers to what is before them.
  const auto place_of = [&](const nn::Bucket& bucket) {
    return bucket.layer == nn::behind_layers ? basis.depth : bucket.layer;
  };
  Index end = basis.depth;
  for (const nn::GroupSize& group : basis.sizes)
    for (const nn::Bucket& bucket : group.buckets) end = std::min(end, place_of(bucket));
  Traffic whole{basis.zero_stage > 0 ? "values" : "summed gradients", "all-gather"};
  const comm::RankNodes nodes(basis.units, basis.ranks);
  const Index rounds = (basis.units + basis.ranks - 1) / basis.ranks;
  for (const nn::GroupSize& group : basis.sizes) {
    if (group.trained == 0) continue;
    for (const nn::Bucket& bucket : group.shared_out()) {
      const std::vector<Index> begins = nn::parts_of(bucket, basis.ranks);
      if (by_layer) {
        for (Index first = 0; first < basis.units; first += basis.ranks) {
          const Index units = std::min<Index>(basis.ranks, basis.units - first), own = rank < units ? 1 : 0;
          detail::add_exchange(place_of(bucket) == end ? last : gradients, begins, rank, own, units - own,
                               basis.element);
        }
      } else {
        const Index own = std::count(nodes.owners.begin(), nodes.owners.end(), rank);
        detail::add_exchange(gradients, begins, rank, own, std::ssize(nodes.owners) - own, basis.element);
      }
      std::vector<Index> blocks;
      for (const Index begin : begins) blocks.push_back(begin / kernel::sum_block);
      detail::add_gather(norm, blocks, rank, basis.sum, basis.piece);
      if (!group.shares_values) detail::add_gather(whole, begins, rank, basis.element, basis.piece);
    }
  }
  Traffic inside{"values of layers", "all-gather"};
  inside.beside = Beside::anything;
  detail::add_values(inside, whole, basis, rank, rounds);
  std::vector<bool> frozen;
  for (const std::size_t bytes : basis.layers) frozen.push_back(bytes > 0);
  const std::vector<Index> gathered = gathers_of(frozen, basis.slots, basis.first_trained, 1, 1);
  for (std::size_t layer = 0; layer < basis.layers.size(); ++layer) {
    const auto begins = model::shard_begins(basis.layers[layer], basis.ranks);
    for (Index i = 0; i < gathered[layer] * rounds; ++i) detail::add_gather(layers, begins, rank, 1, basis.piece);
  }
  detail::add_numbers(numbers, 3, basis.ranks);  // tokens, those computed, and labels
  std::vector<Index> units{0};
  for (int r = 0; r < basis.ranks; ++r) {
    units.push_back(units.back() + comm::units_of_rank(basis.units, basis.zero_stage, r, basis.ranks).count());
  }
  detail::add_gather(numbers, units, rank, sizeof(double), 0);
  for (int i = 0; i < 2; ++i) detail::add_numbers(numbers, Verdict::numbers, basis.ranks);
  if (basis.files > 0) detail::add_numbers(numbers, basis.files, basis.ranks);
  std::vector<Traffic> result;
  if (gradients.calls > 0) result.push_back(gradients);
  if (last.calls > 0) result.push_back(last);
  result.insert(result.end(), {norm, whole, numbers});
  for (const Traffic& ahead : {inside, layers})
    if (ahead.calls > 0) result.insert(result.begin(), ahead);
  return result;
}

}  // namespace lora::train
