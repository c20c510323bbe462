// NPUs that HCCL connects: what comes of gathers and exchanges, and what is said where they can't be connected. Ranks
// are threads with an NPU of the stand-in each.

#include "lora/ascend/runtime/group.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "lora/ascend/kernels.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/stand_in.hpp"
#include "support/temp_folder.hpp"
#include "support/thread_ranks.hpp"

namespace ascend_group_test {

using namespace lora;
using namespace lora::test;

namespace {

using Npu = ascend::Device;

/// What the threads' hosts tell each other.
class Hosts final : public comm::HostRanks {
 public:
  explicit Hosts(ThreadRank& ranks, bool apart = false) : ranks_(ranks), apart_(apart) {}
  std::string host() const override { return "node"; }  // as containers often are called, all of them
  std::string boot() const override { return concat("boot ", apart_ ? rank() : 0); }
  comm::Traffic traffic() const override { return {1.5, 3, 40}; }
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  void gather_on_host(std::span<std::byte> bytes, std::span<const Index> begins) override {
    ranks_.gather_on_host(bytes, begins);
  }
  void exchange_on_host(std::span<const std::span<std::byte>>, std::span<const int>, std::span<const Index>,
                        std::span<const std::span<std::byte>>) override {
    FAIL("NPUs exchange by themselves");
  }
  void wait_at_most(std::chrono::duration<double>) override {}

