#include "support/proof_device.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/matrix.hpp"
#include "support/message_of.hpp"
#include "support/proof_kernels.hpp"

namespace proof_device_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = proof::Device;

/// What the device says of all that was wrong, one fault after the other.
std::string said(const std::vector<proof::Fault>& faults) {
  std::string text;
  for (const auto& fault : faults) text += fault.what + "\n";
  return text;
}

/// What a child process writes to its error stream while it runs `body`, and whether it ended by a touch.
struct Touch {
  bool caught = false;
  std::string text;
};
Touch touch_of(const auto& body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    proof::Untouchable::ends_process = true;
    D dev;
    body(dev);
    _exit(0);
  }
  close(ends[1]);
  Touch touch;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    touch.text.append(buffer, static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  touch.caught = WIFEXITED(status) && WEXITSTATUS(status) == 1;
  return touch;
}

volatile float sink;

}  // namespace

TEST_CASE("proof device: right code is not complained of, and is counted") {
  D dev(1, {.alignment = true, .tails = true, .late_sources = true, .late_frees = true});
  const std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<float> result;
  {
    const Tensor<D, float> x = tensor_of<float>(dev, values, 3, 3);
    Tensor<D, float> y(dev, 3, 3);
    kernel::convert(dev, x.view(), y.view(), 2.0);
    const Arena::Scope scope(dev.arena());
    const View<D, float> z = scratch<float>(dev, 3, 3);
    kernel::convert(dev, y.view(), z, 2.0);
    result = to_host(dev, z.flat());
  }
  CHECK(result == std::vector<float>{4, 8, 12, 16, 20, 24, 28, 32, 36});
  CHECK(dev.counts().launches == 2);
  CHECK(dev.counts().allocations == 3);  // with the arena
  CHECK(dev.counts().waits == 1);
  CHECK(dev.counts().bytes_in == 36);
  CHECK(dev.counts().bytes_out == 36);
  CHECK(dev.counts().early_frees == 0);
  CHECK(said(dev.finish()).empty());
}

TEST_CASE("proof device: freeing is in the order of the queue") {
  D dev;
  Tensor<D, float> y(dev, 1, 3);
  dev.hold();
  {
    const Tensor<D, float> x = tensor_of<float>(dev, std::vector<float>{1, 2, 3}, 1, 3);
    kernel::convert(dev, x.view(), y.view());
  }
  CHECK(dev.counts().early_frees == 1);
  CHECK(to_host(dev, y.view()) == std::vector<float>{1, 2, 3});
}

TEST_CASE("proof device: sources are taken at once where late ones are not asked for") {
  D dev;
  std::vector<float> values{1, 2, 3};
  dev.hold();
  const Tensor<D, float> x = tensor_of<float>(dev, values, 1, 3);
  values.assign(3, -1);
  CHECK(to_host(dev, x.view()) == std::vector<float>{1, 2, 3});
}

TEST_CASE("planted fault: host code reads device memory") {
  const Touch touch = touch_of([](D& dev) {
    const Tensor<D, float> x = tensor_of<float>(dev, std::vector<float>{1, 2, 3}, 1, 3);
    sink = x.view().data()[1];
  });
  CHECK(touch.caught);
  CHECK_MESSAGE(holds(touch.text, " device memory: byte 4 of allocation 1 of 12 bytes, at"), touch.text);
}

TEST_CASE("planted fault: host code reads a kernel's result without waiting") {
  const Touch touch = touch_of([](D& dev) {
    Tensor<D, float> x(dev, 1, 3);
    kernel::fill(dev, x.view(), 1.0);
    std::vector<float> values(3);
    std::memcpy(values.data(), x.view().data(), x.bytes());
    sink = values[0];
  });
  CHECK(touch.caught);
  CHECK_MESSAGE(holds(touch.text, " of allocation 1 of 12 bytes, at"), touch.text);
}

TEST_CASE("planted fault: host code writes into the arena") {
  const Touch touch = touch_of([](D& dev) { save<float>(dev, 1, 3).data()[2] = 1; });
  CHECK(touch.caught);
  CHECK_MESSAGE(holds(touch.text, " device memory: byte 8 of the arena, at"), touch.text);
}

