#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/core/error.hpp"

namespace lora::comm {

/// Ranks that move numbers between memory of their hosts.
class HostRanks : public Ranks {
 public:
  /// Whether `exchange_on_host` works; else only devices with links of their own train together.
  virtual bool exchanges() const { return true; }
  /// parts[i] gets this rank's range of slab i, which rank owners[i] holds; `mine` are this rank's slabs, in order.
  /// Ranges are in bytes.
  virtual void exchange_on_host(std::span<const std::span<std::byte>> mine, std::span<const int> owners,
                                std::span<const Index> begins, std::span<const std::span<std::byte>> parts) = 0;

  /// From now on a call throws where another rank does not come within this time.
  virtual void wait_at_most(std::chrono::duration<double> time) = 0;
};

/// The same ranks, of a device whose memory is the host's. They outlive this.
template <AnyDevice D>
  requires(D::reads_host_memory)
class OnHost final : public Communicator<D> {
  using typename Communicator<D>::Bytes;

 public:
  /// Throws   ConfigError for ranks that can't exchange
  explicit OnHost(HostRanks& ranks) : ranks_(ranks) {
    if (!ranks.exchanges())
      fail<ConfigError>("key device: ", ranks.size(), " ranks that meet at MASTER_ADDR train on NPUs alone; on ",
                        "processors start them with mpirun or srun");
  }

  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  std::string host() const override { return ranks_.host(); }
  Traffic traffic() const override { return ranks_.traffic(); }
  void gather_on_host(std::span<std::byte> bytes, std::span<const Index> begins) override {
    ranks_.gather_on_host(bytes, begins);
  }

 protected:
  void gather(D&, Bytes slab, std::span<const Index> begins, Stream) override {
    ranks_.gather_on_host(span_of(slab), begins);
  }

  void exchange_bytes(D&, std::span<const Bytes> mine, std::span<const int> owners, std::span<const Index> begins,
                      std::span<const Bytes> parts, Stream) override {
    std::vector<std::span<std::byte>> given, taken;
    for (const Bytes& slab : mine) given.push_back(span_of(slab));
    for (const Bytes& part : parts) taken.push_back(span_of(part));
    ranks_.exchange_on_host(given, owners, begins, taken);
  }

 private:
  static std::span<std::byte> span_of(const Bytes& bytes) {
    return {bytes.data(), static_cast<std::size_t>(bytes.size())};
  }

  HostRanks& ranks_;
};

}  // namespace lora::comm