 private:
  ThreadRank& ranks_;
  bool apart_;  // on a machine each
};

constexpr std::chrono::duration<double> patience{60};

/// f(dev, group) as each of `ranks` ranks; what each ended with.
std::vector<std::string> try_groups(
    int ranks, const std::function<void(Npu&, ascend::Group&)>& f,
    const std::function<int(int)>& npu_of = [](int rank) { return rank; }, bool apart = false) {
  (void)stand_in_counts();
  const StandInSetting devices("devices", 8, 2);
  return try_ranks(ranks, [&](ThreadRank& rank) {
    Hosts hosts(rank, apart);
    Npu dev(ascend::DeviceSettings{.id = npu_of(rank.rank()), .threads = 1});
    ascend::Group group(dev, hosts, patience);
    f(dev, group);
  });
}

void expect_all_well(const std::vector<std::string>& ends) {
  for (const std::string& end : ends) CHECK(end == "");
}

/// Number i of slab `slab` as rank `rank` has it.
float number(int rank, Index slab, Index i) { return static_cast<float>(1000 * rank + 100 * slab + i % 97); }

Tensor<Npu, float> slab_of(Npu& dev, int rank, Index slab, Index size) {
  std::vector<float> numbers;
  for (Index i = 0; i < size; ++i) numbers.push_back(number(rank, slab, i));
  return tensor_of<float>(dev, numbers, 1, size);
}

}  // namespace

TEST_CASE("ascend group: a gather has each rank's part, uneven, empty and larger than what is moved at a time") {
  on_stand_in([&] {
    for (const int ranks : {1, 2, 3, 8}) {
      CAPTURE(ranks);
      expect_all_well(try_groups(ranks, [&](Npu& dev, ascend::Group& group) {
        const Index large = ascend::Group::piece / 4 + 1024;
        for (const Index first : {Index{32}, Index{5}, Index{0}, ranks == 2 ? large : Index{48}}) {
          std::vector<Index> begins{0};
          for (Index r = 0; r < ranks; ++r) begins.push_back(begins.back() + first + 3 * r);
          Tensor<Npu, float> slab = slab_of(dev, group.rank(), 0, begins.back());
          group.all_gather(dev, slab.view(), begins);
          const std::vector<float> all = to_host(dev, slab.view());
          bool right = true;
          for (int r = 0; r < ranks; ++r)
            for (Index i = begins[static_cast<std::size_t>(r)]; i < begins[static_cast<std::size_t>(r) + 1]; ++i)
              right = right && all[static_cast<std::size_t>(i)] == number(r, 0, i);
          CHECK(right);
        }
        CHECK((ranks == 1 || group.traffic().sent_bytes > 0));
      }));
    }
  });
}

TEST_CASE("ascend group: a gather beside kernels begins behind them and what was copied, and those behind it wait") {
  on_stand_in([&] {
    for (const int ranks : {2, 3}) {
      CAPTURE(ranks);
      expect_all_well(try_groups(ranks, [&](Npu& dev, ascend::Group& group) {
        const auto own = static_cast<std::size_t>(group.rank());
        const Index large = ascend::Group::piece / 4 + 1024;
        for (const Index first : {Index{128}, ranks == 2 ? large : Index{256}, Index{128}}) {
          std::vector<Index> begins{0};
          for (Index r = 0; r < ranks; ++r) begins.push_back(begins.back() + first + 16 * r);
          const Index begin = begins[own], count = begins[own + 1] - begin, half = count / 32 * 16;
          Tensor<Npu, float> numbers = slab_of(dev, group.rank(), 0, begins.back());
          Tensor<Npu, float> slab(dev, 1, begins.back());
          dev.synchronize();
          const auto bytes = [](Index elements) { return static_cast<std::size_t>(elements) * sizeof(float); };
          const auto part = [&](const View<Npu, float>& whole, Index at) { return whole.data() + begin + at; };
          dev.copy_on_device(part(slab.view(), 0), part(numbers.view(), 0), bytes(half));
          dev.copy_on_device(part(slab.view(), half), part(numbers.view(), half), bytes(count - half), Stream::copy);
          group.all_gather(dev, slab.view(), begins, Stream::copy);
          wait_and_release(dev, Stream::compute, dev.record(Stream::copy));
          const std::vector<float> all = to_host(dev, slab.view());
          bool right = true;
          for (int r = 0; r < ranks; ++r)
            for (Index i = begins[static_cast<std::size_t>(r)]; i < begins[static_cast<std::size_t>(r) + 1]; ++i)
              right = right && all[static_cast<std::size_t>(i)] == number(r, 0, i);
          CHECK(right);
        }
      }));
    }
  });
}

TEST_CASE("ascend group: kernels that are queued behind a gather beside them need not wait for other ranks") {
  on_stand_in([&] {
    std::atomic<bool> done = false;
    expect_all_well(try_groups(2, [&](Npu& dev, ascend::Group& group) {
      const std::vector<Index> begins{0, 64, 128};
      Tensor<Npu, float> slab = slab_of(dev, group.rank(), 0, 128), other = slab_of(dev, 5, 0, 64), twice(dev, 1, 64);
      dev.synchronize();
      if (group.rank() == 1)
        while (!done) std::this_thread::yield();  // the first has ended its kernel
      group.all_gather(dev, slab.view(), begins, Stream::copy);
      if (group.rank() == 0) {
        kernel::convert(dev, other.view(), twice.view(), 2);
        const Event behind = dev.record(Stream::compute);
        dev.wait(behind);
        dev.release(behind);
        done = true;
      }
      dev.synchronize();
      CHECK(to_host(dev, slab.view())[70] == number(1, 0, 70));
    }));
  });
}

TEST_CASE("ascend group: an exchange brings each rank its range of every slab, whoever has how many") {
  on_stand_in([&] {
    for (const auto& owners : {std::vector<int>{0, 1}, {0, 0, 1}, {0, 1, 1, 2}, {2, 2, 2}}) {
      const int ranks = owners.back() + 1;
      CAPTURE(owners.size());
      expect_all_well(try_groups(ranks, [&](Npu& dev, ascend::Group& group) {
        std::vector<Index> begins{0};  // of the second of three ranks there is nothing
        for (Index r = 0; r < ranks; ++r) begins.push_back(begins.back() + (r == 1 && ranks == 3 ? 0 : 16 * (r + 1)));
        const auto own = static_cast<std::size_t>(group.rank());
        const Index begin = begins[own], count = begins[own + 1] - begin;
        std::vector<Tensor<Npu, float>> slabs, received;
        std::vector<View<Npu, float>> mine, parts;
        for (std::size_t i = 0; i < owners.size(); ++i) {
          received.push_back(slab_of(dev, 9, 0, std::max<Index>(count, 1)));
          parts.push_back(received.back().view().col_slice(0, count));
          if (owners[i] != group.rank()) continue;
          slabs.push_back(slab_of(dev, group.rank(), static_cast<Index>(i), begins.back()));
          mine.push_back(slabs.back().view());
        }
        group.exchange(dev, std::span<const View<Npu, float>>(mine), std::span<const int>(owners), begins,
                       std::span<const View<Npu, float>>(parts));
        for (std::size_t i = 0; i < owners.size() && count > 0; ++i) {
          const std::vector<float> numbers = to_host(dev, parts[i]);
          bool right = true;
          for (Index k = 0; k < count; ++k)
            right =
                right && numbers[static_cast<std::size_t>(k)] == number(owners[i], static_cast<Index>(i), begin + k);
          CHECK(right);
        }
      }));
    }
  });
}

TEST_CASE("ascend group: it counts what it moves beside what its hosts do, but nothing of the links' first numbers") {
  on_stand_in([&] {
    expect_all_well(try_groups(2, [&](Npu& dev, ascend::Group& group) {
      CHECK(group.host() == "node");
      const auto counted = [&](double sent, double received) {
        CHECK(group.traffic().seconds == 1.5);
        CHECK(group.traffic().sent_bytes == 3 + sent);
        CHECK(group.traffic().received_bytes == 40 + received);
      };
      counted(0, 0);
      // Both give as many bytes as the longer part has, in units of 512.
      Tensor<Npu, float> slab = slab_of(dev, group.rank(), 0, 200);
      group.all_gather(dev, slab.view(), std::vector<Index>{0, 129, 200});
      counted(1024, 1024);
      const Index more = ascend::Group::piece / 4 + 1;
      Tensor<Npu, float> large = slab_of(dev, group.rank(), 0, more);
      group.all_gather(dev, large.view(), std::vector<Index>{0, more, more});
      const auto two = static_cast<double>(ascend::Group::piece + 512);
      counted(1024 + two, 1024 + two);
      // Of three slabs, two of which are the second rank's, each gives the other its part.
      const std::vector<int> owners{1, 0, 1};
      const std::vector<Index> begins{0, 16, 64};
      const Index own = group.rank() == 0 ? 16 : 48;
      std::vector<Tensor<Npu, float>> slabs, received;
      std::vector<View<Npu, float>> mine, parts;
      for (int i = 0; i < 3; ++i) {
        received.push_back(slab_of(dev, 9, 0, own));
        parts.push_back(received.back().view());
        if (owners[static_cast<std::size_t>(i)] != group.rank()) continue;
        slabs.push_back(slab_of(dev, group.rank(), i, 64));
        mine.push_back(slabs.back().view());
      }
      group.exchange(dev, std::span<const View<Npu, float>>(mine), std::span<const int>(owners), begins,
                     std::span<const View<Npu, float>>(parts));
      const double of_first = 4 * 48, of_second = 2 * 4 * 16;
      if (group.rank() == 0)
        counted(1024 + two + of_first, 1024 + two + of_second);
      else
        counted(1024 + two + of_second, 1024 + two + of_first);
      dev.synchronize();
    }));
  });
}

TEST_CASE("ascend group: after a rank's error its NPU says so, and is asked no more") {
  const auto ends = try_groups(2, [](Npu& dev, ascend::Group& group) {
    group.abandon();
    CHECK(message_of<DeviceError>([&] { dev.synchronize(); }) ==
          concat("[ascend] NPU ", group.rank(), " can't be used any more: another rank, or this one, has failed"));
  });
  CHECK(ends == std::vector<std::string>{"", ""});
}

TEST_CASE("ascend group: values of the environment that HCCL reads are taken up to their ends") {
  const auto refusal = [](const char* name, const std::string& value) {
    const Environment set(name, value);
    return message_of<ConfigError>([] { ascend::check_hccl_environment(); });
  };
  struct Range {
    const char* name;
    std::int64_t least, most;
    const char* words;
  };
  for (const Range& one : {Range{"HCCL_CONNECT_TIMEOUT", 120, 7200, "whole seconds from 120 to 7200"},
                           {"HCCL_EXEC_TIMEOUT", 0, 17340, "whole seconds from 0, which is no limit, to 17340"},
                           {"HCCL_IF_BASE_PORT", 1024, 65520, "a port from 1024 to 65520, the first of 32"},
                           {"HCCL_BUFFSIZE", 1, 1048576, "whole MB, at least 1"}}) {
    CAPTURE(one.name);
    for (const std::int64_t value : {one.least, one.most})
      CHECK(refusal(one.name, concat(value)) == "nothing was thrown");
    for (const std::int64_t value : {one.least - 1, one.most + 1})
      CHECK(refusal(one.name, concat(value)) ==
            concat("the environment's ", one.name, " is '", value, "'; expected ", one.words));
  }
  CHECK(refusal("HCCL_IF_IP", "1.2.3") ==
        "the environment's HCCL_IF_IP is '1.2.3'; expected an IP address of this host's, such as 192.168.1.10");
}

TEST_CASE("ascend group: parts that begin where nothing copies are refused") {
  for (const std::string& end : try_groups(2, [](Npu& dev, ascend::Group& group) {
         Tensor<Npu, bf16> slab = tensor_of<bf16>(dev, std::vector<bf16>(40), 1, 40);
         group.all_gather(dev, slab.view(), std::vector<Index>{0, 11, 40});
       }))
    CHECK(holds(end, "[ascend] the part of rank 1 begins at byte 22; expected a multiple of 4"));
  for (const std::string& end : try_groups(2, [](Npu& dev, ascend::Group& group) {
         Tensor<Npu, float> slab = slab_of(dev, group.rank(), 0, 40);
         const std::vector<View<Npu, float>> mine{slab.view()}, parts{slab.view(), slab.view()};
         const std::vector<int> owners{0, 1};
         group.exchange(dev, std::span<const View<Npu, float>>(mine), std::span<const int>(owners),
                        std::vector<Index>{0, 10, 40}, std::span<const View<Npu, float>>(parts));
       }))
    CHECK(holds(end, "[ascend] the part of rank 1 begins at byte 40; expected a multiple of 64"));
}

TEST_CASE("ascend group: what keeps NPUs from being connected is said by all of them") {
  const auto nothing = [](Npu&, ascend::Group&) {};
  for (const std::string& end : try_groups(2, nothing, [](int) { return 1; }))
    CHECK(end ==
          "ranks 0 and 1 both have NPU 1 on node; each needs one of its own: device ascend, or ascend:0,1,..., and a "
          "launcher that tells each process its LOCAL_RANK");
  // Of two machines, which may have one name, the same number is another NPU.
  expect_all_well(try_groups(
      2, nothing, [](int) { return 1; }, true));
  {
    const Environment shown("ASCEND_RT_VISIBLE_DEVICES", "5,3");  // the NPU that a process calls 1
    for (const std::string& end : try_groups(2, nothing, [](int) { return 1; }))
      CHECK(holds(end, "ranks 0 and 1 both have NPU 3 on node; each needs "));
    for (const std::string& end : try_groups(2, nothing, [](int) { return 0; }))
      CHECK(holds(end, "ranks 0 and 1 both have NPU 5 on node; each needs "));
    expect_all_well(try_groups(2, nothing));
  }
  for (const std::string& end : try_groups(4, nothing, [](int rank) { return rank == 3 ? 1 : rank; }))
    CHECK(holds(end, "ranks 1 and 3 both have NPU 1 on node; each needs "));
  {
    (void)stand_in_counts();
    const TempFolder temp;
    const ascend::Toolkit& opened = ascend::Toolkit::get();  // before its folder has another name
    CHECK(opened.runs());
    const Environment folder("LORA_ASCEND_LIBRARIES", temp.path().native());
    for (const std::string& end : try_groups(2, nothing)) {
      CHECK(end.starts_with("[ascend] rank 0 on node: HCCL can't be used: " + temp.path().native() + "/libhccl.so: "));
      CHECK(end.ends_with("; it comes with the toolkit (CANN), and several NPUs need it"));
    }
  }
  for (const auto& [name, value, expected] :
       {std::tuple<const char*, const char*, const char*>{"HCCL_CONNECT_TIMEOUT", "60", "120 to 7200"},
        {"HCCL_EXEC_TIMEOUT", "-1", "from 0"},
        {"HCCL_IF_BASE_PORT", "80", "1024 to 65520"},
        {"HCCL_BUFFSIZE", "200MB", "whole MB"},
        {"HCCL_IF_IP", "eth0", "an IP address of this host's"}}) {
    const std::string variable = name, text = value, words = expected;
    CAPTURE(variable);
    const Environment set(variable.c_str(), text);
    const std::string error = message_of<ConfigError>([] { ascend::check_hccl_environment(); });
    CHECK(holds(error, "the environment's " + variable + " is '" + text + "'; expected "));
    CHECK(holds(error, words));
  }
  {
    const Environment set("HCCL_SOCKET_IFNAME", "=nowhere0,l");
    const std::string error = message_of<ConfigError>([] { ascend::check_hccl_environment(); });
    CHECK(
        error.starts_with("the environment's HCCL_SOCKET_IFNAME is '=nowhere0,l', which selects no network interface "
                          "of this host's; expected one of "));
    CHECK(holds(error + ",", " lo,"));
  }
  for (const char* choice : {"lo", "=nowhere0,lo", "nowhere,l", "^nowhere", ""}) {
    const Environment set("HCCL_SOCKET_IFNAME", choice);
    ascend::check_hccl_environment();
  }
  const std::vector<std::string> names = {"lo", "eth0", "eth1"};
  for (const char* choice : {"eth", "=eth1", "en,lo", "^eth", "^=eth0", "^lo,eth0", "^=lo,eth"})
    CHECK_MESSAGE(ascend::selects_interface(choice, names), choice);
  for (const char* choice : {"en", "=eth", ",", "=", "^lo,eth", "^=lo,eth0,eth1", "th0"})
    CHECK_FALSE_MESSAGE(ascend::selects_interface(choice, names), choice);
  for (const char* address : {"192.168.1.10", "fe80::1", ""}) {
    const Environment set("HCCL_IF_IP", address);
    ascend::check_hccl_environment();
  }
}

TEST_CASE("ascend group: HCCL waits for other ranks as long as the run does, where the environment does not say") {
  const Environment connect("HCCL_CONNECT_TIMEOUT", "300");
  const Environment exec("HCCL_EXEC_TIMEOUT", "");
  const auto is = [](const char* name, const std::string& value) { return std::string(std::getenv(name)) == value; };
  ::unsetenv("HCCL_EXEC_TIMEOUT");
  ascend::set_hccl_timeouts(7.5);
  CHECK(is("HCCL_EXEC_TIMEOUT", "8"));
  CHECK(is("HCCL_CONNECT_TIMEOUT", "300"));
  ::unsetenv("HCCL_CONNECT_TIMEOUT");
  ascend::set_hccl_timeouts(1e9);
  CHECK(is("HCCL_CONNECT_TIMEOUT", "7200"));
  CHECK(is("HCCL_EXEC_TIMEOUT", "8"));
  for (const char* name : {"HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT"}) ::unsetenv(name);
  ascend::set_hccl_timeouts(0.25);
  CHECK(is("HCCL_CONNECT_TIMEOUT", "120"));
  CHECK(is("HCCL_EXEC_TIMEOUT", "1"));
  for (const char* name : {"HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT"}) ::unsetenv(name);
  ascend::set_hccl_timeouts(20000);
  CHECK(is("HCCL_EXEC_TIMEOUT", "17340"));
}

TEST_CASE("ascend group: a rank that fails keeps no other waiting") {
  const Environment limit("HCCL_EXEC_TIMEOUT", "2");
  const auto ends = try_groups(3, [](Npu& dev, ascend::Group& group) {
    if (group.rank() == 1) fail<Error>("its disk is full");
    Tensor<Npu, float> slab = slab_of(dev, group.rank(), 0, 30);
    group.all_gather(dev, slab.view(), std::vector<Index>{0, 16, 16, 30});
    (void)to_host(dev, slab.view());
  });
  CHECK(ends[1] == "its disk is full");
  for (const std::size_t other : {0u, 2u}) CHECK(holds(ends[other], "[ascend] NPU "));
}

}  // namespace ascend_group_test