TEST_CASE("planted fault: host code reads freed memory") {
  const Touch touch = touch_of([](D& dev) {
    const float* data = nullptr;
    {
      const Tensor<D, float> x(dev, 1, 3);
      data = x.view().data();
    }
    sink = *data;
  });
  CHECK(touch.caught);
  CHECK_MESSAGE(holds(touch.text, "12 bytes, which was freed"), touch.text);
}

TEST_CASE("planted fault: host code reads device memory while devices of other threads come and go") {
  const Touch touch = touch_of([](D& dev) {
    const Tensor<D, float> x = tensor_of<float>(dev, std::vector<float>{1, 2, 3}, 1, 3);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([] {
        for (int repeat = 0; repeat < 20; ++repeat) const D other;
      });
    for (std::thread& thread : threads) thread.join();
    sink = x.view().data()[1];
  });
  CHECK(touch.caught);
  CHECK(holds(touch.text, "host code reads device memory"));
}

TEST_CASE("proof device: a report names the line of source") {
  D dev;
  dev.free(&dev, 8);
  const auto faults = dev.take_faults();
  REQUIRE(faults.size() == 1);
  const std::string text = faults[0].text();
  // Where the build has lines and there is a program that reads them.
  if (holds(text, " at ")) CHECK_MESSAGE(holds(text, "proof_device_test.cpp:"), text);
}

TEST_CASE("planted fault: a source changes before it is copied, no wait between") {
  D dev(1, {.late_sources = true});
  std::vector<float> values{1, 2, 3};
  Tensor<D, float> x(dev, 1, 3);
  dev.hold();
  copy_from_host<D, float>(dev, values, x.view());
  values[1] = -1;
  CHECK(holds(said(dev.take_faults()), "copy_from_host: its source has changed, or is gone, before the copy"));
  copy_from_host<D, float>(dev, values, x.view());
  dev.synchronize();
  values[1] = 2;
  CHECK(said(dev.take_faults()).empty());
}

TEST_CASE("planted fault: a source is gone before it is copied") {
  D dev(1, {.late_sources = true});
  const std::size_t bytes = 1 << 16;
  Tensor<D, float> x(dev, 1, static_cast<Index>(bytes / sizeof(float)));
  void* const source = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(source != MAP_FAILED);
  std::memset(source, 1, bytes);  // what another thread may map there meanwhile has zeros
  dev.hold();
  dev.copy_from_host(x.view().data(), source, bytes);
  munmap(source, bytes);
  CHECK(holds(said(dev.take_faults()), "copy_from_host: its source has changed, or is gone, before the copy"));
}

TEST_CASE("planted fault: use after free") {
  D dev;
  Tensor<D, float> y(dev, 1, 3);
  View<D, const float> x;
  {
    const Tensor<D, float> tensor = tensor_of<float>(dev, std::vector<float>{1, 2, 3}, 1, 3);
    x = tensor.view();
  }
  kernel::convert(dev, x, y.view());
  CHECK(holds(said(dev.take_faults()), "convert: x is freed memory: allocation 2 of 12 bytes"));
}

TEST_CASE("planted fault: scratch is used after its scope") {
  D dev;
  View<D, float> x;
  {
    const Arena::Scope scope(dev.arena());
    x = scratch<float>(dev, 1, 3);
    kernel::fill(dev, x, 0.0);
  }
  kernel::fill(dev, x, 1.0);
  CHECK(holds(said(dev.take_faults()), "fill: y reaches into the arena's free memory"));
}

TEST_CASE("planted fault: freed while queued work uses it") {
  D dev(1, {.late_frees = true});
  dev.hold();
  {
    Tensor<D, float> x(dev, 1, 3);
    kernel::fill(dev, x.view(), 0.0);
  }
  CHECK(holds(said(dev.take_faults()), "free while queued work uses it: allocation 1 of 12 bytes"));
}

