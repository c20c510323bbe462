#include "lora/tensor/arena.hpp"

#include <doctest/doctest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "support/message_of.hpp"
#include "support/process.hpp"

namespace arena_test {

namespace {

using namespace lora;

/// An arena over 64 KiB of its own.
struct Fixture {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> memory{1024};
  Arena arena{memory.data(), memory.size() * sizeof(Line), true};
};

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % Arena::alignment == 0; }

}  // namespace

TEST_CASE("arena: two stacks, every piece on 64 bytes, none over another") {
  Fixture f;
  auto* const a = static_cast<std::byte*>(f.arena.save(1));
  auto* const b = static_cast<std::byte*>(f.arena.save(65));
  const Arena::Scope scope(f.arena);
  auto* const c = static_cast<std::byte*>(f.arena.scratch(1));
  auto* const d = static_cast<std::byte*>(f.arena.scratch(65));
  for (const auto* piece : {a, b, c, d}) CHECK(aligned(piece));
  CHECK(b - a >= 64);
  CHECK(c - d >= 128);
  CHECK(d - b >= 128);
}

TEST_CASE("arena: it tells the most that was free since it was last asked") {
  alignas(64) std::array<std::byte, 1024> memory{};
  Arena arena(memory.data(), memory.size(), false);
  const auto is = [](const Arena::Range& range, std::size_t begin, std::size_t end) {
    return range.begin == begin && range.end == end;
  };
  arena.save(64);
  const Arena::Scope scope(arena);
  arena.scratch(64);
  CHECK(is(arena.take_widest_free_range(), 0, 1024));
  CHECK(is(arena.take_widest_free_range(), 64, 960));
  arena.save(128);
  {
    const Arena::Scope inner(arena);
    arena.scratch(256);
    CHECK(is(arena.free_range(), 192, 704));
    CHECK(is(arena.take_widest_free_range(), 64, 960));
  }
  arena.release(64);
  arena.save(64);
  arena.scratch(64);
  CHECK(is(arena.free_range(), 128, 896));
  CHECK(is(arena.take_widest_free_range(), 64, 960));
  CHECK(is(arena.take_widest_free_range(), 128, 896));
}

TEST_CASE("arena: release and the end of a scope give back what came after") {
  Fixture f;
  f.arena.save(100);
  const std::size_t mark = f.arena.mark();
  void* const first = f.arena.save(200);
  f.arena.save(300);
  f.arena.release(mark);
  CHECK(f.arena.mark() == mark);
  CHECK(f.arena.save(10) == first);

  void* inner = nullptr;
  {
    const Arena::Scope outer(f.arena);
    f.arena.scratch(100);
    const std::size_t held = f.arena.scratch_bytes();
    {
      const Arena::Scope scope(f.arena);
      inner = f.arena.scratch(500);
      CHECK(f.arena.scratch_bytes() > held);
    }
    CHECK(f.arena.scratch_bytes() == held);
    CHECK(f.arena.scratch(500) == inner);
  }
  CHECK(f.arena.scratch_bytes() == 0);
}

TEST_CASE("arena: a scope of saved pieces releases them also where it is left by an exception, or leaves them there") {
  Fixture f;
  Arena& arena = f.arena;
  arena.save(64);
  const std::size_t before = arena.saved_bytes();
  try {
    const Arena::SavedScope scope(arena);
    arena.save(128);
    CHECK(arena.saved_bytes() > before);
    throw Error("left");
  } catch (const Error&) {}
  CHECK(arena.saved_bytes() == before);
  {
    const Arena::SavedScope scope(arena, false);
    arena.save(128);
  }
  CHECK(arena.saved_bytes() > before);
  arena.release(0);
}

TEST_CASE("arena: the peaks are the most that was ever held") {
  Fixture f;
  f.arena.save(6400);
  f.arena.release(0);
  f.arena.save(64);
  {
    const Arena::Scope scope(f.arena);
    f.arena.scratch(1280);
  }
  CHECK(f.arena.peak_saved() >= 6400);
  CHECK(f.arena.peak_saved() <= 6400 + 64);
  CHECK(f.arena.peak_scratch() >= 1280);
  CHECK(f.arena.peak_scratch() <= 1280 + 64);
  CHECK(f.arena.peak() == f.arena.peak_saved() + f.arena.peak_scratch());
  CHECK(f.arena.saved_bytes() <= 128);
}

TEST_CASE("arena: what does not fit is refused and changes nothing") {
  Fixture f;
  f.arena.save(40000);
  const Arena::Scope scope(f.arena);
  f.arena.scratch(20000);
  const std::size_t saved = f.arena.saved_bytes(), scratch = f.arena.scratch_bytes();
  CHECK_THROWS_AS(f.arena.save(6000), DeviceError);
  CHECK_THROWS_AS(f.arena.scratch(6000), DeviceError);
  CHECK_THROWS_AS(f.arena.scratch(std::size_t{1} << 50), DeviceError);
  CHECK(f.arena.saved_bytes() == saved);
  CHECK(f.arena.scratch_bytes() == scratch);
  f.arena.save(4000);
}

