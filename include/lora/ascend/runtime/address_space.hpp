#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lora/ascend/runtime/runtime.hpp"
#include "lora/core/error.hpp"
#include "lora/core/log.hpp"

namespace lora::ascend {

/// Addresses of a device that get memory in pieces, so that what grows stays in one place. Where the runtime can't do
/// that, it has memory from the start.
class AddressSpace {
 public:
  /// Pieces of memory begin and end on so many bytes.
  static constexpr std::size_t unit = std::size_t{2} << 20;

  /// `bytes` of addresses, or `fallback_bytes` of memory; both are rounded down to whole units.
  AddressSpace(const Runtime& runtime, std::int32_t device, std::size_t bytes, std::size_t fallback_bytes)
      : runtime_(runtime), device_(device), bytes_(bytes / unit * unit) {
    aclError error = runtime_.aclrtReserveMemAddress(&memory_, bytes_, 0, nullptr, huge_pages);
    if (error == 0) error = grow(0, unit);
    if (error == 0) return;
    log::warn("[ascend] NPU ", device_, " has no addresses that get memory as work grows (", runtime_.describe(error),
              "): ", fallback_bytes >> 20, " MiB are set aside for work from the start");
    release();
    grows_ = false;
    bytes_ = fallback_bytes / unit * unit;
    error = runtime_.aclrtMallocAlign32(&memory_, bytes_, ACL_MEM_MALLOC_HUGE_FIRST);
    if (error != 0)
      fail<DeviceError>("[ascend] NPU ", device_, ": no memory for work that grows, ", bytes_ >> 20,
                        " MiB were asked for: ", runtime_.describe(error), "; npu-smi info shows who uses it");
  }
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;
  ~AddressSpace() { release(); }

  void* memory() const { return memory_; }
  std::size_t bytes() const { return bytes_; }
  /// Whether it gets memory by `grow`, but for its first unit, which it has.
  bool grows() const { return grows_; }

  /// Gives memory to the bytes [begin, end), whole units that have none but for the first of all.
  aclError grow(std::size_t begin, std::size_t end) {
    if (begin == 0 && !pieces_.empty()) begin = unit;
    if (begin >= end) return 0;
    const aclrtPhysicalMemProp property{ACL_MEM_HANDLE_TYPE_NONE,
                                        ACL_MEM_ALLOCATION_TYPE_PINNED,
                                        ACL_HBM_MEM_HUGE,
                                        {static_cast<std::uint32_t>(device_), ACL_MEM_LOCATION_TYPE_DEVICE},
                                        0};
    aclrtDrvMemHandle handle = nullptr;
    if (const aclError error = runtime_.aclrtMallocPhysical(&handle, end - begin, &property, 0); error != 0)
      return error;
    void* const place = static_cast<std::byte*>(memory_) + begin;
    if (const aclError error = runtime_.aclrtMapMem(place, end - begin, 0, handle, 0); error != 0) {
      (void)runtime_.aclrtFreePhysical(handle);
      return error;
    }
    pieces_.push_back({place, handle});
    return 0;
  }

 private:
  struct Piece {
    void* place;
    aclrtDrvMemHandle handle;
  };

  static constexpr std::uint64_t huge_pages = 1;  // as the memory is that `grow` asks for

  void release() noexcept {
    if (memory_ == nullptr) return;
    if (!grows_) {
      (void)runtime_.aclrtFree(memory_);
    } else {
      for (const Piece& piece : pieces_) {
        (void)runtime_.aclrtUnmapMem(piece.place);
        (void)runtime_.aclrtFreePhysical(piece.handle);
      }
      pieces_.clear();
      (void)runtime_.aclrtReleaseMemAddress(memory_);
    }
    memory_ = nullptr;
  }

  const Runtime& runtime_;
  std::int32_t device_;
  void* memory_ = nullptr;
  std::size_t bytes_;
  bool grows_ = true;
  std::vector<Piece> pieces_;
};

}  // namespace lora::ascend