TEST_CASE("planted fault: freed twice, or what was never allocated, or in part") {
  D dev;
  void* const memory = dev.allocate(24);
  dev.free(memory, 24);
  dev.free(memory, 24);
  CHECK(holds(said(dev.take_faults()), "free of allocation 1 of 24 bytes, freed, which was made"));
  void* const other = dev.allocate(24);
  dev.free(static_cast<std::byte*>(other) + 8, 16);
  CHECK(holds(said(dev.take_faults()), "free of memory that no allocation begins at"));
  dev.free(other, 16);
  CHECK(holds(said(dev.take_faults()), "free of 16 bytes: allocation 2 of 24 bytes"));
}

TEST_CASE("planted fault: a leak") {
  D dev;
  void* const memory = dev.allocate(24);
  CHECK(memory != nullptr);
  CHECK(holds(said(dev.finish()), "a leak: allocation 1 of 24 bytes"));
}

TEST_CASE("planted fault: a slice off 32 bytes") {
  D dev(1, {.alignment = true});
  Tensor<D, double> x(dev, 1, 8);
  kernel::fill(dev, x.view().col_slice(4, 4), 0.0);
  CHECK(said(dev.take_faults()).empty());
  kernel::fill(dev, x.view().col_slice(1, 1), 0.0);
  CHECK(said(dev.take_faults()) == "fill: y begins 8 bytes behind a multiple of 32\n");
}

TEST_CASE("planted fault: a result whose last 32 bytes hold somebody else's") {
  D dev(1, {.tails = true});
  Tensor<D, double> x(dev, 1, 5);
  kernel::fill(dev, x.view(), 0.0);
  kernel::fill(dev, x.view().col_slice(4, 1), 0.0);  // behind it is nobody
  CHECK(said(dev.take_faults()).empty());
  kernel::fill(dev, x.view().col_slice(0, 1), 0.0);
  CHECK(holds(said(dev.take_faults()), "fill writes y: the last 32 bytes of its row 0 are not its own: allocation 1"));
}

TEST_CASE("planted fault: a kernel writes past the end, before the begin, between rows, or into what is read") {
  D dev;
  Tensor<D, float> x(dev, 3, 5);
  const auto writing = [&](const proof::Operand& operand, Index at) {
    kernel::fill(dev, x.view(), 0.0);
    dev.launch("broken", {operand},
               [data = dev.inner(x.view()).data(), at](cpu::Device&) { std::memset(data + at, 0xAB, sizeof(float)); });
    return said(dev.take_faults());
  };
  const auto left = x.view().col_slice(0, 4);
  CHECK(writing(proof::writes("y", left), 13).empty());
  CHECK(holds(writing(proof::writes("y", left), 14), "broken writes to byte 56 of y, past its end: allocation 1"));
  CHECK(holds(writing(proof::writes("y", left), 4), "broken writes to byte 16 of y, which it should leave alone: "));
  CHECK(holds(writing(proof::writes("y", x.view()), 15), "broken writes to byte 60 of y, past its end: allocation 1"));
  CHECK(
      holds(writing(proof::writes("y", x.view().row_slice(1, 1)), 4), "to byte -4 of y, before its begin: byte 20 of"));
  CHECK(holds(writing(proof::part("y", x.view()), 7), "broken writes to byte 28 of y, which it should leave alone: "));
  CHECK(holds(writing(proof::reads("x", x.view()), 7), "broken writes to byte 28 of x, which it should leave alone: "));
}

TEST_CASE("planted fault: memory that nobody wrote is read") {
  D dev;
  Tensor<D, float> x(dev, 2, 3), y(dev, 2, 3);
  SUBCASE("by a kernel") {
    kernel::convert(dev, x.view(), y.view());
    CHECK(holds(said(dev.take_faults()), "convert reads x: byte 0 of its row 0 was never written: "));
  }
  SUBCASE("by a kernel that adds") {
    kernel::fill(dev, x.view(), 1.0);
    kernel::fill(dev, y.view().row_slice(0, 1), 1.0);
    kernel::convert(dev, x.view(), y.view(), 1.0, true);
    CHECK(holds(said(dev.take_faults()), "convert reads y: byte 0 of its row 1 was never written: "));
  }
  SUBCASE("by the host") {
    kernel::fill(dev, x.view().col_slice(0, 2), 1.0);
    CHECK(std::isnan(to_host(dev, x.view())[2]));
    CHECK(holds(said(dev.take_faults()), "copy_to_host: of its source byte 8 of its row 0 was never written: "));
  }
  SUBCASE("in the arena, where something else lay before") {
    {
      const Arena::Scope scope(dev.arena());
      kernel::fill(dev, scratch<float>(dev, 2, 3), 1.0);
    }
    const Arena::Scope scope(dev.arena());
    kernel::convert(dev, scratch<float>(dev, 2, 3), y.view());
    CHECK(holds(said(dev.take_faults()), "convert reads x: byte 0 of its row 0 was never written: "));
  }
}

