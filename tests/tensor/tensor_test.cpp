#include "lora/tensor/tensor.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/tensor/arena.hpp"
#include "lora/tensor/page_locked.hpp"
#include "lora/tensor/profile_scope.hpp"
#include "lora/tensor/transfer.hpp"
#include "support/message_of.hpp"
#include "support/process.hpp"

namespace tensor_test {

namespace {

using namespace lora;

/// A device that counts: what is held, and how much was copied.
class Counting : public DeviceState<Counting> {
 public:
  static constexpr bool reads_host_memory = true;
  static constexpr bool splits_blocks = false;
  static constexpr bool decodes(DType) { return false; }
  using Sum = double;

  Counting() : arena_(memory_, sizeof memory_, true) {}
  void* allocate(std::size_t bytes) {
    held += bytes;
    ++pieces;
    return std::malloc(bytes);
  }
  void free(void* memory, std::size_t bytes) noexcept {
    held -= bytes;
    --pieces;
    std::free(memory);
  }
  void* allocate_host(std::size_t bytes) { return allocate(bytes); }
  void free_host(void* memory, std::size_t bytes) noexcept { free(memory, bytes); }
  MemoryInfo memory() const { return {}; }
  void copy_from_host(void* target, const void* source, std::size_t bytes, Stream = Stream::compute) {
    std::memcpy(target, source, bytes);
    copied += bytes;
  }
  void copy_to_host(void* target, const void* source, std::size_t bytes) {
    std::memcpy(target, source, bytes);
    copied += bytes;
    ++reads;
  }
  void start_copy_to_host(void* target, const void* source, std::size_t bytes, Stream) {
    copy_to_host(target, source, bytes);
  }
  void copy_on_device(void* target, const void* source, std::size_t bytes, Stream = Stream::compute) {
    std::memcpy(target, source, bytes);
  }
  void synchronize() { ++waits; }
  Event record(Stream) { return {}; }
  void wait(Stream, Event) {}
  void wait(Event) {}
  bool is_done(Event) const { return true; }
  std::int64_t nanoseconds(Event, Event) const { return 0; }
  void release(Event) noexcept {}
  Arena& arena() { return arena_; }
  Tiling tiling() const { return {}; }
  std::string describe() const { return "counting"; }

  std::size_t held = 0, pieces = 0, copied = 0, reads = 0, waits = 0;

