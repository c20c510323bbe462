#pragma once

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/cpu/device.hpp"

namespace lora::test {

/// Ranks that are threads of this process: what one gives, the others read where it lies.
class ThreadRank {
 public:
  class World {
   public:
    explicit World(int size) : size_(size), barrier_(size), given_(static_cast<std::size_t>(size)) {}

   private:
    friend class ThreadRank;
    int size_;
    std::barrier<> barrier_;
    std::vector<const void*> given_;
  };

  ThreadRank(World& world, int rank) : world_(world), rank_(rank) {}

  int rank() const { return rank_; }
  int size() const { return world_.size_; }
  void barrier() { world_.barrier_.arrive_and_wait(); }

  std::vector<double> all_gather(std::span<const double> numbers) {
    std::vector<double> all;
    share(&numbers, [&](int, const void* given) {
      const auto& theirs = *static_cast<const std::span<const double>*>(given);
      all.insert(all.end(), theirs.begin(), theirs.end());
    });
    return all;
  }

  template <class T>
  void all_gather(cpu::Device&, View<cpu::Device, T> slab, std::span<const Index> begins) {
    share(slab.data(), [&](int rank, const void* given) {
      const Index begin = begins[static_cast<std::size_t>(rank)], end = begins[static_cast<std::size_t>(rank) + 1];
      if (rank != rank_) copy(static_cast<const T*>(given) + begin, end - begin, slab.data() + begin);
    });
  }

  template <class T>
  void exchange(cpu::Device&, std::span<const View<cpu::Device, T>> mine, std::span<const int> owners,
                std::span<const Index> begins, std::span<const View<cpu::Device, T>> parts) {
    const Index begin = begins[static_cast<std::size_t>(rank_)],
                count = begins[static_cast<std::size_t>(rank_) + 1] - begin;
    share(&mine, [&](int rank, const void* given) {
      auto theirs = static_cast<const std::span<const View<cpu::Device, T>>*>(given)->begin();
      for (std::size_t i = 0; i < owners.size(); ++i)
        if (owners[i] == rank) copy((theirs++)->data() + begin, count, parts[i].data());
    });
  }

  template <class T>
  void broadcast(cpu::Device&, View<cpu::Device, T> slab, int root) {
    share(slab.data(), [&](int rank, const void* given) {
      if (rank == root && rank != rank_) copy(static_cast<const T*>(given), slab.size(), slab.data());
    });
  }

  int agree(int status) {
    int largest = status;
    share(&status, [&](int, const void* given) { largest = std::max(largest, *static_cast<const int*>(given)); });
    return largest;
  }

 private:
  template <class T>
  static void copy(const T* from, Index count, T* to) {
    if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
  }

  // see(rank, what it has given), between two barriers; what is seen is written to by nobody meanwhile.
  template <class See>
  void share(const void* mine, const See& see) {
    world_.given_[static_cast<std::size_t>(rank_)] = mine;
    barrier();
    for (int rank = 0; rank < size(); ++rank) see(rank, world_.given_[static_cast<std::size_t>(rank)]);
    barrier();
  }

  World& world_;
  int rank_;
};

/// Calls f(ThreadRank&) as each of `ranks` ranks. One that throws would leave the others waiting, and so ends the test.
inline void run_ranks(int ranks, const std::function<void(ThreadRank&)>& f) {
  ThreadRank::World world(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&world, &f, rank] {
      try {
        ThreadRank self(world, rank);
        f(self);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        std::abort();
      }
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace lora::test
