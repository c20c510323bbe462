#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/core/scalar.hpp"
#include "lora/kernel/reduce.hpp"

// How ranks share out the elements of what trains: by arithmetic alone, which a plan does too.

namespace lora::nn {

/// Neighbors among the elements of a group that train, in whole blocks, which ranks share out at once: all of them or,
/// where gradients leave by layer, a layer's.
struct Bucket {
  Index begin = 0, end = 0;  ///< of the group's elements
  Index layer = -1;          ///< or before_layers, behind_layers

  Index size() const { return end - begin; }
};

/// What belongs to no layer: what a pass begins with, the embedding (and where the head is the same matrix, all else),
/// and what it ends with, the final norm and the head.
constexpr Index before_layers = -1, behind_layers = -2;

/// Elements of a group of parameters, and of those the ones that train: whole blocks both.
struct GroupSize {
  Index all = 0, trained = 0;
  std::vector<Bucket> buckets{};  ///< of what trains; none: all at once
  std::vector<Bucket> values{};   ///< of what trains, then of what does not, where values come to the device by layer
  bool shares_values = false;     ///< a rank has its shares of the values alone
  bool on_host = false;           ///< these lie in memory of the host beside the device
  bool in_full = false;           ///< read in the type of sums: biases and the weights of norms
  int forming = 1;  ///< layers whose gradients are formed, or on their way, at once, if they leave by layer

  /// At least one.
  std::vector<Bucket> shared_out() const { return buckets.empty() ? std::vector{Bucket{0, trained}} : buckets; }
};

/// Where each rank's part of a bucket begins, counted from the bucket's first element, and where the last ends.
inline std::vector<Index> parts_of(const Bucket& bucket, int ranks) {
  return comm::even_parts(bucket.size() / kernel::sum_block, kernel::sum_block, ranks);
}

/// Elements of a group that a rank has of a bucket, and where they begin among all that it has of the group.
struct Share {
  Index begin = 0, end = 0;
  Index at = 0;
};

/// The shares of `rank`, one of each bucket.
inline std::vector<Share> shares_of(const std::vector<Bucket>& buckets, int rank, int ranks) {
  std::vector<Share> shares;
  Index at = 0;
  for (const Bucket& bucket : buckets) {
    const auto parts = parts_of(bucket, ranks);
    const auto own = static_cast<std::size_t>(rank);
    shares.push_back({bucket.begin + parts[own], bucket.begin + parts[own + 1], at});
    at += parts[own + 1] - parts[own];
  }
  return shares;
}
/// Of what trains.
inline std::vector<Share> shares_of(const GroupSize& group, int rank, int ranks) {
  return shares_of(group.shared_out(), rank, ranks);
}

/// How ranks share out a tensor, whose elements [first, first + size) of a group all lie in one bucket.
struct Dealt {
  std::size_t bucket = 0;
  Index first;
  std::vector<Index> begins;  ///< of the ranks' elements, counted from the tensor's first, and where the last end

  Dealt(const std::vector<Bucket>& buckets, Index first_, Index size, int ranks) : first(first_) {
    while (first >= buckets[bucket].end) ++bucket;
    begins = parts_of(buckets[bucket], ranks);
    for (Index& begin : begins) begin = std::clamp<Index>(begin + buckets[bucket].begin - first, 0, size);
  }