TEST_CASE("planted fault: memory of the host, or of another device, is given to a kernel") {
  D dev, other;
  std::vector<float> values{1, 2, 3};
  Tensor<D, float> x(dev, 1, 3), elsewhere(other, 1, 3);
  kernel::convert(dev, View<D, const float>(values.data(), 1, 3), x.view());
  CHECK(said(dev.take_faults()) == "convert: x is memory of the host\n");
  kernel::convert(dev, elsewhere.view(), x.view());
  CHECK(said(dev.take_faults()) == "convert: x is memory of another device\n");
}

TEST_CASE("planted fault: an operand or a copy reaches past its allocation") {
  D dev;
  Tensor<D, float> x(dev, 1, 3);
  kernel::fill(dev, View<D, float>(x.view().data(), 1, 4), 0.0);
  CHECK(holds(said(dev.take_faults()), "fill: y reaches 4 bytes past the end of allocation 1 of 12 bytes"));
  const std::vector<float> four(4);
  dev.copy_from_host(x.view().data(), four.data(), 16);
  CHECK(holds(said(dev.take_faults()), "copy_from_host: target reaches 4 bytes past the end of allocation 1"));
}

TEST_CASE("planted fault: a kernel reads what another stream writes, without an event between") {
  D dev;
  const std::vector<float> values{1, 2, 3};
  Tensor<D, float> x(dev, 1, 3), y(dev, 1, 3);
  const auto copy = [&] { dev.copy_from_host(x.view().data(), values.data(), x.bytes(), Stream::copy); };
  SUBCASE("at all") {
    copy();
    kernel::convert(dev, x.view(), y.view());
    CHECK(holds(said(dev.take_faults()),
                "convert: x is used in the copy stream, which the compute stream has not waited for: allocation 1"));
  }
  SUBCASE("that is behind the copy") {
    const Event early = dev.record(Stream::copy);
    copy();
    dev.wait(Stream::compute, early);
    kernel::convert(dev, x.view(), y.view());
    CHECK(holds(said(dev.take_faults()), "convert: x is used in the copy stream"));
    dev.release(early);
  }
  SUBCASE("that the host has waited for either") {
    copy();
    dev.synchronize();
    kernel::convert(dev, x.view(), y.view());
    CHECK(said(dev.take_faults()).empty());
  }
}

TEST_CASE("planted fault: a copy writes over what a kernel may still read") {
  D dev;
  const std::vector<float> values{1, 2, 3};
  const Tensor<D, float> x = tensor_of<float>(dev, values, 1, 3);
  Tensor<D, float> y(dev, 1, 3);
  const Event uploaded = dev.record(Stream::compute);
  dev.wait(Stream::copy, uploaded);
  dev.release(uploaded);
  kernel::convert(dev, x.view(), y.view());
  dev.copy_from_host(const_cast<float*>(x.view().data()), values.data(), x.bytes(), Stream::copy);
  CHECK(holds(said(dev.take_faults()),
              "copy_from_host: target is used in the compute stream, which the copy stream has not waited for"));
}

TEST_CASE("planted fault: memory is freed that another stream still writes") {
  D dev;
  const std::vector<float> values{1, 2, 3};
  dev.hold(Stream::copy);
  {
    Tensor<D, float> x(dev, 1, 3);
    dev.copy_from_host(x.view().data(), values.data(), x.bytes(), Stream::copy);
  }
  CHECK(holds(said(dev.take_faults()), "free while the copy stream may use it, which nobody waited for: allocation 1"));
}

