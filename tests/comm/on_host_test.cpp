// Ranks as their hosts see each other, and as a device does whose memory is the host's.

#include "lora/comm/on_host.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/cpu/runtime/device.hpp"
#include "support/message_of.hpp"

namespace on_host_test {

using namespace lora;
using namespace lora::test;

namespace {

using Span = std::span<std::byte>;

/// The second of three ranks, which writes down what it is given.
class Noted final : public comm::HostRanks {
 public:
  explicit Noted(bool exchanges = true) : exchanges_(exchanges) {}
  int rank() const override { return 1; }
  int size() const override { return 3; }
  std::string host() const override { return "node"; }
  std::string boot() const override { return "boot 7"; }
  comm::Traffic traffic() const override { return {1.5, 20, 300}; }
  bool exchanges() const override { return exchanges_; }
  void gather_on_host(Span bytes, std::span<const Index> begins) override {
    gathered = {bytes.data(), bytes.size()};
    gather_begins.assign(begins.begin(), begins.end());
  }
  void exchange_on_host(std::span<const Span> mine, std::span<const int> owners, std::span<const Index> begins,
                        std::span<const Span> parts) override {
    for (const Span& slab : mine) given.push_back({slab.data(), slab.size()});
    for (const Span& part : parts) taken.push_back({part.data(), part.size()});
    exchange_owners.assign(owners.begin(), owners.end());
    exchange_begins.assign(begins.begin(), begins.end());
  }
  void wait_at_most(std::chrono::duration<double>) override {}

  using Place = std::pair<const void*, std::size_t>;
  Place gathered{};
  std::vector<Place> given, taken;
  std::vector<Index> gather_begins, exchange_begins;
  std::vector<int> exchange_owners;

 private:
  bool exchanges_;
};

}  // namespace

TEST_CASE("on host: a device's calls are its host's, in bytes and in order") {
  cpu::Device dev(1);
  Noted ranks;
  comm::OnHost<cpu::Device> all(ranks);
  CHECK(all.rank() == 1);
  CHECK(all.size() == 3);
  CHECK(all.host() == "node");
  CHECK(all.traffic().seconds == 1.5);
  CHECK(all.traffic().sent_bytes == 20);
  CHECK(all.traffic().received_bytes == 300);
  CHECK(ranks.host_and_boot() == "node\nboot 7");

  std::vector<float> slab(9);
  const std::vector<Index> begins{0, 2, 5, 9}, in_bytes{0, 8, 20, 36};
  all.all_gather(dev, View<cpu::Device, float>(slab.data(), 9), begins);
  CHECK(ranks.gathered == Noted::Place{slab.data(), 36});
  CHECK(ranks.gather_begins == in_bytes);
  std::vector<double> numbers(9);
  all.all_gather_on(dev, View<cpu::Device, double>(numbers.data(), 9), begins);
  CHECK(ranks.gathered == Noted::Place{numbers.data(), 72});
  CHECK(ranks.gather_begins == std::vector<Index>{0, 16, 40, 72});
  all.gather_on_host(std::as_writable_bytes(std::span(slab)), in_bytes);
  CHECK(ranks.gathered == Noted::Place{slab.data(), 36});
  CHECK(ranks.gather_begins == in_bytes);

  using Floats = View<cpu::Device, float>;
  std::vector<float> other(9), first(3), second(3), third(3);
  const std::vector<Floats> mine{Floats(slab.data(), 9), Floats(other.data(), 9)},
      parts{Floats(first.data(), 3), Floats(second.data(), 3), Floats(third.data(), 3)};
  const std::vector<int> owners{1, 2, 1};
  all.exchange(dev, std::span<const Floats>(mine), std::span<const int>(owners), begins,
               std::span<const Floats>(parts));
  CHECK(ranks.given == std::vector<Noted::Place>{{slab.data(), 36}, {other.data(), 36}});
  CHECK(ranks.taken == std::vector<Noted::Place>{{first.data(), 12}, {second.data(), 12}, {third.data(), 12}});
  CHECK(ranks.exchange_owners == owners);
  CHECK(ranks.exchange_begins == in_bytes);
}

TEST_CASE("on host: ranks that exchange nothing between hosts train on NPUs alone") {
  Noted ranks(false);
  CHECK(message_of<ConfigError>([&] { const comm::OnHost<cpu::Device> all(ranks); }) ==
        "key device: 3 ranks that meet at MASTER_ADDR train on NPUs alone; on processors start them with mpirun or "
        "srun");
}

TEST_CASE("on host: a single rank has its own host and boot, and has sent nothing") {
  const comm::Single<cpu::Device> alone;
  char name[256] = "";
  REQUIRE(::gethostname(name, sizeof name) == 0);
  CHECK(alone.host() == name);
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string number;
  std::getline(file, number);
  CHECK(alone.boot() == number);
  CHECK(alone.host_and_boot() == std::string(name) + "\n" + number);
  CHECK(alone.rank() == 0);
  CHECK(alone.size() == 1);
  CHECK(alone.traffic().seconds == 0);
  CHECK(alone.traffic().sent_bytes == 0);
  CHECK(alone.traffic().received_bytes == 0);
}

}  // namespace on_host_test
