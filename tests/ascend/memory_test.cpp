// Where the Ascend backend keeps memory, and what it remembers of it, by a runtime that only counts.

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lora/ascend/runtime/address_space.hpp"
#include "lora/ascend/runtime/host_copies.hpp"
#include "lora/ascend/runtime/memory_pool.hpp"
#include "lora/ascend/runtime/relay.hpp"
#include "lora/core/random.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"

namespace ascend_memory_test {

namespace {

using namespace lora;
using namespace lora::test;

constexpr std::uintptr_t mib = std::uintptr_t{1} << 20;

/// Addresses of a card that nobody reads.
struct Card {
  std::uintptr_t next = 64 * mib;
  std::map<std::uintptr_t, std::size_t> blocks, reserved, mapped;
  std::map<void*, std::size_t> physical;
  std::size_t room = ~std::size_t{0}, taken = 0;
  bool grows = true;

  bool take(std::size_t bytes) {
    if (bytes > room - taken) return false;
    taken += bytes;
    return true;
  }
};
Card* card = nullptr;

/// A runtime for the card of this test.
struct Fake {
  Card here;
  ascend::Runtime runtime;

  Fake() {
    card = &here;
    runtime.aclrtMallocAlign32 = [](void** memory, std::size_t bytes, ascend::aclrtMemMallocPolicy) {
      if (!card->take(bytes)) return ascend::ACL_ERROR_RT_MEMORY_ALLOCATION;
      *memory = reinterpret_cast<void*>(card->next);
      card->blocks[card->next] = bytes;
      card->next += (bytes / mib + 2) * mib;
      return 0;
    };
    runtime.aclrtFree = [](void* memory) {
      const auto found = card->blocks.find(reinterpret_cast<std::uintptr_t>(memory));
      REQUIRE(found != card->blocks.end());
      card->taken -= found->second;
      card->blocks.erase(found);
      return 0;
    };
    runtime.aclrtReserveMemAddress = [](void** memory, std::size_t bytes, std::size_t alignment, void* expected,
                                        std::uint64_t flags) {
      CHECK(flags == 1);
      CHECK(alignment == 0);  // the runtime's own
      CHECK(expected == nullptr);
      if (!card->grows) return ascend::ACL_ERROR_RT_FEATURE_NOT_SUPPORT;
      *memory = reinterpret_cast<void*>(card->next);
      card->reserved[card->next] = bytes;
      card->next += (bytes / mib + 2) * mib;
      return 0;
    };
    runtime.aclrtReleaseMemAddress = [](void* memory) {
      CHECK(card->mapped.empty());
      CHECK(card->reserved.erase(reinterpret_cast<std::uintptr_t>(memory)) == 1);
      return 0;
    };
    runtime.aclrtMallocPhysical = [](ascend::aclrtDrvMemHandle* handle, std::size_t bytes,
                                     const ascend::aclrtPhysicalMemProp* property, std::uint64_t flags) {
      CHECK(property->handleType == ascend::ACL_MEM_HANDLE_TYPE_NONE);
      CHECK(property->allocationType == ascend::ACL_MEM_ALLOCATION_TYPE_PINNED);
      CHECK(property->memAttr == ascend::ACL_HBM_MEM_HUGE);
      CHECK(property->location.id == 3);
      CHECK(property->location.type == ascend::ACL_MEM_LOCATION_TYPE_DEVICE);
      CHECK(property->reserve == 0);
      CHECK(flags == 0);
      if (!card->take(bytes)) return ascend::ACL_ERROR_RT_MEMORY_ALLOCATION;
      *handle = reinterpret_cast<void*>(card->next++);
      card->physical[*handle] = bytes;
      return 0;
    };
    runtime.aclrtFreePhysical = [](ascend::aclrtDrvMemHandle handle) {
      REQUIRE(card->physical.count(handle) == 1);
      card->taken -= card->physical[handle];
      card->physical.erase(handle);
      return 0;
    };
    runtime.aclrtMapMem = [](void* memory, std::size_t bytes, std::size_t offset, ascend::aclrtDrvMemHandle handle,
                             std::uint64_t flags) {
      CHECK(offset == 0);
      CHECK(flags == 0);
      CHECK(card->physical.at(handle) == bytes);
      const auto begin = reinterpret_cast<std::uintptr_t>(memory);
      CHECK(begin % (2 * mib) == card->reserved.begin()->first % (2 * mib));
      for (const auto& [other, size] : card->mapped) CHECK((begin + bytes <= other || other + size <= begin));
      card->mapped[begin] = bytes;
      return 0;
    };
    runtime.aclrtUnmapMem = [](void* memory) {
      CHECK(card->mapped.erase(reinterpret_cast<std::uintptr_t>(memory)) == 1);
      return 0;
    };
  }
  ~Fake() {
    CHECK(here.blocks.empty());
    CHECK(here.reserved.empty());
    CHECK(here.mapped.empty());
    CHECK(here.physical.empty());
    CHECK(here.taken == 0);
    card = nullptr;
  }
};

}  // namespace

TEST_CASE("ascend pool: pieces lie on 512 bytes, with 32 behind them that nobody else has, inside of what was taken") {
  Fake fake;
  ascend::MemoryPool pool(fake.runtime);
  Random random(1);
  std::map<std::uintptr_t, std::size_t> live;
  std::size_t most = 0;
  for (int round = 0; round < 3000; ++round) {
    if (live.size() < 40 && (live.empty() || random.below(5) > 1)) {
      const auto bytes = static_cast<std::size_t>(random.below(8) == 0 ? random.below(9'000'000) : random.below(3000));
      ascend::aclError error = 0;
      const auto begin = reinterpret_cast<std::uintptr_t>(pool.allocate(bytes, error));
      REQUIRE(begin != 0);
      REQUIRE(begin % 512 == 0);
      const std::size_t size = bytes + 32;
      const auto next = live.lower_bound(begin);
      REQUIRE((next == live.end() || begin + size <= next->first));
      REQUIRE((next == live.begin() || std::prev(next)->first + std::prev(next)->second <= begin));
      const auto block = std::prev(fake.here.blocks.upper_bound(begin));
      REQUIRE(begin + size <= block->first + block->second);
      live[begin] = size;
    } else {
      const auto at = std::next(live.begin(), random.below(static_cast<std::uint32_t>(live.size())));
      pool.free(reinterpret_cast<void*>(at->first));
      live.erase(at);
    }
    std::size_t used = 0;
    for (const auto& [begin, size] : live) used += (size + 511) / 512 * 512;
    REQUIRE(pool.used() == used);
    REQUIRE(pool.used() + pool.cached() == fake.here.taken);
    most = std::max(most, used);
    REQUIRE(pool.peak() == most);
    if (round % 100 == 99) pool.release();
    for (const auto& [begin, size] : live) {
      const auto block = fake.here.blocks.upper_bound(begin);
      REQUIRE(block != fake.here.blocks.begin());
      REQUIRE(begin + size <= std::prev(block)->first + std::prev(block)->second);
    }
  }
  for (const auto& [begin, size] : live) pool.free(reinterpret_cast<void*>(begin));
  CHECK(pool.used() == 0);
  pool.release();
  CHECK(fake.here.taken == 0);
  CHECK(pool.cached() == 0);
}

TEST_CASE("ascend pool: free neighbors become one piece, and the runtime's error comes out where there is no more") {
  Fake fake;
  ascend::MemoryPool pool(fake.runtime);
  ascend::aclError error = 0;
  std::vector<void*> pieces;
  constexpr std::size_t size = 3 * mib / 2;
  for (int i = 0; i < 10; ++i) pieces.push_back(pool.allocate(size, error));
  CHECK(fake.here.blocks.size() == 1);  // small ones share
  for (const int i : {1, 3, 2, 0, 9, 8, 5, 7, 6, 4}) pool.free(pieces[static_cast<std::size_t>(i)]);
  void* const large = pool.allocate(2 * mib - 32, error);
  CHECK(large == pieces[0]);
  CHECK(fake.here.blocks.size() == 1);
  fake.here.room = fake.here.taken;
  CHECK(pool.allocate(20 * mib, error) == nullptr);
  CHECK(error == ascend::ACL_ERROR_RT_MEMORY_ALLOCATION);
  pool.release();
  CHECK(fake.here.blocks.size() == 1);  // it is in use
  pool.free(large);
  pool.release();
  CHECK(fake.here.blocks.empty());
  fake.here.room = ~std::size_t{0};
  // What is large has a block of its own, which goes back when the pool goes.
  error = 0;
  for (const std::size_t bytes : {5 * mib, 7 * mib}) CHECK(pool.allocate(bytes, error) != nullptr);
  CHECK(fake.here.blocks.size() == 2);
  CHECK(fake.here.taken == 14 * mib);
}

TEST_CASE("ascend addresses: they get memory once and piece by piece, and give all of it back") {
  Fake fake;
  {
    ascend::AddressSpace space(fake.runtime, 3, 21 * mib, 8 * mib);
    CHECK(space.grows());
    CHECK(space.bytes() == 20 * mib);
    CHECK(fake.here.reserved.begin()->second == 20 * mib);
    CHECK(reinterpret_cast<std::uintptr_t>(space.memory()) == fake.here.reserved.begin()->first);
    CHECK(fake.here.taken == 2 * mib);
    CHECK(space.grow(4 * mib, 4 * mib) == 0);  // nothing
    CHECK(space.grow(0, 2 * mib) == 0);        // which it has
    CHECK(fake.here.taken == 2 * mib);
    CHECK(space.grow(0, 6 * mib) == 0);
    CHECK(fake.here.taken == 6 * mib);
    CHECK(space.grow(18 * mib, 20 * mib) == 0);
    fake.here.room = 8 * mib;
    CHECK(space.grow(6 * mib, 8 * mib) == ascend::ACL_ERROR_RT_MEMORY_ALLOCATION);
    CHECK(fake.here.mapped.size() == 3);
  }
  CHECK(fake.here.taken == 0);
}

TEST_CASE("ascend addresses: a piece that can't be mapped is given back") {
  Fake fake;
  ascend::AddressSpace space(fake.runtime, 3, 20 * mib, 8 * mib);
  fake.runtime.aclrtMapMem = [](void*, std::size_t, std::size_t, ascend::aclrtDrvMemHandle, std::uint64_t) {
    return 107000;
  };
  CHECK(space.grow(2 * mib, 4 * mib) == 107000);
  CHECK(fake.here.taken == 2 * mib);
}

TEST_CASE("ascend addresses: where the runtime can't let them grow, or has no memory for it, they are one block") {
  for (const bool grows : {true, false}) {
    Fake fake;
    fake.here.grows = grows;
    if (grows)
      fake.runtime.aclrtMallocPhysical = [](ascend::aclrtDrvMemHandle*, std::size_t,
                                            const ascend::aclrtPhysicalMemProp*, std::uint64_t) { return 207001; };
    {
      const Quiet quiet;
      const ascend::AddressSpace space(fake.runtime, 3, 20 * mib, 9 * mib);
      CHECK(quiet.text == concat("[ascend] NPU 3 has no addresses that get memory as work grows (error ",
                                 grows ? 207001 : 207000, "): 9 MiB are set aside for work from the start\n"));
      CHECK_FALSE(space.grows());
      CHECK(space.memory() == reinterpret_cast<void*>(fake.here.blocks.begin()->first));
      CHECK(fake.here.taken == 8 * mib);
      CHECK(space.bytes() == 8 * mib);
      CHECK(fake.here.blocks.size() == 1);
      CHECK(fake.here.reserved.empty());
    }
    fake.here.room = 1;
    const Quiet quiet;
    const std::string text =
        message_of<DeviceError>([&] { const ascend::AddressSpace space(fake.runtime, 3, 20 * mib, 9 * mib); });
    CHECK(text ==
          "[ascend] NPU 3: no memory for work that grows, 8 MiB were asked for: error 207001; npu-smi info shows who "
          "uses it");
  }
}

TEST_CASE("ascend host copies: the last copy to a place is what it holds, until it is freed or copied over in part") {
  ascend::HostCopies copies;
  std::byte memory[64]{};
  const auto text = [&](std::size_t offset, std::size_t bytes) {
    const auto found = copies.find(memory + offset, bytes);
    return std::string(reinterpret_cast<const char*>(found.data()), found.size());
  };
  copies.note(memory, "abcdefgh", 8, false);
  const auto first = copies.number_of(memory, 8);
  CHECK(first != 0);
  CHECK(text(0, 8) == "abcdefgh");
  CHECK(text(2, 3) == "cde");
  CHECK(copies.number_of(memory + 2, 3) == first);
  CHECK(text(2, 7).empty());  // more than came
  CHECK(copies.number_of(memory + 2, 7) == 0);
  CHECK(text(8, 1).empty());
  copies.note(memory + 8, "ijkl", 4, false);
  CHECK(text(0, 8) == "abcdefgh");
  CHECK(text(4, 8).empty());  // of two copies
  CHECK(copies.number_of(memory + 8, 4) > first);
  copies.note(memory + 7, "XY", 2, false);  // in both
  CHECK(text(0, 2).empty());
  CHECK(text(9, 2).empty());
  CHECK(text(7, 2) == "XY");
  copies.note(memory, "abcdefgh", 8, false);  // the same bytes are another copy
  CHECK(copies.number_of(memory, 8) > first);
  copies.forget(memory + 3, 1);
  CHECK(copies.number_of(memory, 8) == 0);
  copies.note(memory + 16, "mnop", 4, false);
  copies.forget(memory, 16);
  CHECK(text(16, 4) == "mnop");
  // Of what is large the number alone is kept; numbers of a micro-batch may be larger.
  const std::vector<std::byte> large(ascend::HostCopies::other_bytes + 1);
  copies.note(memory + 32, large.data(), large.size(), false);
  CHECK(copies.find(memory + 32, 4).empty());
  CHECK(copies.number_of(memory + 32, 4) != 0);
  copies.note(memory + 32, large.data(), large.size(), true);
  CHECK(copies.find(memory + 32, 4).size() == 4);
  const std::vector<std::byte> larger(ascend::HostCopies::staged_bytes + 1);
  copies.note(memory + 32, larger.data(), larger.size(), true);
  CHECK(copies.find(memory + 32, 4).empty());
}

TEST_CASE("ascend memory: a small piece is had where less is left than pieces share") {
  Fake fake;
  ascend::MemoryPool pool(fake.runtime);
  fake.here.room = 4 * mib;
  ascend::aclError error = 0;
  void* const first = pool.allocate(100, error);
  CHECK(first != nullptr);
  CHECK(fake.here.taken == 2 * mib);
  CHECK(pool.allocate(3 * mib, error) == nullptr);
  CHECK(error == ascend::ACL_ERROR_RT_MEMORY_ALLOCATION);
  pool.free(first);
}

TEST_CASE("ascend pool: what a large page holds shares a segment, and what is larger has its own, in whole pages") {
  {
    Fake fake;
    ascend::MemoryPool pool(fake.runtime);
    ascend::aclError error = 0;
    REQUIRE(pool.allocate(2 * mib - 31, error) != nullptr);
    CHECK(fake.here.taken == 4 * mib);
  }
  Fake fake;
  ascend::MemoryPool pool(fake.runtime);
  const auto taken = [&](std::size_t bytes) {
    ascend::aclError error = 0;
    const std::size_t before = fake.here.taken;
    REQUIRE(pool.allocate(bytes, error) != nullptr);
    CHECK(error == 0);
    return fake.here.taken - before;
  };
  // With the 32 bytes behind them, in units of 512.
  CHECK(taken(2 * mib - 32) == 16 * mib);
  CHECK(taken(12 * mib - 32) == 0);  // which is left of it
  CHECK(taken(4 * mib - 31) == 6 * mib);
  CHECK(taken(4 * mib - 32) == 4 * mib);
  CHECK(pool.used() == 22 * mib + 512);
  CHECK(pool.cached() == 4 * mib - 512);
}

TEST_CASE("ascend pool: of the free pieces that are large enough the smallest is taken") {
  Fake fake;
  ascend::MemoryPool pool(fake.runtime);
  ascend::aclError error = 0;
  REQUIRE(pool.allocate(100, error) != nullptr);                                        // leaves nearly 16 MiB
  const auto large = reinterpret_cast<std::uintptr_t>(pool.allocate(40 * mib, error));  // leaves nearly 2 MiB
  CHECK(fake.here.taken == 58 * mib);
  CHECK(reinterpret_cast<std::uintptr_t>(pool.allocate(mib, error)) == large + 40 * mib + 512);
  CHECK(fake.here.taken == 58 * mib);
}

TEST_CASE("ascend pool: segments that lie end to end stay apart, and go back each by itself") {
  Fake fake;
  fake.runtime.aclrtMallocAlign32 = [](void** memory, std::size_t bytes, ascend::aclrtMemMallocPolicy policy) {
    CHECK(policy == ascend::ACL_MEM_MALLOC_HUGE_FIRST);
    REQUIRE(card->take(bytes));
    *memory = reinterpret_cast<void*>(card->next);
    card->blocks[card->next] = bytes;
    card->next += bytes;
    return 0;
  };
  for (const bool first_goes_first : {true, false}) {
    ascend::MemoryPool pool(fake.runtime);
    ascend::aclError error = 0;
    void* const first = pool.allocate(4 * mib - 32, error);
    void* const second = pool.allocate(4 * mib - 32, error);
    REQUIRE(static_cast<std::byte*>(second) - static_cast<std::byte*>(first) == 4 * mib);
    pool.free(first_goes_first ? first : second);
    pool.free(first_goes_first ? second : first);
    CHECK(pool.cached() == 8 * mib);
    void* const wider = pool.allocate(6 * mib - 32, error);
    CHECK(fake.here.taken == 14 * mib);
    pool.release();
    CHECK(fake.here.taken == 6 * mib);
    CHECK(pool.cached() == 0);
    pool.free(wider);
  }
}

TEST_CASE("ascend pool: where memory is short a small piece is asked for twice, and a large one once") {
  Fake fake;
  static std::vector<std::size_t> asked;
  asked.clear();
  fake.runtime.aclrtMallocAlign32 = [](void**, std::size_t bytes, ascend::aclrtMemMallocPolicy) {
    asked.push_back(bytes);
    return ascend::ACL_ERROR_RT_MEMORY_ALLOCATION + static_cast<int>(asked.size());
  };
  ascend::MemoryPool pool(fake.runtime);
  ascend::aclError error = 0;
  CHECK(pool.allocate(100, error) == nullptr);
  CHECK(asked == std::vector<std::size_t>{16 * mib, 2 * mib});
  CHECK(error == ascend::ACL_ERROR_RT_MEMORY_ALLOCATION + 2);  // that of the last time
  CHECK(pool.allocate(5 * mib, error) == nullptr);
  CHECK(asked.size() == 3);
  CHECK(asked[2] == 6 * mib);
  CHECK(pool.used() == 0);
  CHECK(pool.peak() == 0);
}

TEST_CASE("ascend host copies: a copy of nothing changes nothing, and one that is just small enough is kept") {
  ascend::HostCopies copies;
  std::byte memory[64]{};
  const auto kept = [&](std::size_t offset, std::size_t bytes) { return copies.find(memory + offset, bytes).size(); };
  copies.note(memory + 4, "abcdefgh", 8, false);
  copies.note(memory + 6, "", 0, false);
  CHECK(kept(4, 8) == 8);
  CHECK(copies.number_of(memory + 6, 0) == copies.number_of(memory + 4, 8));
  CHECK(kept(3, 2) == 0);  // it begins before
  CHECK(copies.number_of(memory + 3, 2) == 0);
  copies.note(memory + 12, "ijkl", 4, true);
  copies.note(memory + 16, "mnop", 4, true);
  const auto last = copies.number_of(memory + 16, 4);
  copies.forget(memory + 11, 2);  // the ends of two of them
  CHECK(kept(4, 8) == 0);
  CHECK(kept(12, 4) == 0);
  CHECK(kept(16, 4) == 4);
  copies.note(memory, std::string(17, 'x').data(), 17, false);
  CHECK(kept(16, 4) == 0);
  CHECK(copies.number_of(memory, 17) == last + 1);
  const std::vector<std::byte> whole(ascend::HostCopies::other_bytes);
  copies.note(memory + 32, whole.data(), whole.size(), false);
  CHECK(kept(32, whole.size()) == std::size_t{1} << 20);
  CHECK(ascend::HostCopies::staged_bytes == std::size_t{64} << 20);
}

namespace {

/// A device whose copies are done when somebody waits for an event behind them, and not before.
struct Late {
  struct Work {
    std::int64_t event;
    std::function<void()> copy;
  };
  std::deque<Work> queue;
  std::set<std::int64_t> events;
  std::map<void*, std::vector<std::byte>> locked;
  std::function<void()> last;
  std::int64_t next = 0;
  int waits = 0;
  Stream stream = Stream::compute;

