#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/tensor/tensor.hpp"

namespace lora::nn {

/// Room for a few layers in memory of the device, to which each comes ahead of its use. Only events order that: kernels
/// wait until the layer is there, and what is brought to a slot for the kernels that were queued when its last layer
/// was released. What a slot holds stays until the room is needed, so that where a pass turns round, nothing is brought
/// twice.
template <AnyDevice D>
class LayerSlots {
 public:
  /// `sizes`: bytes of each layer, up to the last that has any.
  LayerSlots(D& dev, std::vector<std::size_t> sizes, int slots) : dev_(dev), sizes_(std::move(sizes)) {
    for (const std::size_t size : sizes_) largest_ = std::max(largest_, size);
    for (int i = 0; i < slots && largest_ > 0; ++i) add();
  }
  LayerSlots(const LayerSlots&) = delete;
  LayerSlots& operator=(const LayerSlots&) = delete;
  ~LayerSlots() {
    try {
      dev_.synchronize();  // nothing comes any more
    } catch (...) {        // whoever waited before has heard of it
    }
    for (Slot& slot : slots_) forget(slot);
  }

  std::size_t count() const { return slots_.size(); }
  /// Bytes of a slot.
  std::size_t largest() const { return largest_; }
  void add() { slots_.push_back({Tensor<D, std::byte>(dev_, static_cast<Index>(largest_))}); }

  bool has_bytes(Index layer) const {
    return layer < std::ssize(sizes_) && sizes_[static_cast<std::size_t>(layer)] > 0;
  }

  /// Where the layer's bytes begin, for what is queued from now on, until it is released. `next` comes to another slot,
  /// if it is not −1 and has bytes. `bring(dev, layer, to)` queues a layer's bytes for a view: what is given to
  /// Stream::copy and then recorded there has them in place.
  /// Throws   DeviceError where all slots are in use; then it must not be released
  template <class Bring>
  std::byte* acquire(D& dev, Index layer, Index next, const Bring& bring) {
    Slot* const slot = slot_with(dev, layer, bring);
    if (slot == nullptr) fail<DeviceError>("[layer_slots] all ", slots_.size(), " slots are in use");
    if (slot->copied) {
      dev.wait(Stream::compute, *slot->copied);
      dev.release(*std::exchange(slot->copied, std::nullopt));
    }
    slot->used = ++clock_;
    slot->held = true;
    try {
      if (next >= 0 && has_bytes(next)) slot_with(dev, next, bring);
    } catch (...) {  // whoever has not got the layer does not release it
      slot->held = false;
      throw;
    }
    return slot->memory.view().data();
  }
  void release(D& dev, Index layer) noexcept {
    Slot& slot = *slot_of(layer);
    slot.held = false;
    if (slot.released) dev.release(*std::exchange(slot.released, std::nullopt));
    try {
      slot.released = dev.record(Stream::compute);
    } catch (...) {  // what comes to the slot next asks again, and whoever waits hears of it
    }
  }

  bool has(Index layer) const {
    return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.layer == layer; });
  }
  /// What they hold is not what layers are any more. None may be in use.
  void forget() {
    for (Slot& slot : slots_) slot.layer = -1;
  }
  /// Gives back the slot that was used longest ago: the device is short of memory, and what it has queued is done.
  /// False where there are no more than `least`, or all are in use.
  bool narrow(std::size_t least) {
    auto oldest = slots_.end();
    for (auto slot = slots_.begin(); slot != slots_.end(); ++slot)
      if (!slot->held && (oldest == slots_.end() || slot->used < oldest->used)) oldest = slot;
    if (slots_.size() <= least || oldest == slots_.end()) return false;
    forget(*oldest);
    slots_.erase(oldest);
    return true;
  }

 private:
  struct Slot {
    Tensor<D, std::byte> memory;
    Index layer = -1;
    bool held = false;
    std::uint64_t used = 0;
    std::optional<Event> copied{};    // until compute waits for it
    std::optional<Event> released{};  // behind the last kernels that read it
  };

  void forget(Slot& slot) noexcept {
    for (auto* event : {&slot.copied, &slot.released})
      if (*event) dev_.release(*std::exchange(*event, std::nullopt));
  }

  Slot* slot_of(Index layer) {
    for (Slot& slot : slots_)
      if (slot.layer == layer) return &slot;
    return nullptr;
  }

  // The slot that has the layer, or will have it once it has come; null where all are in use.
  template <class Bring>
  Slot* slot_with(D& dev, Index layer, const Bring& bring) {
    if (Slot* const there = slot_of(layer); there != nullptr) return there;
    Slot* slot = nullptr;
    for (Slot& other : slots_)
      if (!other.held && (slot == nullptr || other.used < slot->used)) slot = &other;
    if (slot == nullptr) return nullptr;
    // Before its first layer too: the memory may have been somebody else's.
    wait_and_release(dev, Stream::copy,
                     slot->released ? *std::exchange(slot->released, std::nullopt) : dev.record(Stream::compute));
    // Kernels may have a part in what comes, and nobody has used, and so waited for, what came before.
    if (slot->copied) wait_and_release(dev, Stream::compute, *std::exchange(slot->copied, std::nullopt));
    slot->layer = -1;  // until it is queued
    slot->used = ++clock_;
    bring(dev, layer, slot->memory.view().col_slice(0, static_cast<Index>(sizes_[static_cast<std::size_t>(layer)])));
    slot->copied = dev.record(Stream::copy);
    slot->layer = layer;
    return slot;
  }

  D& dev_;
  std::vector<std::size_t> sizes_;
  std::size_t largest_ = 0;
  std::list<Slot> slots_;  // which stay where they are
  std::uint64_t clock_ = 0;
};

}  // namespace lora::nn
