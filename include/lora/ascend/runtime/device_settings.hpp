#pragma once

#include <cstdint>

namespace lora::ascend {

/// How many elements kernels take at a time where they need scratch as large, or want the cache to keep them.
struct Chunks {
  std::int64_t decoded = std::int64_t{1} << 25;  ///< of quantized weights
  std::int64_t scaled = std::int64_t{1} << 24;   ///< of gradients that are scaled before an optimizer's step
  std::int64_t squared = std::int64_t{1} << 24;  ///< that are squared, for sums of squares
};

/// What differs between runs on one NPU.
struct DeviceSettings {
  std::int32_t id = 0;        ///< as the runtime counts, among those that ASCEND_RT_VISIBLE_DEVICES shows
  bool deterministic = true;  ///< operators add up in a fixed order: the same bits from run to run
  int threads = 0;            ///< of the host, which draw dropout's masks; 0: as many as OpenMP would start
  Chunks chunks{};
};

}  // namespace lora::ascend
