#pragma once

#include <condition_variable>
#include <cstring>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/core/format.hpp"
#include "lora/cpu/runtime/device.hpp"

namespace lora::test {

/// What threads that are ranks have in common.
class ThreadWorld {
 public:
  /// A call that all ranks must make: its name, and how many bytes it moves.
  struct Call {
    std::string_view name;
    Index bytes = 0;
    bool operator==(const Call&) const = default;
  };

  explicit ThreadWorld(int size)
      : size_(size), given_(static_cast<std::size_t>(size)), calls_(static_cast<std::size_t>(size)) {}

  int size() const { return size_; }

  /// What ended a rank, which the others are told.
  void fail_as(int rank, const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = concat("rank ", rank, " failed: ", why);
    arrived_.notify_all();
  }

  /// A rank makes no more calls.
  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    gone_ = rank;
    if (waiting_ > 0 && !failure_) failure_ = concat("rank ", rank, " has ended while others wait for it");
    arrived_.notify_all();
  }

  /// see(rank, what it has given), between two waits for all; what is seen is written to by nobody meanwhile.
  template <class See>
  void share(int own, const Call& call, const void* mine, const See& see) {
    given_[static_cast<std::size_t>(own)] = mine;
    calls_[static_cast<std::size_t>(own)] = call;
    wait();
    for (const Call& other : calls_)
      if (other != call)
        lora::fail<Error>("rank ", own, " is at ", call.name, " of ", call.bytes, " bytes, another at ", other.name,
                          " of ", other.bytes);
    for (int rank = 0; rank < size_; ++rank) see(rank, given_[static_cast<std::size_t>(rank)]);
    wait();
  }

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    const Index round = round_;
    const auto expect_whole = [&] {
      if (failure_) lora::fail<Error>(std::string_view(*failure_));
    };
    expect_whole();
    if (gone_) lora::fail<Error>("rank ", *gone_, " has ended, and others wait for it");
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
  std::vector<Call> calls_;
  std::optional<int> gone_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  int waiting_ = 0;
  Index round_ = 0;
  std::optional<std::string> failure_;
};

/// Ranks that are threads of this process: what one gives, the others read where it lies, or where a device has memory
/// of its own, in a copy on the host. A rank that ends by an error has the calls of the others fail.
template <AnyDevice D>
class ThreadRankOf final : public comm::Communicator<D> {
  using typename comm::Communicator<D>::Bytes;

 public:
  ThreadRankOf(ThreadWorld& world, int rank) : world_(world), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return world_.size(); }
  comm::Traffic traffic() const override { return traffic_; }

  void gather_on_host(std::span<std::byte> bytes, std::span<const Index> begins) override {
    world_.share(rank_, {"gather", begins.back()}, bytes.data(), [&](int rank, const void* given) {
      const Index begin = begins[static_cast<std::size_t>(rank)], end = begins[static_cast<std::size_t>(rank) + 1];
      if (rank == rank_) {
        traffic_.sent_bytes += static_cast<double>((end - begin) * (size() - 1));
      } else {
        copy(static_cast<const std::byte*>(given) + begin, end - begin, bytes.data() + begin);
        traffic_.received_bytes += static_cast<double>(end - begin);
      }
    });
  }

 protected:
  // In Stream::links, as devices do that are connected.
  void gather(D& dev, Bytes slab, std::span<const Index> begins, Stream then) override {
    if constexpr (D::reads_host_memory) {
      gather_on_host({slab.data(), static_cast<std::size_t>(slab.size())}, begins);
    } else {
      wait_and_release(dev, Stream::links, dev.record(Stream::compute));
      wait_and_release(dev, Stream::links, dev.record(then));
      const auto size = static_cast<std::size_t>(slab.size());
      const Index begin = begins[static_cast<std::size_t>(rank_)], end = begins[static_cast<std::size_t>(rank_) + 1];
      auto& host = moved_.emplace_back(size);
      dev.look_at(Stream::links, host.data() + begin, slab.data() + begin, static_cast<std::size_t>(end - begin));
      gather_on_host({host.data(), size}, begins);
      dev.copy_from_host(slab.data(), host.data(), size, Stream::links);
      wait_and_release(dev, then, dev.record(Stream::links));
    }
  }

  void exchange_bytes(D& dev, std::span<const Bytes> mine, std::span<const int> owners, std::span<const Index> begins,
                      std::span<const Bytes> parts, Stream then) override {
    const Index begin = begins[static_cast<std::size_t>(rank_)],
                count = begins[static_cast<std::size_t>(rank_) + 1] - begin;
    std::vector<std::byte*> given, taken;  // as the host has them
    if constexpr (!D::reads_host_memory) wait_and_release(dev, Stream::links, dev.record(Stream::compute));
    for (const Bytes& slab : mine) {
      given.push_back(host_of(slab));
      if constexpr (!D::reads_host_memory)
        dev.look_at(Stream::links, given.back() + begins.front(), slab.data() + begins.front(),
                    static_cast<std::size_t>(begins.back() - begins.front()));
    }
    for (const Bytes& part : parts) taken.push_back(host_of(part));
    world_.share(rank_, {"exchange", begins.back() * std::ssize(owners)}, &given, [&](int rank, const void* theirs) {
      auto slab = static_cast<const std::vector<std::byte*>*>(theirs)->begin();
      auto part = taken.begin();
      for (const int owner : owners) {
        if (owner == rank) {
          copy(*slab++ + begin, count, *part);
          if (rank == rank_)
            traffic_.sent_bytes += static_cast<double>(begins.back() - begins.front() - count);
          else
            traffic_.received_bytes += static_cast<double>(count);
        }
        ++part;
      }
    });
    if constexpr (!D::reads_host_memory) {
      for (std::size_t i = 0; i < parts.size(); ++i)
        dev.copy_from_host(parts[i].data(), taken[i], static_cast<std::size_t>(parts[i].size()), Stream::links);
      if (then != Stream::links) wait_and_release(dev, then, dev.record(Stream::links));
    }
  }

 private:
  static void copy(const std::byte* from, Index count, std::byte* to) {
    if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count));
  }

  // Where the host has a device's bytes, or will have them.
  std::byte* host_of(const Bytes& bytes) {
    if (D::reads_host_memory) return bytes.data();
    return moved_.emplace_back(static_cast<std::size_t>(bytes.size())).data();
  }

  ThreadWorld& world_;
  int rank_;
  comm::Traffic traffic_;
  std::list<std::vector<std::byte>> moved_;  // from which copies may still be on their way
};
using ThreadRank = ThreadRankOf<cpu::Device>;

/// Calls f(ThreadRankOf<D>&) as each of `ranks` ranks. Returns what each ended with: the text of its error, or nothing.
template <AnyDevice D = cpu::Device, class F>
std::vector<std::string> try_ranks(int ranks, const F& f) {
  ThreadWorld world(ranks);
  std::vector<std::thread> threads;
  std::vector<std::string> ends(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&world, &f, &end = ends[static_cast<std::size_t>(rank)], rank] {
      try {
        ThreadRankOf<D> self(world, rank);
        f(self);
        world.leave(rank);
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
template <AnyDevice D = cpu::Device, class F>
void run_ranks(int ranks, const F& f) {
  for (const std::string& end : try_ranks<D>(ranks, f))
    if (!end.empty()) fail<Error>(std::string_view(end));
}

}  // namespace lora::test
