#pragma once

#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/core/format.hpp"
#include "lora/cpu/device.hpp"

namespace lora::test {

/// Ranks that are threads of this process: what one gives, the others read where it lies. A rank that ends by an error
/// has the calls of the others fail.
class ThreadRank final : public comm::Communicator<cpu::Device> {
 public:
  class World {
   public:
    explicit World(int size) : size_(size), given_(static_cast<std::size_t>(size)) {}

    /// What ended a rank, which the others are told.
    void fail_as(int rank, const std::string& why) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = concat("rank ", rank, " failed: ", why);
      arrived_.notify_all();
    }

   private:
    friend class ThreadRank;

    void wait() {
      std::unique_lock lock(mutex_);
      const Index round = round_;
      const auto expect_whole = [&] {
        if (failure_) lora::fail<Error>(std::string_view(*failure_));
      };
      expect_whole();
      if (++waiting_ == size_) {
        waiting_ = 0;
        ++round_;
        arrived_.notify_all();
      } else {
        arrived_.wait(lock, [&] { return round_ != round || failure_; });
        if (round_ == round) expect_whole();  // else all had arrived before one failed
      }
    }

    int size_;
    std::vector<const void*> given_;
    std::mutex mutex_;
    std::condition_variable arrived_;
    int waiting_ = 0;
    Index round_ = 0;
    std::optional<std::string> failure_;
  };

  ThreadRank(World& world, int rank) : world_(world), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return world_.size_; }

  void gather_on_host(std::span<std::byte> bytes, std::span<const Index> begins) override {
    share(bytes.data(), [&](int rank, const void* given) {
      const Index begin = begins[static_cast<std::size_t>(rank)], end = begins[static_cast<std::size_t>(rank) + 1];
      if (rank != rank_) copy(static_cast<const std::byte*>(given) + begin, end - begin, bytes.data() + begin);
    });
  }

 protected:
  void gather(cpu::Device&, Bytes slab, std::span<const Index> begins) override {
    gather_on_host({slab.data(), static_cast<std::size_t>(slab.size())}, begins);
  }

  void exchange_bytes(cpu::Device&, std::span<const Bytes> mine, std::span<const int> owners,
                      std::span<const Index> begins, std::span<const Bytes> parts) override {
    const Index begin = begins[static_cast<std::size_t>(rank_)],
                count = begins[static_cast<std::size_t>(rank_) + 1] - begin;
    share(&mine, [&](int rank, const void* given) {
      auto theirs = static_cast<const std::span<const Bytes>*>(given)->begin();
      for (std::size_t i = 0; i < owners.size(); ++i)
        if (owners[i] == rank) copy((theirs++)->data() + begin, count, parts[i].data());
    });
  }

 private:
  static void copy(const std::byte* from, Index count, std::byte* to) {
    if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count));
  }

  // see(rank, what it has given), between two waits for all; what is seen is written to by nobody meanwhile.
  template <class See>
  void share(const void* mine, const See& see) {
    world_.given_[static_cast<std::size_t>(rank_)] = mine;
    world_.wait();
    for (int rank = 0; rank < size(); ++rank) see(rank, world_.given_[static_cast<std::size_t>(rank)]);
    world_.wait();
  }

  World& world_;
  int rank_;
};

/// Calls f(ThreadRank&) as each of `ranks` ranks. Returns what each ended with: the text of its error, or nothing.
inline std::vector<std::string> try_ranks(int ranks, const std::function<void(ThreadRank&)>& f) {
  ThreadRank::World world(ranks);
  std::vector<std::thread> threads;
  std::vector<std::string> ends(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&world, &f, &end = ends[static_cast<std::size_t>(rank)], rank] {
      try {
        ThreadRank self(world, rank);
        f(self);
      } catch (const std::exception& error) {
        end = error.what();
        world.fail_as(rank, end);
      }
    });
  for (auto& thread : threads) thread.join();
  return ends;
}

/// The same where none may fail.
/// Throws   Error with what the first one says that did
inline void run_ranks(int ranks, const std::function<void(ThreadRank&)>& f) {
  for (const std::string& end : try_ranks(ranks, f))
    if (!end.empty()) fail<Error>(std::string_view(end));
}

}  // namespace lora::test