TEST_CASE("planted fault: page-locked memory is freed while it is read, or is none, or is left") {
  D dev;
  Tensor<D, float> x(dev, 1, 3);
  auto* const host = static_cast<float*>(dev.allocate_host(12));
  std::fill(host, host + 3, 1.0f);
  dev.hold();
  dev.copy_from_host(x.view().data(), host, 12);
  dev.free_host(host, 12);
  CHECK(holds(said(dev.take_faults()), "free_host while a copy in the compute stream may use it"));
  dev.free_host(host, 12);
  CHECK(holds(said(dev.take_faults()), "free_host of memory that is not allocate_host's"));
  D other;
  CHECK(other.allocate_host(8) != nullptr);
  CHECK(holds(said(other.finish()), "a leak: 1 blocks of page-locked memory"));
}

TEST_CASE("planted fault: a copy to the host that nobody orders, of what nobody wrote, or to where it can't go") {
  D dev;
  Tensor<D, float> x(dev, 1, 3), y(dev, 1, 3);
  auto* const host = static_cast<float*>(dev.allocate_host(12));
  std::fill(host, host + 3, 1.0f);
  kernel::fill(dev, x.view(), 7.0);
  dev.start_copy_to_host(host, x.view().data(), 12, Stream::copy);
  CHECK(holds(said(dev.take_faults()),
              "start_copy_to_host: source is used in the compute stream, which the copy stream has not waited for"));
  dev.hold();
  dev.start_copy_to_host(host, x.view().data(), 12, Stream::copy);
  CHECK(host[0] != host[0]);  // until it is done
  dev.free_host(host, 12);
  CHECK(holds(said(dev.take_faults()), "free_host while a copy in the copy stream may use it"));
  auto* const other = static_cast<float*>(dev.allocate_host(8));
  dev.start_copy_to_host(other, x.view().data(), 12, Stream::compute);
  CHECK(holds(said(dev.take_faults()), "start_copy_to_host: its target is not all allocate_host's"));
  dev.start_copy_to_host(other, y.view().data(), 8, Stream::compute);
  CHECK(holds(said(dev.take_faults()), "start_copy_to_host: of its source byte 0 of its row 0 was never written"));
  dev.free_host(other, 8);
  CHECK(said(dev.take_faults()).empty());
}

TEST_CASE("planted fault: page-locked memory is more than there is") {
  D dev(1, {.host_memory = 20});
  void* const host = dev.allocate_host(12);
  CHECK_THROWS_WITH_AS(dev.allocate_host(9), "[proof] out of page-locked memory: 9 bytes", DeviceError);
  dev.free_host(host, 12);
  void* const all = dev.allocate_host(20);
  dev.free_host(all, 20);
}

TEST_CASE("planted fault: events are asked for too early, after their release, or never released") {
  D dev;
  Tensor<D, float> x(dev, 1, 3);
  dev.hold();
  const Event before = dev.record(Stream::compute);
  kernel::fill(dev, x.view(), 0.0);
  const Event after = dev.record(Stream::compute);
  CHECK_FALSE(dev.is_done(after));
  dev.nanoseconds(before, after);
  CHECK(holds(said(dev.take_faults()), "nanoseconds: of an event that is not done yet"));
  CHECK(dev.is_done(after));
  dev.release(before);
  dev.release(before);
  CHECK(holds(said(dev.take_faults()), "release of an event that is none, or was released before"));
  dev.wait(Stream::copy, before);
  CHECK(holds(said(dev.take_faults()), "wait: of an event that is none, or was released"));
  { const Tensor<D, float> gone = std::move(x); }
  CHECK(said(dev.finish()) == "a leak: 1 events\n");
}

TEST_CASE("proof device: what a kernel throws comes out of the next wait, or is a fault") {
  D dev;
  const auto launch = [&] { dev.launch("broken", {}, [](cpu::Device&) { fail<FormatError>("no such type"); }); };
  launch();
  CHECK_THROWS_WITH_AS(dev.synchronize(), "no such type", FormatError);
  launch();
  CHECK(said(dev.take_faults()) == "nobody waited for a kernel that failed: no such type\n");
}

}  // namespace proof_device_test
