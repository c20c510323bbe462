#pragma once

#include <unistd.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/tensor/device.hpp"
#include "lora/tensor/view.hpp"

namespace lora::comm {

/// Where parts begin, and where the last ends, in bytes instead of elements.
inline std::vector<Index> in_bytes(std::span<const Index> elements, std::size_t size) {
  std::vector<Index> bytes;
  for (const Index begin : elements) bytes.push_back(begin * static_cast<Index>(size));
  return bytes;
}

struct Traffic {
  double seconds = 0;
  double sent_bytes = 0, received_bytes = 0;
};

/// The ranks that train one model together, as their hosts see each other. Every rank makes the same calls in the same
/// order. Collectives move numbers and add nothing up: the order of sums is the caller's. Where a rank fails, the calls
/// of the others throw an Error that names it.
class Ranks {
 public:
  virtual ~Ranks() = default;

  /// This rank, of [0, size).
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Of the machine that this rank runs on.
  virtual std::string host() const {
    char name[256] = "";
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
  }
  /// The number of that machine's last boot, which tells it from another of its name; empty where it is not known.
  virtual std::string boot() const {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string number;
    std::getline(file, number);
    return number;
  }
  std::string host_and_boot() const { return host() + "\n" + boot(); }  // on a line each
  /// What this rank has sent and received so far, and how long it has waited for it.
  virtual Traffic traffic() const { return {}; }

  /// In place, in memory of the host: rank r gives bytes [begins[r], begins[r + 1]).
  virtual void gather_on_host(std::span<std::byte> bytes, std::span<const Index> begins) = 0;

  /// The numbers of all ranks: those of rank r are [begins[r], begins[r + 1]).
  std::vector<double> all_gather(std::span<const double> numbers, std::span<const Index> begins) {
    const auto at = static_cast<std::size_t>(rank());
    if (std::ssize(begins) != size() + 1 || begins[at + 1] - begins[at] != std::ssize(numbers))
      fail<ShapeError>("[comm] rank ", rank(), " of ", size(), " gives ", numbers.size(), " numbers, which are not ",
                       "those that the ranks agreed on");
    std::vector<double> all(static_cast<std::size_t>(begins.back()));
    std::copy(numbers.begin(), numbers.end(), all.begin() + begins[at]);
    gather_on_host(std::as_writable_bytes(std::span(all)), in_bytes(begins, sizeof(double)));
    return all;
  }
  /// The same where every rank gives as many.
  std::vector<double> all_gather(std::span<const double> numbers) {
    std::vector<Index> begins;
    for (Index r = 0; r <= size(); ++r) begins.push_back(r * std::ssize(numbers));
    return all_gather(numbers, begins);
  }

  /// The bits that any rank has set: what all of them do next, where each may have a reason of its own.
  /// Throws   Error for what is no number of bits
  unsigned agree(unsigned bits) {
    const double own = bits;
    for (const double other : all_gather(std::span(&own, 1))) {
      if (!(other >= 0 && other <= std::numeric_limits<unsigned>::max()))
        fail<Error>("[comm] a rank agrees with ", other, "; expected bits, 0 to ",
                    std::numeric_limits<unsigned>::max());
      bits |= static_cast<unsigned>(other);
    }
    return bits;
  }

 protected:
  Ranks() = default;
  Ranks(const Ranks&) = default;
  Ranks& operator=(const Ranks&) = default;
};

/// The same with collectives between memory of devices. What they move is moved in Stream::links, behind all that
/// Stream::compute has been given so far, and before what it is given from then on, unless they say otherwise.
template <AnyDevice D>
class Communicator : public Ranks {
 public:
  /// After an error: nothing that is queued is waited for any more, since others may not come to it.
  virtual void abandon() noexcept {}

  /// In place: rank r gives [begins[r], begins[r + 1]) of the slab. Where `then` is Stream::copy, it comes behind what
  /// that has been given too, and only it has the slab from then on: kernels that need it wait for an event behind it.
  /// Shapes   slab (1, n)
  template <class T>
  void all_gather(D& dev, View<D, T> slab, std::span<const Index> begins, Stream then = Stream::compute) {
    gather(dev, bytes_of(slab), in_bytes(begins, sizeof(T)), then);
  }
  using Ranks::all_gather;
  /// The same of a slab that may lie in the host's memory beside the device's.
  template <AnyDevice S, class T>
  void all_gather_on(S& dev, View<S, T> slab, std::span<const Index> begins) {
    if constexpr (std::same_as<S, D>) {
      all_gather(dev, slab, begins);
    } else {
      static_assert(S::reads_host_memory);
      this->gather_on_host(std::as_writable_bytes(std::span(slab.data(), static_cast<std::size_t>(slab.size()))),
                           in_bytes(begins, sizeof(T)));
    }
  }

  /// parts[i] gets this rank's range of slab i, which rank owners[i] holds; `mine` are this rank's slabs, in order.
  /// Where `then` is Stream::links, nothing else waits for it: kernels that read parts, or write to slabs, wait for an
  /// event behind it.
  /// Shapes   slabs (1, n) · parts (1, begins[rank + 1] − begins[rank])
  template <class T>
  void exchange(D& dev, std::span<const View<D, T>> mine, std::span<const int> owners, std::span<const Index> begins,
                std::span<const View<D, T>> parts, Stream then = Stream::compute) {
    exchange_bytes(dev, all_bytes_of(mine), owners, in_bytes(begins, sizeof(T)), all_bytes_of(parts), then);
  }

 protected:
  using Bytes = View<D, std::byte>;

  virtual void gather(D& dev, Bytes slab, std::span<const Index> begins, Stream then) = 0;
  virtual void exchange_bytes(D& dev, std::span<const Bytes> mine, std::span<const int> owners,
                              std::span<const Index> begins, std::span<const Bytes> parts, Stream then) = 0;

 private:
  template <class T>
  static Bytes bytes_of(View<D, T> slab) {
    return {reinterpret_cast<std::byte*>(slab.data()), slab.size() * static_cast<Index>(sizeof(T))};
  }
  template <class T>
  static std::vector<Bytes> all_bytes_of(std::span<const View<D, T>> slabs) {
    std::vector<Bytes> result;
    for (const auto& slab : slabs) result.push_back(bytes_of(slab));
    return result;
  }
};

/// A single process.
template <AnyDevice D>
class Single final : public Communicator<D> {
  using typename Communicator<D>::Bytes;

 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void gather_on_host(std::span<std::byte>, std::span<const Index>) override {}

 protected:
  void gather(D&, Bytes, std::span<const Index>, Stream) override {}
  /// Throws   Error: there is no other rank, and the caller has its own slabs
  void exchange_bytes(D&, std::span<const Bytes>, std::span<const int>, std::span<const Index>, std::span<const Bytes>,
                      Stream) override {
    fail<Error>("[comm] one rank has nobody to exchange with");
  }
};

/// Where each rank's part of `blocks` blocks of `block` elements begins, and where the last ends: parts as even as
/// whole blocks allow.
inline std::vector<Index> even_parts(Index blocks, Index block, int ranks) {
  std::vector<Index> begins;
  for (Index r = 0; r <= ranks; ++r) begins.push_back(blocks * r / ranks * block);
  return begins;
}

}  // namespace lora::comm