 private:
  alignas(64) std::byte memory_[4096];
  Arena arena_;
};

static_assert(AnyDevice<Counting>);
static_assert(!AnyDevice<int>);

}  // namespace

TEST_CASE("tensor: owns its memory once, also after it was moved") {
  Counting dev;
  {
    Tensor<Counting, float> a(dev, 3, 4);
    CHECK(dev.held == 48);
    CHECK(a.size() == 12);
    CHECK(a.bytes() == 48);
    const float* const memory = a.view().data();
    Tensor<Counting, float> b(std::move(a));
    CHECK(b.view().data() == memory);
    CHECK(a.empty());
    Tensor<Counting, float> c(dev, 5);
    CHECK(c.view().shape() == Shape{1, 5});
    c = std::move(b);
    CHECK(dev.pieces == 1);
    CHECK(c.view().data() == memory);
    CHECK(c.rows() == 3);
    static_assert(!std::is_copy_constructible_v<Tensor<Counting, float>>);
  }
  CHECK(dev.pieces == 0);
  CHECK(dev.held == 0);
}

TEST_CASE("tensor: without elements there is no memory and an empty view") {
  Counting dev;
  Tensor<Counting, float> none, flat(dev, 0, 7);
  CHECK(dev.pieces == 0);
  CHECK(none.view().empty());
  CHECK(flat.view().empty());
}

TEST_CASE("tensor: host values go there and back, row by row where rows lie apart") {
  Counting dev;
  auto tensor = tensor_of<int>(dev, std::vector<int>{0, 1, 2, 3, 4, 5}, 2, 3);
  CHECK(to_host(dev, tensor.view()) == std::vector<int>{0, 1, 2, 3, 4, 5});
  CHECK(dev.reads == 1);  // rows that follow each other are one copy, and so one wait
  const auto columns = tensor.view().col_slice(1, 2);
  CHECK(to_host(dev, columns) == std::vector<int>{1, 2, 4, 5});
  copy_from_host<Counting, int>(dev, std::vector<int>{7, 8, 9, 10}, columns);
  CHECK(to_host(dev, tensor.view()) == std::vector<int>{0, 7, 8, 3, 9, 10});
  const Tensor<Counting, int>& constant = tensor;
  CHECK(to_host(dev, constant.view()).size() == 6);
}

TEST_CASE("tensor: the wrong number of host values is refused") {
  Counting dev;
  Tensor<Counting, int> tensor(dev, 2, 3);
  CHECK_THROWS_WITH_AS((copy_from_host<Counting, int>(dev, std::vector<int>(5), tensor.view())),
                       "[copy_from_host] 5 values for a view of (2, 3)", ShapeError);
}

TEST_CASE("tensor: save and scratch take their pieces from the arena's ends") {
  Counting dev;
  const auto kept = save<float>(dev, 3, 50);
  CHECK(kept.shape() == Shape{3, 50});
  CHECK(dev.arena().saved_bytes() == dev.arena().padding()(600));
  {
    const Arena::Scope scope(dev.arena());
    const auto passing = scratch<double>(dev, 2, 40);
    CHECK(passing.shape() == Shape{2, 40});
    CHECK(passing.contiguous());
    CHECK(dev.arena().scratch_bytes() == dev.arena().padding()(640));
  }
  CHECK(dev.arena().scratch_bytes() == 0);
  CHECK(dev.pieces == 0);
}

TEST_CASE("tensor: memory of the host to copy from is owned once, also after it was moved") {
  Counting dev;
  {
    PageLocked<Counting> none, empty(dev, 0), a(dev, 100);
    CHECK((none.data() == nullptr && none.bytes() == 0 && empty.data() == nullptr && empty.bytes() == 0));
    CHECK((dev.pieces == 1 && dev.held == 100));
    std::byte* const memory = a.data();
    PageLocked<Counting> b(std::move(a));
    CHECK((b.data() == memory && b.bytes() == 100));
    CHECK((a.data() == nullptr && a.bytes() == 0));
    b = PageLocked<Counting>(dev, 7);
    CHECK((dev.pieces == 1 && dev.held == 7 && b.bytes() == 7));
  }
  CHECK((dev.pieces == 0 && dev.held == 0));
}

TEST_CASE("tensor: bytes that are allocated have a peak, which can begin anew") {
  AllocatedBytes bytes;
  CHECK((bytes.now() == 0 && bytes.peak() == 0));
  bytes.add(10);
  bytes.add(5);
  bytes.take(12);
  CHECK((bytes.now() == 3 && bytes.peak() == 15));
  bytes.add(4);
  CHECK((bytes.now() == 7 && bytes.peak() == 15));
  bytes.restart_peak();
  CHECK(bytes.peak() == 7);
  bytes.take(7);
  CHECK((bytes.now() == 0 && bytes.peak() == 7));
}

TEST_CASE("tensor: a device gives back what its relief can do without") {
  struct Short : Counting {
    bool gives_back() { return relieve(); }
  } dev;
  CHECK_FALSE(dev.gives_back());
  int left = 2;
  dev.set_relief([&] { return left-- > 0; });
  CHECK(dev.gives_back());
  CHECK(dev.gives_back());
  CHECK_FALSE(dev.gives_back());
  dev.set_relief({});
  CHECK_FALSE(dev.gives_back());
}

TEST_CASE("tensor: values of rows that lie apart, and of none, are counted before they are copied") {
  Counting dev;
  Tensor<Counting, int> tensor(dev, 2, 3);
  const auto told = [&](std::size_t count) {
    return test::message_of<ShapeError>(
        [&] { copy_from_host<Counting, int>(dev, std::vector<int>(count), tensor.view().col_slice(0, 2)); });
  };
  CHECK(told(3) == "[copy_from_host] 3 values for a view of (2, 2)");
  CHECK(told(6) == "[copy_from_host] 6 values for a view of (2, 2)");
  const std::size_t before = dev.copied;
  copy_from_host<Counting, int>(dev, {}, View<Counting, int>());
  CHECK(to_host(dev, View<Counting, int>()).empty());
  CHECK(dev.copied == before);
  CHECK(dev.reads == 0);
}

TEST_CASE("tensor: values that the host can read are seen where they lie once they are there, those apart in a copy") {
  Counting dev;
  const auto tensor = tensor_of<int>(dev, std::vector<int>{0, 1, 2, 3, 4, 5}, 2, 3);
  int calls = 0;
  with_host_values(dev, tensor.view(), [&](std::span<const int> values) {
    ++calls;
    CHECK(values.data() == tensor.view().data());
    CHECK(values.size() == 6);
    CHECK(dev.waits == 1);
  });
  CHECK((calls == 1 && dev.reads == 0));
  with_host_values(dev, tensor.view().col_slice(1, 2), [&](std::span<const int> values) {
    ++calls;
    CHECK(std::vector<int>(values.begin(), values.end()) == std::vector<int>{1, 2, 4, 5});
  });
  CHECK((calls == 2 && dev.reads == 2));
}

namespace {

struct Holder : DeviceState<Holder> {
  ~Holder() { release_states(); }
};
template <int number>
struct Last {
  ~Last() {
    if (ended != nullptr) ended->push_back(number);
  }
  std::vector<int>* ended = nullptr;
};

}  // namespace

TEST_CASE("tensor: what a device keeps for others goes in the reverse of the order in which it came") {
  std::vector<int> ended;
  {
    Holder dev;
    CHECK(dev.profile() == nullptr);
    dev.state<Last<1>>().ended = &ended;
    dev.state<Last<2>>().ended = &ended;
    dev.state<Last<3>>().ended = &ended;
    CHECK(dev.state<Last<1>>().ended == &ended);
    CHECK(ended.empty());
  }
  CHECK(ended == std::vector<int>{3, 2, 1});
}

#if LORA_DEBUG
TEST_CASE("tensor: a kernel that keeps its scratch ends a debug build, what is no kernel may keep some") {
  const auto ends = [](bool is_kernel, bool keeps) {
    return test::abort_message([&] {
      Counting dev;
      const Arena::Scope outer(dev.arena());
      const auto work = [&] {
        if (keeps) (void)scratch<float>(dev, 1, 1);
      };
      if (is_kernel) {
        const ProfileScope span(dev, "family", "name", 1, 1);
        work();
      } else {
        const ProfileScope span(dev, Profile::Kind::phase, "forward");
        work();
      }
    });
  };
  CHECK(test::holds(ends(true, true), "assertion failed: arena_"));
  CHECK(ends(true, false) == "it went on without an abort");
  CHECK(ends(false, true) == "it went on without an abort");
}
#endif

}  // namespace tensor_test
