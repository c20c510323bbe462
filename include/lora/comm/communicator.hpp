#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/tensor/view.hpp"

namespace lora::comm {

/// Collectives between ranks, the processes that train one model together. Every rank makes the same calls in the same
/// order. They move numbers and add nothing up: the order of sums is the caller's.
///   rank, size                              this rank of [0, size)
///   all_gather(numbers)                     a few numbers of the host: those of all ranks, rank after rank
///   all_gather(dev, slab, begins)           in place: rank r gives [begins[r], begins[r + 1]) of the slab (1, n)
///   exchange(dev, mine, owners, begins, parts)
///                                           parts[i] (1, begins[rank + 1] − begins[rank]) gets this rank's range of
///                                           slab i, which rank owners[i] holds; `mine` are its own slabs, in order
///   broadcast(dev, slab, root)              rank root's slab, to all
///   agree(status)                           the largest status of all ranks: whether to stop, skip or fail
///   barrier()                               returns once every rank has called it
template <class C, class D>
concept AnyCommunicator = requires(C& c, D& dev, View<D, float> slab, std::span<const double> numbers,
                                   std::span<const Index> begins, std::span<const View<D, float>> slabs,
                                   std::span<const int> owners) {
  { c.rank() } -> std::convertible_to<int>;
  { c.size() } -> std::convertible_to<int>;
  { c.all_gather(numbers) } -> std::same_as<std::vector<double>>;
  c.all_gather(dev, slab, begins);
  c.exchange(dev, slabs, owners, begins, slabs);
  c.broadcast(dev, slab, 0);
  { c.agree(0) } -> std::convertible_to<int>;
  c.barrier();
};

/// A single process.
class Single {
 public:
  int rank() const { return 0; }
  int size() const { return 1; }
  std::vector<double> all_gather(std::span<const double> numbers) const { return {numbers.begin(), numbers.end()}; }
  template <class D, class T>
  void all_gather(D&, View<D, T>, std::span<const Index>) const {}
  /// Throws   Error: there is nobody to exchange with, and the caller has its own slabs
  template <class D, class T>
  void exchange(D&, std::span<const View<D, T>>, std::span<const int>, std::span<const Index>,
                std::span<const View<D, T>>) const {
    fail<Error>("[comm] one rank has nobody to exchange with");
  }
  template <class D, class T>
  void broadcast(D&, View<D, T>, int) const {}
  int agree(int status) const { return status; }
  void barrier() const {}
};

/// Where each rank's part of `blocks` blocks of `block` elements begins, and where the last ends: parts as even as
/// whole blocks allow.
inline std::vector<Index> even_parts(Index blocks, Index block, int ranks) {
  std::vector<Index> begins;
  for (Index r = 0; r <= ranks; ++r) begins.push_back(blocks * r / ranks * block);
  return begins;
}

}  // namespace lora::comm