TEST_CASE("arena: what fits exactly is taken, and what does not is told with what is free") {
  alignas(64) std::array<std::byte, 1000> memory{};
  Arena arena(memory.data(), memory.size(), false);
  CHECK(arena.capacity() == 960);  // whole lines
  arena.save(256);
  const Arena::Scope scope(arena);
  const auto said = [](auto&& call) { return test::message_of<DeviceError>(call); };
  const std::string end = " of 960 are free; use smaller micro-batches or gradient checkpointing";
  CHECK(said([&] { arena.scratch(705); }) == "[arena] 768 bytes do not fit: 704" + end);
  CHECK(said([&] { arena.save(705); }) == "[arena] 768 bytes do not fit: 704" + end);
  arena.scratch(704);
  CHECK(arena.free_range().begin == arena.free_range().end);
  CHECK(said([&] { arena.save(1); }) == "[arena] 64 bytes do not fit: 0" + end);
  CHECK((arena.saved_bytes() == 256 && arena.scratch_bytes() == 704 && arena.peak() == 960));
}

TEST_CASE("arena: a piece is whole lines with the tail that kernels may touch, and its band") {
  constexpr Arena::Padding plain{}, tail{32, 0}, both{32, 64};
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{64}}) CHECK(plain(bytes) == 64);
  CHECK(plain(65) == 128);
  CHECK(tail(32) == 64);
  CHECK(tail(33) == 128);
  CHECK(both(32) == 128);
  CHECK(both(33) == 192);
  alignas(64) std::array<std::byte, 1024> memory{};
  Arena arena(memory.data(), memory.size(), false, {}, 64, 32);
  CHECK((arena.padding().tail == 32 && arena.padding().band == 0));
  arena.save(33);
  CHECK(arena.saved_bytes() == 128);
}

TEST_CASE("arena: pieces of no bytes are pieces") {
  Fixture f;
  CHECK(f.arena.save(0) != f.arena.save(0));
}

TEST_CASE("arena: address space is given memory from both ends, each unit once, and keeps it") {
  using Pieces = std::vector<std::pair<std::size_t, std::size_t>>;
  Pieces grown;
  std::vector<Fixture::Line> memory(1000);
  Arena arena(
      memory.data(), 1000 * 64, false, [&](std::size_t begin, std::size_t end) { grown.emplace_back(begin, end); },
      100 * 64);
  const auto taken = [&] { return std::exchange(grown, {}); };
  arena.save(64);
  CHECK(taken() == Pieces{{0, 6400}});
  arena.save(99 * 64);
  CHECK(taken().empty());
  arena.save(64);
  CHECK(taken() == Pieces{{6400, 12800}});
  arena.release(0);
  arena.save(12800);
  CHECK(taken().empty());
  const Arena::Scope scope(arena);
  {
    const Arena::Scope inner(arena);
    arena.scratch(101 * 64);
    CHECK(taken() == Pieces{{51200, 64000}});
  }
  arena.scratch(200 * 64);
  CHECK(taken().empty());
  arena.scratch(550 * 64);
  CHECK(taken() == Pieces{{12800, 51200}});  // down to the middle of a unit that the other end may need
  CHECK(arena.ungrown_range().begin == arena.ungrown_range().end);
  arena.save(50 * 64);
  CHECK(taken().empty());
}

TEST_CASE("arena: address space is given two megabytes at once unless told otherwise") {
  std::vector<std::pair<std::size_t, std::size_t>> grown;
  Fixture::Line line;
  constexpr std::size_t unit = std::size_t{2} << 20;
  Arena arena(&line, 4 * unit, false, [&](std::size_t begin, std::size_t end) { grown.emplace_back(begin, end); });
  arena.save(1);
  CHECK(grown == std::vector<std::pair<std::size_t, std::size_t>>{{0, unit}});
  CHECK((arena.padding().tail == 0 && arena.padding().band == 0));
}

TEST_CASE("arena: what could not be given memory is asked for again") {
  bool full = true;
  int calls = 0;
  Fixture::Line memory[16];
  Arena arena(memory, sizeof memory, false, [&](std::size_t, std::size_t) {
    ++calls;
    if (full) fail<DeviceError>("[device] out of memory");
  });
  CHECK_THROWS_AS(arena.save(64), DeviceError);
  CHECK(arena.mark() == 0);
  const Arena::Scope scope(arena);
  CHECK_THROWS_AS(arena.scratch(64), DeviceError);
  CHECK(arena.scratch_bytes() == 0);
  full = false;
  arena.save(64);
  CHECK(calls == 3);
}

#if LORA_DEBUG
TEST_CASE("arena: fresh memory holds no numbers in debug builds") {
  Fixture f;
  const auto* const values = static_cast<const float*>(f.arena.save(64));
  CHECK(values[0] != values[0]);
}

TEST_CASE("arena: a write past a piece ends a debug build, at either end of the stack") {
  const auto overrun = [](bool saved, std::size_t bytes, std::size_t at) {
    return test::abort_message([&] {
      Fixture f;
      f.arena.save(64);
      const std::size_t mark = f.arena.mark();
      const Arena::Scope scope(f.arena);
      auto* const piece = static_cast<std::byte*>(saved ? f.arena.save(bytes) : f.arena.scratch(bytes));
      f.arena.save(64);
      f.arena.scratch(64);
      piece[at] = std::byte{1};
      f.arena.release(mark);
    });
  };
  const std::string found = "a kernel wrote past its scratch or saved memory";
  for (const bool saved : {true, false}) {
    CAPTURE(saved);
    CHECK(overrun(saved, 128, 128).find(found) != std::string::npos);
    CHECK(overrun(saved, 128, 128 + 60).find(found) != std::string::npos);
    CHECK(overrun(saved, 128, 127) == "it went on without an abort");
  }
}

TEST_CASE("arena: memory that the host can't read is left alone") {
  std::vector<std::byte> nothing;
  Arena arena(nothing.data(), 1024, false);
  arena.save(100);
  arena.release(0);
  CHECK(arena.peak_saved() == 128);
}
#endif

}  // namespace arena_test