  void* allocate_host(std::size_t bytes) {
    std::vector<std::byte> memory(bytes);
    void* const address = memory.data();
    locked.emplace(address, std::move(memory));
    return address;
  }
  void free_host(void* memory, std::size_t bytes) {
    CHECK(locked.at(memory).size() == bytes);
    locked.erase(memory);
  }
  Event record(Stream of) {
    CHECK(of == stream);
    events.insert(++next);
    queue.push_back({next, std::exchange(last, nullptr)});
    return {next};
  }
  void release(Event event) { CHECK(events.erase(event.number) == 1); }
  bool is_done(Event event) const {
    for (const Work& work : queue)
      if (work.event == event.number) return false;
    return true;
  }
  void wait(Event event) {
    ++waits;
    while (!is_done(event)) {
      queue.front().copy();
      queue.pop_front();
    }
  }
  void start_copy_to_host(std::byte* target, const std::byte* source, std::size_t bytes, Stream of) {
    CHECK(of == stream);
    last = [=] { std::memcpy(target, source, bytes); };
  }
};

}  // namespace

TEST_CASE("ascend relay: copies of every length go by two chunks, one of which is at work while the other is used") {
  constexpr std::size_t chunk = ascend::Relay<Late>::chunk_bytes;
  CHECK(chunk == std::size_t{4} << 20);
  std::vector<std::byte> numbers(3 * chunk + 5);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::byte>(i % 251);
  for (const bool to_host : {false, true}) {
    CAPTURE(to_host);
    Late dev;
    ascend::Relay<Late> relay;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, chunk - 1, chunk, chunk + 1, 2 * chunk,
                                    2 * chunk + 3, 3 * chunk, 3 * chunk + 5}) {
      CAPTURE(bytes);
      std::vector<std::byte> source(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(bytes)),
          target(bytes + 1, std::byte{255});
      dev.waits = 0;
      const auto chunks = (bytes + chunk - 1) / chunk;
      if (to_host) {
        dev.stream = Stream::compute;
        relay.copy_to_host(dev, target.data(), source.data(), bytes);
        CHECK(dev.queue.empty());  // it is there now
        CHECK(dev.waits == static_cast<int>(chunks));
      } else {
        dev.stream = Stream::copy;
        relay.copy_from_host(dev, target.data(), source.data(), bytes, Stream::copy,
                             [&](std::byte* to, const std::byte* from, std::size_t size) {
                               dev.last = [=] { std::memcpy(to, from, size); };
                             });
        std::fill(source.begin(), source.end(), std::byte{7});  // which may change at once
        CHECK(dev.queue.size() == std::min<std::size_t>(chunks, 2));
        CHECK(dev.waits == static_cast<int>(chunks > 2 ? chunks - 2 : 0));
        while (!dev.queue.empty()) {
          dev.queue.front().copy();
          dev.queue.pop_front();
        }
      }
      CHECK(std::equal(target.begin(), target.end() - 1, numbers.begin()));
      CHECK(target.back() == std::byte{255});
      CHECK(dev.locked.size() <= 2);
    }
    CHECK(dev.locked.size() == 2);
    relay.release(dev);
    CHECK(dev.locked.empty());
    CHECK(dev.events.empty());
    relay.release(dev);  // of nothing more
  }
}

}  // namespace ascend_memory_test
