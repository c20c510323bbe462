// An NPU as the library sees it: what it sets, takes back and says where something is wrong, on the stand-in.

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "lora/ascend/runtime/choice.hpp"
#include "lora/doctor/ascend_findings.hpp"
#include "lora/tensor/page_locked.hpp"
#include "lora/tensor/staging.hpp"
#include "support/environment.hpp"
#include "support/matrix.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/stand_in.hpp"
#include "support/temp_folder.hpp"

namespace ascend_device_test {

namespace {

using namespace lora;
using namespace lora::test;
using Npu = ascend::Device;
using ascend::DeviceSettings;

/// A function of the vendor's that the library itself does not call.
template <class... P>
int vendor(const char* name, P... arguments) {
  return stand_in<int(P...)>(name)(arguments...);
}

void set(const char* name, std::int64_t value) {
  REQUIRE(stand_in<decltype(standInSet)>("standInSet")(name, value) == 0);
}

/// What is left of all that was made, while no device lives.
std::string leaks() {
  set("check_leaks", 1);
  return stand_in_faults();
}

/// Descriptions of operands, and executors, that are left.
std::string descriptions_left() {
  set("check_leaks", 1);
  std::istringstream lines(stand_in_faults());
  std::string left;
  for (std::string line; std::getline(lines, line);)
    for (const char* kind : {"tensors", "scalars", "arrays", "lists", "executors"})
      if (line.starts_with(kind)) left += line + "\n";
  return left;
}

/// y = x + 1, which a test reads.
std::vector<float> added(Npu& dev, float x) {
  Tensor<Npu, float> one(dev, 1, 8), sum(dev, 1, 8);
  kernel::fill(dev, one.view(), 1.0);
  kernel::fill(dev, sum.view(), static_cast<double>(x));
  kernel::convert(dev, View<Npu, const float>(one.view()), sum.view(), 1.0, true);
  return to_host(dev, sum.view());
}

template <class F>
double seconds_of(const F& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("ascend device: each call is its own NPU's, whatever the thread used before") {
  on_stand_in([] {
    Npu first(DeviceSettings{.id = 0}), second(DeviceSettings{.id = 1});
    for (const float x : {1.0f, 2.0f}) {
      CHECK(added(first, x) == std::vector<float>(8, x + 1));
      CHECK(added(second, x) == std::vector<float>(8, x + 1));
    }
    std::thread([&] { CHECK(added(second, 3) == std::vector<float>(8, 4)); }).join();
    CHECK(first.memory().total == second.memory().total);
    Tensor<Npu, float> of_first(first, 1, 8);
    (void)second.memory();  // of another in between
    { const Tensor<Npu, float> of_second(second, 1, 8); }
    auto* const host = first.allocate_host(64);
    (void)second.memory();
    first.copy_from_host(of_first.view().data(), host, 32);
    (void)second.memory();
    first.start_copy_to_host(host, of_first.view().data(), 32, Stream::compute);
    const Event event = first.record(Stream::compute);
    (void)second.memory();
    first.wait(Stream::copy, event);
    (void)second.memory();
    first.wait(event);
    (void)second.memory();
    CHECK(first.is_done(event));
    const Event later = first.record(Stream::copy);
    (void)second.memory();
    first.synchronize();
    (void)second.memory();
    CHECK(first.nanoseconds(event, later) >= 0);
    first.release(event);
    first.release(later);
    (void)second.memory();
    first.free_host(host, 64);
  });
}

TEST_CASE("ascend device: the time between two events is in nanoseconds") {
  on_stand_in([] {
    Npu dev;
    const auto begin = std::chrono::steady_clock::now();
    const Event first = dev.record(Stream::compute);
    dev.wait(first);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const Event second = dev.record(Stream::compute);
    dev.wait(second);
    const std::chrono::nanoseconds all = std::chrono::steady_clock::now() - begin;
    const std::int64_t between = dev.nanoseconds(first, second);
    CHECK(between >= 19'000'000);
    CHECK(between <= all.count() + all.count() / 1000);  // of milliseconds in float32
    dev.release(first);
    dev.release(second);
  });
}

TEST_CASE("ascend device: the order of sums is fixed or not as is asked for, and numbers out of range are infinite") {
  on_stand_in([] {
    for (const bool fixed : {true, false}) {
      const Npu dev(DeviceSettings{.deterministic = fixed});
      std::int64_t value = -1;
      int mode = -1;
      dev.enter();
      for (const char* of : {"aclrtCtxGetSysParamOpt", "aclrtGetSysParamOpt"}) {  // the context, the process
        CAPTURE(of);
        CHECK(vendor(of, 0, &value) == 0);
        CHECK(value == (fixed ? 1 : 0));
      }
      CHECK(vendor("aclrtGetDeviceSatMode", &mode) == 0);
      CHECK(mode == ascend::ACL_RT_OVERFLOW_MODE_INFNAN);
    }
  });
}

TEST_CASE("ascend device: it leaves nothing, and other users of the NPU in the process keep it") {
  (void)leaks();
  on_stand_in([] {
    Npu other;
    {
      Npu dev;
      CHECK(added(dev, 1)[0] == 2);
      std::vector<Event> events;
      for (int i = 0; i < 5; ++i) events.push_back(dev.record(Stream::copy));
      dev.release(events[1]);
      for (int i = 0; i < 3; ++i) dev.release(dev.record(Stream::compute));
      dev.wait(dev.record(Stream::copy));
      CHECK(dev.is_done(events[0]));
    }
    CHECK(added(other, 2)[0] == 3);
  });
  CHECK(leaks() == "");
  CHECK(vendor("aclrtResetDevice", 0) != 0);  // nobody has it any more
}

TEST_CASE("ascend device: events that are released are used again") {
  on_stand_in([] {
    Npu dev;
    const Event kept = dev.record(Stream::compute);
    for (int i = 0; i < 100; ++i) {
      const Event event = dev.record(Stream::compute);
      dev.wait(event);
      CHECK(dev.nanoseconds(kept, event) >= 0);
      dev.release(event);
    }
    set("check_leaks", 1);
    CHECK(holds(stand_in_faults(), "\nevents are left: 2\n"));
  });
}

TEST_CASE("ascend device: where its construction fails, what was done is taken back") {
  (void)leaks();
  on_stand_in([] {
    const auto failing = [](const char* setting, std::int64_t value) {
      set(setting, value);
      const std::string text = message_of<DeviceError>([] { const Npu dev; });
      set(setting, -1);
      return text;
    };
    CHECK(failing("set_device_error", 0) ==
          "[ascend] NPU 0 can't be used: error 507899 (E507899: aclrtSetDevice: device 0 does not start); npu-smi info "
          "shows its health and who uses it; a card serves one container at a time");
    CHECK(vendor("aclrtResetDevice", 0) != 0);
    CHECK(holds(failing("fail_allocations_from", 1),
                "[ascend] NPU 0: no memory for work that grows, 1024 MiB were asked for: error 207001 ("));
    CHECK(vendor("aclrtResetDevice", 0) != 0);
    for (const int n : {1, 2})
      CHECK(failing("fail_stream", n) ==
            "[ascend] NPU 0: aclrtCreateStream: error 207001 (E207001: aclrtCreateStream: no stream left (as was asked "
            "for))");
    CHECK(vendor("aclrtResetDevice", 0) != 0);
    CHECK(leaks() == "");
    // Another user of the NPU keeps it.
    Npu other;
    for (const char* setting : {"set_device_error", "fail_stream"}) {
      CHECK(failing(setting, setting[0] == 's' ? 0 : 1) != "nothing was thrown");
      CHECK(added(other, 5)[0] == 6);
    }
  });
  CHECK(leaks() == "");
  CHECK(vendor("aclrtResetDevice", 0) != 0);
}

TEST_CASE("ascend device: memory that is short is asked for again once free pieces were given back") {
  on_stand_in([] {
    Npu dev;
    const std::size_t before = stand_in_counts().allocated_bytes, free = dev.memory().free;
    constexpr std::size_t size = std::size_t{24} << 20;
    void* const first = dev.allocate(size);
    CHECK(dev.memory().free < free);
    kernel::fill(dev, View<Npu, float>(static_cast<float*>(first), 1, 1 << 20), 1.0);
    dev.free(first, size);
    CHECK(stand_in_counts().allocated_bytes > before + size);   // kept for the next
    CHECK(dev.memory().free >= free - (std::size_t{4} << 20));  // which counts as free
    set("fail_allocation", 1);
    void* const second = dev.allocate(2 * size);
    CHECK(stand_in_counts().allocated_bytes < before + 3 * size);
    dev.free(second, 2 * size);
    set("fail_allocations_from", 1);
    const std::string text = message_of<DeviceError>([&] { (void)dev.allocate(3 * size); });
    set("fail_allocations_from", -1);
    CAPTURE(text);
    CHECK(holds(text, "[ascend] NPU 0 is out of memory: 75497472 bytes were asked for, "));
    CHECK(holds(text,
                " are free on the card: error 207001 (E207001: aclrtMallocAlign32: no memory (as was asked for));"));
    CHECK(holds(
        text,
        "; smaller batches or a smaller cutoff_len need less, in training also gradient_checkpointing and offload"));
    set("fail_host_allocation", 1);
    CHECK(message_of<DeviceError>([&] { (void)dev.allocate_host(100); }) ==
          "[ascend] NPU 0: the host gives no page-locked memory, 100 bytes were asked for: error 207001 (E207001: "
          "aclrtMallocHost: no memory (as was asked for)); end other programs that take the host's memory");
    CHECK(added(dev, 1)[0] == 2);  // it still works
  });
}

TEST_CASE("ascend device: work that never ends is waited for as long as is allowed, and once") {
  const Environment timeout("LORA_ASCEND_TIMEOUT", "1");
  on_stand_in([] {
    const auto check = [](const std::string& way) {
      CAPTURE(way);
      std::string text, later;
      const double seconds = seconds_of([&] {
        Npu dev;
        Tensor<Npu, float> x(dev, 1, 1 << 16);
        (void)dev.state<Staging<Npu>>();
        dev.copy_to_host(std::make_unique<float>().get(), x.view().data(), 4);  // which takes its memory
        std::vector<float> values(1 << 16);
        set("hang_at", 1);
        kernel::fill(dev, x.view(), 0.0);
        const Event event = dev.record(Stream::compute);
        text = message_of<DeviceError>([&] {
          if (way == "event") dev.wait(event);
          if (way == "long") dev.copy_to_host(values.data(), x.view().data(), x.bytes());
        });
        later = message_of<DeviceError>([&] { dev.synchronize(); });
      });
      CHECK(holds(text, "[ascend] NPU 0 has not ended its work within 1 s: error 50704"));
      CHECK(holds(text, "; LORA_ASCEND_TIMEOUT sets how many seconds are waited"));
      CHECK(holds(later, "[ascend] NPU 0 can't be used any more: error 50704"));
      CHECK(seconds > 0.9);
      CHECK(seconds < 1.8);
    };
    for (const char* way : {"event", "long"}) check(way);
    Npu next;
    CHECK(added(next, 1)[0] == 2);
  });
  CHECK(leaks() == "");
}

TEST_CASE("ascend device: work that hangs does not keep a device from going") {
  const Environment timeout("LORA_ASCEND_TIMEOUT", "1");
  on_stand_in([] {
    const double seconds = seconds_of([] {
      Npu dev;
      Tensor<Npu, float> x(dev, 1, 8);
      const float value = 1;
      copy_staged<Npu, float>(dev, std::span(&value, 1), x.view().col_slice(0, 1));
      set("hang_at", 1);
      kernel::fill(dev, x.view(), 0.0);
    });
    CHECK(seconds < 1.8);
  });
  CHECK(leaks() == "");
}

TEST_CASE("ascend device: a kernel that fails is told by who waits, and again by who goes on") {
  for (const std::string setting : {"kernel_error_at", "lose_device_at"}) {
    CAPTURE(setting);
    on_stand_in([&] {
      const bool is_lost = setting == "lose_device_at";
      Npu dev;
      Tensor<Npu, float> x(dev, 1, 8);
      set(setting.c_str(), 1);
      kernel::fill(dev, x.view(), 2.0);
      const std::string reason = is_lost
                                     ? "error 507899 (E507899: aclrtSynchronizeStreamWithTimeout: the device is lost)"
                                     : "error 507015 (E507015: aclrtSynchronizeStreamWithTimeout: "
                                       "aclnnInplaceFillScalar: exception of a kernel)";
      CHECK(message_of<DeviceError>([&] { dev.synchronize(); }) ==
            "[ascend] NPU 0: work that was queued before has failed: " + reason + "; npu-smi info shows its health");
      const std::string again = "[ascend] NPU 0 can't be used any more: " + reason;
      CHECK(message_of<DeviceError>([&] { dev.synchronize(); }) == again);
      CHECK(message_of<DeviceError>([&] { kernel::fill(dev, x.view(), 2.0); }) == again);
      CHECK(message_of<DeviceError>([&] { (void)dev.allocate(1); }) == again);
      CHECK(message_of<DeviceError>([&] { (void)dev.allocate_host(1); }) == again);
    });
    CHECK(leaks() == "");
  }
}

TEST_CASE("ascend device: what is queued behind a kernel that fails is not done") {
  on_stand_in([] {
    const auto copied = [] {
      Npu dev;
      Tensor<Npu, float> x(dev, 1, 64);
      PageLocked<Npu> host(dev, 256);
      kernel::fill(dev, x.view(), 1.0);
      dev.synchronize();
      set("kernel_error_at", 1);
      kernel::fill(dev, x.view(), 2.0);
      dev.start_copy_to_host(host.data(), x.view().data(), host.bytes(), Stream::compute);
      CHECK(holds(message_of<DeviceError>([&] { dev.synchronize(); }), "exception of a kernel"));
      float first = 0;
      std::memcpy(&first, host.data(), sizeof first);
      return first == 1;
    };
    CHECK_FALSE(copied());
    const Quiet quiet;
    const StandInSetting refused("failure_mode", 0, 1);
    CHECK(copied());  // with what is there, which may be anything
  });
}

TEST_CASE("ascend device: a card that is lost is not asked again, whoever heard of it first") {
  on_stand_in([] {
    Npu dev;
    Tensor<Npu, float> x(dev, 1, 8);
    set("lose_device_at", 1);
    kernel::fill(dev, x.view(), 2.0);
    const auto fill = [&] { kernel::fill(dev, x.view(), 2.0); };
    CHECK(message_of<DeviceError>(fill) ==
          "[ascend] NPU 0: the operator InplaceFillScalar of float32 (1, 8): error 507899 (E507899: InplaceFillScalar: "
          "the device is lost)");
    CHECK(message_of<DeviceError>(fill) ==
          "[ascend] NPU 0 can't be used any more: error 507899 (E507899: InplaceFillScalar: the device is lost)");
  });
  CHECK(leaks() == "");
}

TEST_CASE("ascend device: spans of a profile close where the device has failed") {
  on_stand_in([] {
    Npu dev;
    Profile profile;
    dev.set_profile(&profile);
    Tensor<Npu, float> x(dev, 1, 8);
    const auto step = [&] {
      const ProfileScope<Npu> whole(dev, Profile::Kind::step, "step");
      const ProfileScope<Npu> part(dev, Profile::Kind::part, "part");
      kernel::fill(dev, x.view(), 1.0);
    };
    step();
    CHECK(profile.steps() == 1);
    CHECK_FALSE(profile.wants(Profile::Kind::part));
    set("lose_device_at", 1);
    step();
    CHECK(profile.steps() == 1);
    CHECK_FALSE(profile.wants(Profile::Kind::part));  // all are closed
    dev.set_profile(nullptr);
  });
  CHECK(leaks() == "");
}

TEST_CASE("ascend device: what an operator refuses is told with its name and tensors, and leaves nothing") {
  on_stand_in([] {
    Npu dev;
    Tensor<Npu, bf16> x(dev, 2, 16), y(dev, 3, 32);
    Tensor<Npu, float> z(dev, 2, 32);
    kernel::fill(dev, x.view(), 1.0);
    dev.synchronize();
    auto& operators = dev.toolkit().operators;
    const std::string text = message_of<DeviceError>(
        [&] { ascend::launch(dev, operators.mm, x.view(), y.view(), z.view(), ascend::KEEP_DTYPE); });
    CAPTURE(text);
    CHECK(holds(text,
                "[ascend] NPU 0: the operator Mm of bfloat16 (2, 16), bfloat16 (3, 32), float32 (2, 32): error "
                "161002 (E161002: aclnnMmGetWorkspaceSize: "));
    CHECK(holds(message_of<DeviceError>([&] {
                  ascend::launch(dev, operators.cat, std::vector<ascend::Operand>{x.view(), y.view()}, std::int64_t{0},
                                 x.view());
                }),
                "the operator Cat of bfloat16 (2, 16), bfloat16 (3, 32), bfloat16 (2, 16): error 161002"));
    set("missing_kernels", 1);
    const std::string missing = message_of<DeviceError>([&] { kernel::fill(dev, x.view(), 1.0); });
    set("missing_kernels", 0);
    CHECK(holds(missing, ": error 561112 ("));
    CHECK(holds(missing, "; install the toolkit's operator package for this kind of NPU"));
    CHECK(descriptions_left() == "");
    CHECK(added(dev, 1)[0] == 2);
    CHECK(descriptions_left() == "");
  });
}

TEST_CASE("ascend device: an operator for whose workspace there is no memory leaves nothing") {
  on_stand_in([] {
    Npu dev;
    Tensor<Npu, bf16> x(dev, 16, 16), y(dev, 16, 16);
    set("fail_allocations_from", 1);
    const auto multiply = [&] {
      ascend::launch(dev, dev.toolkit().operators.mm, x.view(), x.view(), y.view(), ascend::KEEP_DTYPE);
    };
    CHECK(holds(message_of<DeviceError>(multiply), "[ascend] NPU 0 is out of memory: "));
    set("fail_allocations_from", -1);
    CHECK(descriptions_left() == "");
  });
}

TEST_CASE("ascend attention: sequences share a call where they lie end to end, and as many as it takes") {
  using kernel::Segment;
  const auto ends = [](const std::vector<ascend::PackedSegments>& packs) {
    std::vector<std::vector<std::int64_t>> all;
    for (const auto& pack : packs) {
      all.push_back(pack.query_ends);
      all.push_back(pack.key_ends);
      all.push_back({pack.queries.begin, pack.queries.end, pack.keys.begin, pack.keys.end});
    }
    return all;
  };
  const std::vector<Segment> queries{{0, 2}, {2, 2}, {2, 3}, {5, 9}, {9, 10}},
      keys{{0, 4}, {4, 4}, {4, 9}, {9, 13}, {20, 25}};
  using Ends = std::vector<std::vector<std::int64_t>>;
  CHECK(ends(ascend::packed(queries, keys)) == Ends{{2, 3},
                                                    {4, 9},
                                                    {0, 3, 0, 9},  // nothing of the empty one
                                                    {4},
                                                    {4},
                                                    {5, 9, 9, 13},  // rows between that are nobody's
                                                    {1},
                                                    {5},
                                                    {9, 10, 20, 25}});  // or keys
  std::vector<Segment> many;
  for (Index i = 0; i < 4500; ++i) many.push_back({i, i + 1});
  const auto packs = ascend::packed(many, many);
  REQUIRE(packs.size() == 3);
  CHECK(packs[1].query_ends.size() == 2000);
  CHECK(packs[1].query_ends.back() == 2000);
  CHECK(packs[2].queries.begin == 4000);
  CHECK(packs[2].key_ends.back() == 500);
}

TEST_CASE("ascend device: whether products write float32 is tried, and both ways are right") {
  on_stand_in([] {
    for (const int said : {1, 0, 2, 3}) {
      CAPTURE(said);
      set("fp32_output", said);
      const bool wide = said == 1;
      {
        const Quiet quiet;
        Npu dev;
        CHECK(dev.state<ascend::Products>().writes_float<bf16>() == wide);
        CHECK(dev.state<ascend::Products>().writes_float<f16>() == wide);
        CHECK(descriptions_left() == "");
        const std::string operator_mm = "[ascend] NPU 0: the operator Mm ",
                          narrow = "; products of bfloat16 are rounded to it before they are added up in float32\n";
        CHECK(quiet.said(operator_mm + "writes no float32 results of bfloat16" + narrow) == (said == 0));
        const auto gives = [&](const char* sum) {
          return quiet.said(operator_mm + "gives wrong float32 results, " + sum + " as the sum of 2049 ones" + narrow);
        };
        CHECK(gives("1024.5") == (said == 2));
        CHECK(gives("2048") == (said == 3));  // rounded, and then widened
        CHECK(quiet.text.empty() == wide);
        // 1 + 2^-9 is no bfloat16, in which such a sum is rounded.
        Matrix<Npu, bf16> a(dev, 1, 2, {bf16(1.0f), bf16(0x1p-9f)}), b(dev, 1, 2, {bf16(1.0f), bf16(1.0f)});
        Tensor<Npu, float> c(dev, 1, 1);
        kernel::fill(dev, c.view(), 3.0);
        kernel::gemm(dev, kernel::Form::nt, a.in(), b.in(), c.view(), 1.0, false);
        CHECK(to_host(dev, c.view())[0] == (wide ? 1 + 0x1p-9f : 1.0f));
        kernel::gemm(dev, kernel::Form::nt, a.in(), b.in(), c.view(), 2.0, true);
        CHECK(to_host(dev, c.view())[0] == (wide ? 3 + 3 * 0x1p-9f : 3.0f));
      }
    }
    set("fp32_output", 1);
  });
}

TEST_CASE("ascend device: a scale is taken as it is, by one kernel where the type has one for it") {
  on_stand_in([] {
    Npu dev;
    const auto scaled = [&]<class T>(T, double factor, std::uint64_t launches) {
      CAPTURE(factor);
      const std::vector<T> numbers{T(1.0f), T(1.5f), T(-3.0f), T(0.375f)};
      Matrix<Npu, T> x(dev, 1, 4, numbers), y(dev, 1, 4, 1);
      const StandInCounts before = stand_in_counts();
      kernel::convert(dev, x.in(), y.view(), factor);
      const StandInCounts after = stand_in_counts();
      CHECK(after.launches - before.launches == launches);
      CHECK(after.casts == before.casts);
      const auto given = y.host();
      for (std::size_t i = 0; i < given.size(); ++i)
        CHECK(real(given[i]) == real(rounded<T>(real(numbers[i]) * static_cast<double>(static_cast<float>(factor)))));
    };
    for (const double factor : {0.5, 1.0017361, 0.3}) {
      scaled(float(), factor, 1);
      scaled(bf16(), factor, 1);
      scaled(f16(), factor, factor == 0.5 ? 1 : 3);  // whose kernel would round the factor
    }
  });
}

TEST_CASE("ascend device: what is staged finds room again after memory for it was short") {
  on_stand_in([] {
    Npu dev;
    constexpr Index many = Index{1} << 19;  // more than a block of Staging has
    Tensor<Npu, float> x(dev, 1, many), y(dev, 1, 8);
    const std::vector<float> large(many, 2), small(8, 3), other(8, 4);
    copy_staged<Npu, float>(dev, small, y.view());
    for (int i = 0; i < 2; ++i) {
      set("fail_host_allocation", 1);
      CHECK(holds(message_of<DeviceError>([&] { copy_staged<Npu, float>(dev, large, x.view()); }),
                  "gives no page-locked memory"));
    }
    copy_staged<Npu, float>(dev, other, y.view());
    CHECK(to_host(dev, y.view()) == other);
    copy_staged<Npu, float>(dev, large, x.view());
    CHECK(to_host(dev, x.view()) == large);
  });
}

TEST_CASE("ascend device: blocks are decoded in parts, which begin on 32 bytes whatever a row's bytes are") {
  on_stand_in([] {
    constexpr Index rows = 45;
    for (const Index cols : {Index{32}, Index{96}, Index{256}}) {  // rows of 34, 102 and 272 bytes
      CAPTURE(cols);
      std::vector<std::byte> bytes;
      const Index row_bytes = cols / 32 * 34;
      for (Index i = 0; i < rows * row_bytes; ++i) {
        const Index at = i % row_bytes;
        // Quanta, and then scales of about 2^-6.
        bytes.push_back(at < cols ? std::byte(i * 37 % 251) : at % 2 == 0 ? std::byte(i % 256) : std::byte{0x24});
      }
      const auto decoded = [&](Index together) {
        Npu dev(DeviceSettings{.chunks = {.decoded = together}});
        const StoredMatrix<Npu> stored(dev, bytes, DType::q8_0, rows, cols);
        Matrix<Npu, bf16> y(dev, rows, cols, 3);
        const StandInCounts before = stand_in_counts();
        kernel::decode<Npu, bf16>(dev, stored.view(), y.view());
        CHECK(stand_in_counts().launches - before.launches == (together < rows * cols ? 6 : 2));
        return doubles(y.host());
      };
      const std::vector<double> whole = decoded(2 * rows * cols);
      CHECK(*std::max_element(whole.begin(), whole.end()) > 1);
      for (const Index together : {Index{1}, 20 * cols, 31 * cols}) CHECK(decoded(together) == whole);
    }
  });
}

TEST_CASE("ascend device: gradients are scaled in parts") {
  on_stand_in([] {
    constexpr Index count = 45;
    const auto stepped = [](std::int64_t together) {
      Npu dev(DeviceSettings{.chunks = {.scaled = together}});
      Matrix<Npu, float> grad(dev, 1, count, 1), value(dev, 1, count, 2), m(dev, 1, count, 3), v(dev, 1, count, 4);
      kernel::fill(dev, v.view(), 0.25);
      const StandInCounts before = stand_in_counts();
      kernel::adamw<float>(dev, {.learning_rate = 0.1, .weight_decay = 0.1, .gradient_scale = 0.3, .step = 2},
                           grad.in(), value.view(), m.view(), v.view());
      CHECK(stand_in_counts().launches - before.launches == (together < count ? 6 : 2));
      std::vector<std::vector<float>> all;
      for (auto* one : {&value, &m, &v}) all.push_back(one->host());
      return all;
    };
    const auto whole = stepped(count);
    CHECK(stepped(16) == whole);
  });
}

TEST_CASE("ascend device: squares are formed of whole blocks at a time") {
  on_stand_in([] {
    constexpr Index block = kernel::sum_block, count = 5 * block + 7;
    const auto sums = [](std::int64_t together) {
      Npu dev(DeviceSettings{.chunks = {.squared = together}});
      Matrix<Npu, float> x(dev, 1, count, 1), out(dev, 1, 6, 2);
      const StandInCounts before = stand_in_counts();
      kernel::block_sums_of_squares(dev, x.in(), out.view());
      return std::pair(out.host(), stand_in_counts().launches - before.launches);
    };
    const auto [whole, launches] = sums(5 * block);
    auto last = launches;
    for (const std::int64_t together : {3 * block + 5, 2 * block, Index{1}}) {  // ever more parts
      CAPTURE(together);
      const auto [cut, more] = sums(together);
      CHECK(cut == whole);
      CHECK(more > last);
      last = more;
    }
  });
}

TEST_CASE("ascend device: without its operator the rotary embedding is the same, within roundings") {
  on_stand_in([] {
    const Environment without("LORA_ASCEND_WITHOUT", "RotaryPositionEmbedding");
    ascend::Toolkit lacking;
    CHECK(lacking.missing_operators().empty());
    CHECK_FALSE(lacking.operators.rotary_position_embedding.there());
    Npu dev, other(DeviceSettings{}, lacking);
    const auto turned = [](Npu& on, kernel::Rotation rotation) {
      Matrix<Npu, float> x(on, 5, 12, 1, 4), cosines(on, 9, 3, 2), sines(on, 9, 3, 3), y(on, 5, 12, 4, 8);
      Matrix<Npu, std::int32_t> at(on, 1, 5, std::vector<std::int32_t>{8, 0, 3, 1, 2});
      kernel::rope<Npu, float>(on, x.in(), cosines.in(), sines.in(), at.in(), rotation, y.view());
      return y.host();
    };
    for (const auto rotation : {kernel::Rotation::forward, kernel::Rotation::inverse}) {
      const auto expected = turned(dev, rotation), values = turned(other, rotation);
      // Two products and their sum, each rounded, of numbers up to 1.
      for (std::size_t i = 0; i < values.size(); ++i) CHECK(std::fabs(values[i] - expected[i]) <= 4 * 0x1p-24f);
    }
    CHECK(turned(dev, kernel::Rotation::forward) != turned(dev, kernel::Rotation::inverse));
  });
}

TEST_CASE("ascend device: rows of the rotary embedding are those of its own positions, tables and type") {
  on_stand_in([] {
    Npu dev;
    constexpr Index rows = 4, width = 6, half = 3;
    const auto turned = [&]<class T>(T, std::uint64_t tables, const std::vector<std::int32_t>& at, Npu& on) {
      Matrix<Npu, T> x(on, rows, width, 1), y(on, rows, width, 4);
      Matrix<Npu, float> cosines(on, 9, half, 2 + tables), sines(on, 9, half, 3 + tables);
      Matrix<Npu, std::int32_t> positions(on, 1, rows, at);
      kernel::rope<Npu, T>(on, x.in(), cosines.in(), sines.in(), positions.in(), kernel::Rotation::forward, y.view());
      return doubles(y.host());
    };
    const std::vector<std::int32_t> at[] = {{0, 1, 2, 3}, {8, 7, 6, 5}};
    // In memory that is used again at once, each time with other numbers.
    for (int round = 0; round < 2; ++round)
      for (const std::uint64_t tables : {0u, 10u})
        for (const auto& positions : at) {
          Npu fresh;
          CHECK(turned(float(), tables, positions, dev) == turned(float(), tables, positions, fresh));
          CHECK(turned(bf16(), tables, positions, dev) == turned(bf16(), tables, positions, fresh));
        }
    // The same numbers at the same places of a pass that goes on: prepared once.
    Matrix<Npu, float> x(dev, rows, width, 1), y(dev, rows, width, 4), cosines(dev, 9, half, 2), sines(dev, 9, half, 3);
    Matrix<Npu, std::int32_t> positions(dev, 1, rows, at[0]);
    const auto launches = [&] {
      const auto before = stand_in_counts().launches;
      kernel::rope<Npu, float>(dev, x.in(), cosines.in(), sines.in(), positions.in(), kernel::Rotation::forward,
                               y.view());
      return stand_in_counts().launches - before;
    };
    const auto first = launches();
    CHECK(first > 1);
    CHECK(launches() == 1);
    copy_from_host<Npu, std::int32_t>(dev, at[1], positions.view());
    CHECK(launches() == first);
    // In another type, of the same copies.
    Matrix<Npu, bf16> narrow(dev, rows, width, 1), turned_narrow(dev, rows, width, 4);
    kernel::rope<Npu, bf16>(dev, narrow.in(), cosines.in(), sines.in(), positions.in(), kernel::Rotation::forward,
                            turned_narrow.view());
    CHECK(doubles(turned_narrow.host()) == turned(bf16(), 0, at[1], dev));
  });
}

TEST_CASE("ascend device: rows of the rotary embedding that there was no memory for are prepared again") {
  on_stand_in([] {
    const auto turned = [](bool fails) {
      Npu dev;
      Matrix<Npu, float> x(dev, 2, 6, 1), cosines(dev, 9, 3, 2), sines(dev, 9, 3, 3), y(dev, 2, 6, 4);
      Matrix<Npu, std::int32_t> at(dev, 1, 2, std::vector<std::int32_t>{8, 1});
      const auto rope = [&] {
        kernel::rope<Npu, float>(dev, x.in(), cosines.in(), sines.in(), at.in(), kernel::Rotation::forward, y.view());
      };
      if (fails) {
        set("fail_allocations_from", 1);
        CHECK(holds(message_of<DeviceError>(rope), "is out of memory"));
        set("fail_allocations_from", -1);
      }
      rope();
      return y.host();
    };
    CHECK(turned(true) == turned(false));
  });
}

TEST_CASE("ascend toolkit: it is begun once in a process, and tells what it lacks") {
  (void)stand_in_counts();  // which says where the libraries are
  const ascend::Toolkit& first = ascend::Toolkit::get();
  CHECK(first.runs());
  const ascend::Toolkit second;
  CHECK(second.runs());
  CHECK(second.problem() == "");
  CHECK(second.operator_problem() == "");
  CHECK(second.missing_operators() == "");
  CHECK(second.version() == "1.13.0");
  CHECK(second.device_count() == 2);
  const Environment without("LORA_ASCEND_WITHOUT", "Mm,RotaryPositionEmbedding,Amax");
  ascend::Toolkit lacking;
  CHECK(lacking.missing_operators() == "Mm (left out by LORA_ASCEND_WITHOUT), Amax (left out by LORA_ASCEND_WITHOUT)");
  CHECK(holds(message_of<DeviceError>([&] { const Npu dev(DeviceSettings{}, lacking); }),
              "libopapi.so lacks operators that nothing stands in for: Mm (left out by LORA_ASCEND_WITHOUT), Amax"));
  // Four are listed, and the others counted.
  const auto listed = [](const char* left_out) {
    const Environment some("LORA_ASCEND_WITHOUT", left_out);
    return ascend::Toolkit().missing_operators();
  };
  const std::string four = listed("Mm,Mul,Cat,Amax");
  CHECK(std::count(four.begin(), four.end(), '(') == 4);
  CHECK_FALSE(holds(four, " more"));
  const std::string six = listed("Mm,Mul,Cat,Amax,Slice,InplaceAdd");
  CHECK(std::count(six.begin(), six.end(), '(') == 4);
  CHECK(six.ends_with(") and 2 more"));
}

TEST_CASE("ascend toolkit: its libraries come from the folder that is named, and what an old one lacks is told") {
  (void)stand_in_counts();
  constexpr std::string_view names[] = {"libascendcl.so", "libno.so"};
  CHECK(ascend::Libraries(names).names() == LORA_STAND_IN "/libascendcl.so");
  {
    const Environment folder("LORA_ASCEND_LIBRARIES", "/nowhere");
    CHECK_FALSE(ascend::Libraries(names).any());
    const ascend::Toolkit none;
    CHECK_FALSE(none.runs());
    CHECK(holds(none.problem(), "/nowhere/libascendcl.so: cannot open shared object file"));
    const Quiet quiet;
    CHECK_FALSE(ascend::choose({}, true, "auto", none));
    CHECK(quiet.said("device auto: no Ascend toolkit can be opened: " + none.problem() + "; computing on the CPU"));
    CHECK(message_of<DeviceError>([&] { (void)ascend::choose({}, true, "ascend910b3", none); }) ==
          "key device_type: given ascend910b3, but no Ascend toolkit can be opened: " + none.problem());
  }
  const Environment folder("LORA_ASCEND_LIBRARIES", LORA_OLD_TOOLKIT);
  const ascend::Toolkit old;
  CHECK(old.problem() == LORA_OLD_TOOLKIT "/libascendcl.so has no function aclrtGetVersion");
  const Quiet quiet;
  CHECK_FALSE(ascend::choose({}, true, "auto", old));
  CHECK(quiet.said("device auto: there is an Ascend toolkit, but it can't be used: " + old.problem() +
                   "; computing on the CPU"));
}

TEST_CASE(
    "ascend toolkit: the old library of operators is opened where newer ones lack some, last, and otherwise not") {
  (void)stand_in_counts();
  const io::Path stand_in = LORA_STAND_IN;
  const std::string newer[] = {"libopapi_math.so", "libopapi_nn.so", "libopapi_transformer.so"}, old = "libopapi.so";
  // Names of the libraries that are opened, behind that of what they need, where the newer ones are links to such a
  // file.
  const auto opened = [&](const char* newer_ones, const Environment& without) {
    const TempFolder temp;
    for (const std::string& name : {std::string("libascendcl.so"), std::string("libnnopbase.so"), old})
      std::filesystem::create_symlink(stand_in / name, temp / name);
    if (newer_ones != nullptr)
      for (const std::string& name : newer) std::filesystem::create_symlink(stand_in / newer_ones, temp / name);
    const Environment folder("LORA_ASCEND_LIBRARIES", temp.path().native());
    const ascend::Toolkit toolkit;
    CHECK(toolkit.operator_problem() == "");
    (void)without;
    std::string names = toolkit.operator_names();
    for (auto at = names.find(temp.path().native()); at != names.npos; at = names.find(temp.path().native()))
      names.erase(at, temp.path().native().size() + 1);
    return names;
  };
  const Environment all("LORA_ASCEND_WITHOUT", "");
  CHECK(opened(nullptr, all) == "libnnopbase.so, libopapi.so");
  const std::string three = "libnnopbase.so, libopapi_math.so, libopapi_nn.so, libopapi_transformer.so";
  CHECK(opened("libopapi.so", all) == three);
  CHECK(opened("libhccl.so", all) == three + ", libopapi.so");
  CHECK(opened("libopapi.so", Environment("LORA_ASCEND_WITHOUT", "Mm,RotaryPositionEmbedding")) == three);
}

TEST_CASE("ascend toolkit: values of the environment that say nothing are refused") {
  (void)stand_in_counts();
  for (const char* value : {"NoSuchOperator", "Amax,NoSuchOperator", "Amax, NoSuchOperator", "amax", "aclnnAmax"}) {
    const Environment without("LORA_ASCEND_WITHOUT", value);
    const std::string text = message_of<ConfigError>([] { const ascend::Toolkit toolkit; });
    CHECK(holds(text, "the environment's LORA_ASCEND_WITHOUT names '"));
    CHECK(holds(text, "', which is no operator that is called; expected names such as "));
  }
  {
    const Environment without("LORA_ASCEND_WITHOUT", ",Amax,");
    CHECK(holds(ascend::Toolkit().missing_operators(), "Amax"));
  }
  for (const char* value : {"abc", "-1", "0", "1.5", "10s", " 1", "99999999999", "2147484"}) {
    const Environment timeout("LORA_ASCEND_TIMEOUT", value);
    CHECK(message_of<ConfigError>([] { const Npu dev; }) ==
          concat("the environment's LORA_ASCEND_TIMEOUT is '", value, "'; expected whole seconds from 1 to 2147483"));
  }
  for (const char* value : {"1", "2147483", ""}) {
    const Environment timeout("LORA_ASCEND_TIMEOUT", value);
    const Npu dev;
    CHECK(dev.name() == "ascend:0");
  }
}

TEST_CASE("ascend choice: a launcher's number picks one of the list, or of all") {
  (void)stand_in_counts();
  const std::vector<int> none, one{1}, two{1, 0};
  const auto id = [](const std::vector<int>& ids) { return ascend::choose(ids, false, "auto")->id; };
  const auto refusal = [](const std::vector<int>& ids) {
    return message_of<ConfigError>([&] { (void)ascend::choose(ids, false, "auto"); });
  };
  CHECK(id(none) == 0);
  CHECK(id(one) == 1);
  CHECK(holds(refusal(two),
              "key device: given 2 NPUs, one for each process, but no launcher has set LOCAL_RANK, which "
              "picks one; allowed: one NPU, such as ascend:1"));
  for (const int rank : {0, 1, 2}) {
    const Environment local("LOCAL_RANK", std::to_string(rank));
    if (rank < 2) {
      CHECK(id(none) == rank);
      CHECK(id(two) == two[static_cast<std::size_t>(rank)]);
    } else {
      CHECK(refusal(none) ==
            "the environment's LOCAL_RANK is 2, but the runtime counts 2 NPUs; expected one for each process");
      CHECK(refusal(two) == "key device: given 2 NPUs, but LOCAL_RANK is 2; expected one for each process");
    }
    CHECK(id(one) == 1);  // as a run that a launcher started writes it down
  }
  for (const char* value : {"x", "-1", "1x", "99999999999"}) {
    const Environment local("LOCAL_RANK", value);
    CHECK(refusal(none) ==
          concat("the environment's LOCAL_RANK is '", value, "'; expected a number from 0 on, as launchers set it"));
  }
}

TEST_CASE("ascend choice: a family has the kinds whose names go on with a number") {
  for (const char* name : {"Ascend910B1", "Ascend910B2C", "Ascend910B4-1", "ascend910b"})
    CHECK(ascend::is_of_kind(name, "ascend910b"));
  for (const char* name : {"Ascend910A", "Ascend910_9392", "Ascend910", "Ascend310P3", ""})
    CHECK_FALSE(ascend::is_of_kind(name, "ascend910b"));
  CHECK_FALSE(ascend::is_of_kind("Ascend910B3", "ascend"));
  CHECK_FALSE(ascend::is_of_kind("Ascend910B3", ""));
  CHECK_FALSE(ascend::is_of_kind("Ascend910B3", "ascend910"));
}

TEST_CASE("ascend choice: NPUs of another kind are refused") {
  (void)stand_in_counts();
  CHECK(ascend::choose({}, false, "ascend910b3").has_value());
  CHECK(ascend::choose({}, true, "ASCEND910B3").has_value());
  for (const char* family : {"ascend910b", "Ascend910B"}) CHECK(ascend::choose({}, false, family).has_value());
  for (const char* type : {"ascend910b1", "ascend910b31", "ascend910", "ascend", "ascend9", "910b", "nonsense"})
    CHECK(message_of<DeviceError>([&] { (void)ascend::choose({}, false, type); }) ==
          concat("key device_type: given ", type, ", but the NPUs here are Ascend910B3"));
}

TEST_CASE("ascend findings: NPUs of another kind are missing where a run would take them") {
  (void)stand_in_counts();
  using State = doctor::Finding::State;
  const auto kind = [](bool needed, std::string_view type) -> std::optional<doctor::Finding> {
    for (const doctor::Finding& finding : doctor::examine_ascend(needed, type))
      if (finding.part == "NPU kind") return finding;
    return {};
  };
  for (const bool needed : {true, false}) {
    CHECK_FALSE(kind(needed, "auto"));
    CHECK(kind(needed, "ascend910b3")->state == State::ok);
    CHECK(kind(needed, "ascend910b")->state == State::ok);
    CHECK(kind(needed, "ascend910b1")->state == State::missing);
    CHECK(kind(needed, "ascend910b1")->found ==
          "key device_type: given ascend910b1, but the NPUs here are Ascend910B3");
  }
  const Environment without("LORA_ASCEND_WITHOUT", "Mm");  // then device auto is the CPU
  CHECK(kind(true, "ascend910b1")->state == State::missing);
  CHECK(kind(false, "ascend910b1")->state == State::missing);  // a run refuses to take the CPU for it
}

TEST_CASE("ascend findings: the NPU that is chosen must be there and work, others need not") {
  (void)stand_in_counts();
  using State = doctor::Finding::State;
  const auto state = [](const std::vector<int>& ids, std::string_view part, bool needed = true) {
    for (const doctor::Finding& finding : doctor::examine_ascend(needed, "auto", ids))
      if (finding.part == part) return finding.state;
    FAIL("no such part");
    return State::note;
  };
  CHECK(state({}, "NPU choice") == State::ok);
  CHECK(state({1}, "NPU choice") == State::ok);
  CHECK(state({9}, "NPU choice") == State::missing);
  CHECK(state({0, 1}, "NPU choice") == State::missing);
  for (const char* name : {"LOCAL_RANK", "WORLD_SIZE"}) {
    const Environment launcher(name, "7");
    CHECK(state({}, "NPU choice") == State::missing);
    CHECK(state({}, "NPU choice", false) == State::missing);  // an NPU would be taken, and refused
  }
  {
    const Environment timeout("LORA_ASCEND_TIMEOUT", "abc");
    CHECK(state({}, "NPU choice") == State::missing);
  }
  const StandInSetting broken("set_device_error", 1, -1);
  CHECK(state({0}, "NPU 0") == State::ok);
  CHECK(state({0}, "NPU 1") == State::note);
  CHECK(state({1}, "NPU 1") == State::missing);
}

}  // namespace ascend_device_test
