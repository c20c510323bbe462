#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "lora/core/hash.hpp"
#include "lora/cpu/runtime/machine.hpp"
#include "lora/model/decoder/adapter.hpp"
#include "lora/model/weights/weights.hpp"

namespace lora::run {

/// Checksums of several long byte strings, computed by `threads` threads. The value is the checksum of the checksums of
/// pieces of fixed size, so that it doesn't depend on the number of threads.
std::vector<std::uint64_t> checksums(std::span<const std::span<const std::byte>> strings, int threads);

/// A checksum of a base model: names, dtypes, shapes and all bytes of all tensors.
std::uint64_t weights_checksum(const model::Source& source);

/// The same of an adapter to start from.
std::uint64_t weights_checksum(const model::AdapterFiles& adapter);

/// The same from a few samples of each tensor's bytes, as in checkpoints of earlier versions.
std::uint64_t sampled_checksum(const model::Source& source);

/// The description of a base model in a checkpoint's settings. `sampled`: as in earlier versions.
std::string base_text(const model::Source& source, bool sampled);

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/base_checksum.ipp"
#endif
