#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "lora/comm/communicator.hpp"
#include "lora/model/weights/layer_source.hpp"
#include "lora/tensor/tensor.hpp"

namespace lora::model {

/// Where each rank's bytes of a layer begin, and where the last ends.
inline std::vector<Index> shard_begins(std::size_t bytes, int ranks) {
  constexpr Index block = 512;  // on which copies and collectives of devices begin
  const auto size = static_cast<Index>(bytes);
  auto begins = comm::even_parts((size + block - 1) / block, block, ranks);
  begins.back() = size;
  return begins;
}

/// Bytes that a rank has of a layer, where ranks share it out.
inline std::size_t shard_size(std::size_t bytes, int rank, int ranks) {
  const auto begins = shard_begins(bytes, ranks);
  return static_cast<std::size_t>(begins[static_cast<std::size_t>(rank) + 1] - begins[static_cast<std::size_t>(rank)]);
}

/// Layers of which each rank has a part (ZeRO-3), in memory of the device or page-locked on the host, and which all
/// gather together: every rank asks for the same layers in the same order.
template <AnyDevice D>
class ShardedLayers : public LayerSource<D> {
 public:
  /// The communicator outlives it.
  ShardedLayers(D& dev, comm::Communicator<D>& ranks, const std::vector<HostLayer>& layers, bool on_host, int threads)
      : ranks_(ranks) {
    const cpu::Threads team(threads);
    std::size_t largest = 0;
    for (const HostLayer& layer : layers) largest = std::max(largest, layer.bytes());
    const PageLocked<D> whole(dev, largest);
    const auto rank = static_cast<std::size_t>(ranks.rank());
    for (const HostLayer& layer : layers) {
      Part& part = parts_.emplace_back();
      part.begins = shard_begins(layer.bytes(), ranks.size());
      const auto size = static_cast<std::size_t>(part.begins[rank + 1] - part.begins[rank]);
      layer.write(team, whole.data());
      if (size == 0) continue;
      const std::byte* const own = whole.data() + part.begins[rank];
      if (on_host) {
        part.on_host = PageLocked<D>(dev, size);
        std::copy_n(own, size, part.on_host.data());
      } else {
        part.on_device = Tensor<D, std::byte>(dev, static_cast<Index>(size));
        dev.copy_from_host(part.on_device.view().data(), own, size);
        dev.synchronize();  // before the next layer is written there
      }
    }
  }

  void bring(D& dev, Index layer, View<D, std::byte> to) override {
    const Part& part = parts_[static_cast<std::size_t>(layer)];
    const auto rank = static_cast<std::size_t>(ranks_.rank());
    const Index begin = part.begins[rank], size = part.begins[rank + 1] - begin;
    if (size > 0) {
      std::byte* const own = to.data() + begin;
      if (part.on_device.view().empty())
        dev.copy_from_host(own, part.on_host.data(), static_cast<std::size_t>(size), Stream::copy);
      else
        dev.copy_on_device(own, part.on_device.view().data(), static_cast<std::size_t>(size), Stream::copy);
    }
    ranks_.all_gather(dev, to, part.begins, Stream::copy);
  }

 private:
  struct Part {
    std::vector<Index> begins;  // of each rank's bytes, and the last one's end
    PageLocked<D> on_host{};    // or
    Tensor<D, std::byte> on_device{};
  };

  comm::Communicator<D>& ranks_;
  std::vector<Part> parts_;
};

}  // namespace lora::model