  /// Of `rank`.
  Index count(int rank) const {
    const auto own = static_cast<std::size_t>(rank);
    return begins[own + 1] - begins[own];
  }
  /// Where what `rank` has of it begins among all that it has, of which `shares` are its shares.
  Index at(const std::vector<Share>& shares, int rank) const {
    const Share& share = shares[bucket];
    return share.at + first + begins[static_cast<std::size_t>(rank)] - share.begin;
  }
  /// That of `held` (1, n), all that it has.
  template <class Numbers>
  Numbers part(const Numbers& held, const std::vector<Share>& shares, int rank) const {
    return held.col_slice(at(shares, rank), count(rank));
  }
  /// And where that stands in the whole (1, size).
  template <class Numbers>
  Numbers place(const Numbers& whole, int rank) const {
    return whole.col_slice(begins[static_cast<std::size_t>(rank)], count(rank));
  }
};

/// As GroupSize has it: a device that exchanges beside its kernels forms a layer's gradients while those of the one
/// before are on their way; processors exchange by themselves.
template <AnyDevice D>
constexpr int forming_layers = D::reads_host_memory ? 1 : 2;

/// Where the gradients of each bucket are formed where they leave by layer: layers take turns with the same memory, one
/// after the other or every second, and what belongs to none has some of its own.
struct FormingPlaces {
  std::vector<std::vector<Index>> begins{};  ///< of each group's buckets
  Index size = 0;
};
inline FormingPlaces forming_places(const std::vector<GroupSize>& groups) {
  std::map<Index, Index> taken;  // elements of each layer
  Index largest = 0, turns = 1;
  FormingPlaces places;
  for (const GroupSize& group : groups) {
    auto& begins = places.begins.emplace_back();
    for (const Bucket& bucket : group.buckets) {
      begins.push_back(taken[bucket.layer]);
      taken[bucket.layer] += bucket.size();
    }
  }
  for (const GroupSize& group : groups) turns = std::max<Index>(turns, group.forming);
  for (const auto& [layer, size] : taken)
    if (layer >= 0) largest = std::max(largest, size);
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t i = 0; i < groups[g].buckets.size(); ++i)
      if (const Index layer = groups[g].buckets[i].layer; layer >= 0) places.begins[g][i] += layer % turns * largest;
  places.size = turns * largest;
  for (const Index apart : {before_layers, behind_layers}) {
    for (std::size_t g = 0; g < groups.size(); ++g)
      for (std::size_t i = 0; i < groups[g].buckets.size(); ++i)
        if (groups[g].buckets[i].layer == apart) places.begins[g][i] += places.size;
    places.size += taken[apart];
  }
  return places;
}

/// Elements of one unit's gradients that come to `rank` at once at most, where they leave by layer: a bucket's or,
/// where they are added up later, those of all buckets of a layer, or of what belongs to none.
inline Index most_at_once(const std::vector<GroupSize>& groups, int rank, int ranks) {
  std::map<Index, Index> of_layer;
  Index most = 0;
  for (const GroupSize& group : groups) {
    const auto shares = shares_of(group, rank, ranks);
    for (std::size_t i = 0; i < group.buckets.size(); ++i) {
      const Index count = shares[i].end - shares[i].begin;
      most = std::max(most, group.forming > 1 ? of_layer[group.buckets[i].layer] += count : count);
    }
  }
  return most;
}

/// Elements of all shares of `rank` of what trains.
inline Index share_size(const GroupSize& group, int rank, int ranks) {
  const Share last = shares_of(group, rank, ranks).back();
  return last.at + last.end - last.begin;
}

/// Elements of the values of a group that a rank has.
inline Index values_held(const GroupSize& group, int rank, int ranks) {
  if (!group.shares_values) return group.all;
  const auto shares = shares_of(group.values, rank, ranks);
  return shares.empty() ? 0 : shares.back().at + shares.back().end - shares.back().begin;
}

/// A bucket of a group among the bytes of a layer that ranks have gathered, or that came from the host.
struct GatheredPiece {
  std::size_t group = 0, bucket = 0;  ///< of its values
  Index begin = 0, end = 0;           ///< of the group's elements
  bool in_full = false;
  std::size_t offset = 0;  ///< bytes
};
struct GatheredLayer {
  std::vector<GatheredPiece> pieces{};
  std::size_t bytes = 0;
};

/// What comes of each layer, and of what belongs to none, where values come by layer: for products in numbers of
/// `narrow` bytes, the rest in numbers of `wide`. Everything begins on whole blocks.
inline std::map<Index, GatheredLayer> gathered_layers(const std::vector<GroupSize>& groups, std::size_t narrow,
                                                      std::size_t wide) {
  std::map<Index, GatheredLayer> layers;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::vector<Bucket>& buckets = groups[g].values;
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      GatheredLayer& layer = layers[buckets[i].layer];
      layer.pieces.push_back({g, i, buckets[i].begin, buckets[i].end, groups[g].in_full, layer.bytes});
      layer.bytes += static_cast<std::size_t>(buckets[i].size()) * (groups[g].in_full ? wide : narrow);
    }
  }
  return layers;
}

/// Layers that there is room for, of those that come; and of what belongs to none, one.
constexpr int gathered_slots = 2;

/// Bytes of that room.
inline std::size_t room_for_gathered(const std::map<Index, GatheredLayer>& layers) {
  std::size_t largest = 0, apart = 0;
  for (const auto& [number, layer] : layers)
    (number < 0 ? apart : largest) = std::max(number < 0 ? apart : largest, layer.bytes);
  return gathered_slots * largest + apart;
}

}  // namespace lora::nn
