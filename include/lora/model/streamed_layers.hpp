#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/cpu/machine.hpp"
#include "lora/model/layer_source.hpp"
#include "lora/model/sharded_layers.hpp"
#include "lora/nn/layer_access.hpp"
#include "lora/nn/weight.hpp"
#include "lora/tensor/tensor.hpp"

namespace lora::model {

/// How a model's weights are brought to a device that can't read the host's memory.
struct WeightPlaces {
  /// From where in the host's memory streamed layers are copied.
  enum class From : std::uint8_t {
    memory,  ///< all of them lie in page-locked memory
    files,   ///< a few buffers of it are filled from the mapped files, ahead of need
    ranks    ///< each has a part of every layer, and they gather layers from each other
  };

  bool streams_layers = false;          ///< the layers' projections stay on the host, and come when they are used
  bool shares_layers = false;           ///< ranks share them out (ZeRO-3); each part is where streams_layers says
  int slots = 2;                        ///< layers that the device has room for
  int buffers = 3;                      ///< page-locked, of a layer each, where they come from files
  std::optional<From> from{};           ///< memory where nothing must be decoded and half of what is available suffices
  std::optional<std::size_t> memory{};  ///< available to this process on the host; what the machine says
  std::optional<bool> host_decodes{};   ///< GGUF's blocks; where the device can't
  int threads = 0;                      ///< of the host, to copy and decode; 0: what the machine allows
};

/// What streaming takes, in bytes.
struct LayerStreaming {
  WeightPlaces::From from = WeightPlaces::From::memory;
  std::size_t layers = 0;   ///< all of them, as the device gets them
  std::size_t device = 0;   ///< of the slots, and of this rank's parts that lie there
  std::size_t host = 0;     ///< page-locked
  std::size_t loading = 0;  ///< page-locked, while ranks share layers out: one of them, whole
};

/// The weights of layers, which stay on the host or are shared out by ranks: each comes to a slot of the device's
/// memory ahead of its use, from the host in Stream::copy, beside the kernels that work on the layer before. Only
/// events order that: kernels wait for the copy, and a copy into a slot for the kernels that were queued when its last
/// layer was released. What a slot holds stays until the room is needed, so that where a pass turns round, nothing is
/// copied twice.
template <AnyDevice D>
class StreamedLayers : public nn::LayerAccess<D> {
 public:
  /// `ranks`: that share layers out, where `places` says so; they outlive this.
  StreamedLayers(D& dev, Index layers, const WeightPlaces& places, comm::Communicator<D>* ranks = nullptr)
      : dev_(dev),
        options_(places),
        ranks_(places.shares_layers ? ranks : nullptr),
        layers_(static_cast<std::size_t>(layers)) {
    if (places.shares_layers && ranks_ == nullptr)
      fail<Error>("[streamed_layers] layers are to be shared out, but by no ranks; a Decoder takes their communicator");
    for (Index i = 0; i < layers; ++i) places_.push_back(std::make_shared<nn::WeightPlace>());
    dev_.set_relief([this] { return narrow(); });
  }
  ~StreamedLayers() override {
    dev_.set_relief({});
    try {
      dev_.synchronize();  // nothing is copied any more
    } catch (...) {        // whoever waited before has heard of it
    }
    for (const Slot& slot : slots_)
      for (const auto& event : {slot.copied, slot.released})
        if (event) dev_.release(*event);
  }

  /// A matrix of a layer, before `build`.
  nn::Weight<D> add(Index layer, HostMatrix matrix) {
    const auto i = static_cast<std::size_t>(layer);
    const StoredView<D> shape(nullptr, matrix.dtype(), matrix.rows(), matrix.cols());
    return {shape, places_[i], layers_[i].add(std::move(matrix))};
  }

  /// Takes the memory, once all matrices are there.
  /// Throws   ConfigError, DeviceError where the host has not enough of it
  LayerStreaming build() {
    std::size_t largest = 0;
    bool decoded = false;
    LayerStreaming taken;
    for (const HostLayer& layer : layers_) {
      largest = std::max(largest, layer.bytes());
      taken.layers += layer.bytes();
      decoded = decoded || layer.is_decoded();
      sizes_.push_back(layer.bytes());
    }
    const std::size_t available = options_.memory ? *options_.memory : cpu::available_memory();
    using From = WeightPlaces::From;
    taken.device = largest * static_cast<std::size_t>(options_.slots);
    if (ranks_ != nullptr) {
      taken.from = From::ranks;
      std::size_t own = 0;
      for (const std::size_t bytes : sizes_) own += shard_size(bytes, ranks_->rank(), ranks_->size());
      (options_.streams_layers ? taken.host : taken.device) += own;
      taken.loading = largest;
    } else {
      taken.from = options_.from.value_or(!decoded && taken.layers <= available / 2 ? From::memory : From::files);
      taken.host = taken.from == From::memory ? taken.layers : largest * static_cast<std::size_t>(options_.buffers);
    }
    if (taken.host + taken.loading > available)
      fail<ConfigError>(ranks_ != nullptr ? "key zero_stage: to share out" : "key offload: to stream", " the layers ",
                        size_text(taken.host + taken.loading), " of the host's memory are needed, but ",
                        size_text(available), " are available; allowed: none or optimizer, or more memory");
    try {
      if (ranks_ != nullptr)
        source_ = std::make_unique<ShardedLayers<D>>(dev_, *ranks_, std::exchange(layers_, {}), options_.streams_layers,
                                                     options_.threads);
      else if (taken.from == From::memory)
        source_ = std::make_unique<ResidentLayers<D>>(dev_, std::exchange(layers_, {}), options_.threads);
      else
        source_ =
            std::make_unique<StagedLayers<D>>(dev_, std::exchange(layers_, {}), options_.buffers, options_.threads);
    } catch (const DeviceError& error) {
      if (ranks_ != nullptr)
        fail<DeviceError>("key zero_stage: memory for this rank's part of the layers can't be had: ",
                          std::string_view(error.what()));
      fail<DeviceError>("key offload: ", size_text(taken.host), " of page-locked memory, to stream the layers, ",
                        "can't be had: ", std::string_view(error.what()));
    }
    largest_ = largest;
    for (int i = 0; i < options_.slots; ++i) add_slot();
    return taken;
  }

  /// Takes more of the device's memory, `bytes` at most, for layers that then need not be copied again: where passes
  /// turn round, a slot spares a copy in each. Where it comes to be short of memory, they are given back. Between
  /// passes. Returns the bytes taken.
  std::size_t widen(std::size_t bytes) {
    std::size_t taken = 0;
    while (ranks_ == nullptr && slots_.size() < places_.size() && taken + largest_ <= bytes) {
      add_slot();
      taken += largest_;
    }
    return taken;
  }

  void acquire(D& dev, Index layer, Index next) override {
    Slot* const slot = slot_with(dev, layer);
    if (slot == nullptr) fail<DeviceError>("[streamed_layers] all ", slots_.size(), " slots are in use");
    if (slot->copied) {
      dev.wait(Stream::compute, *slot->copied);
      dev.release(*std::exchange(slot->copied, std::nullopt));
    }
    slot->used = ++clock_;
    slot->held = true;
    try {
      if (next >= 0) prefetch(dev, layer, next);
    } catch (...) {  // whoever has not got the layer does not release it
      slot->held = false;
      throw;
    }
    places_[static_cast<std::size_t>(layer)]->begin = slot->memory.view().data();
  }

  bool is_collective() const override { return ranks_ != nullptr; }

  void release(D& dev, Index layer) noexcept override {
    Slot& slot = *slot_of(layer);
    slot.held = false;
    places_[static_cast<std::size_t>(layer)]->begin = nullptr;
    if (slot.released) dev.release(*std::exchange(slot.released, std::nullopt));
    try {
      slot.released = dev.record(Stream::compute);
    } catch (...) {  // the next copy into the slot asks again, and whoever waits hears of it
    }
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

  // Gives back the slot that was used longest ago, of more than a pass needs: the device is short of memory, and what
  // it has queued is done.
  bool narrow() {
    auto oldest = slots_.end();
    for (auto slot = slots_.begin(); slot != slots_.end(); ++slot)
      if (!slot->held && (oldest == slots_.end() || slot->used < oldest->used)) oldest = slot;
    if (static_cast<int>(slots_.size()) <= options_.slots || oldest == slots_.end()) return false;
    if (std::exchange(says_narrow_, false))
      log::warn("the device is short of memory: of the layers that stayed there, some are streamed again");
    for (const auto& event : {oldest->copied, oldest->released})
      if (event) dev_.release(*event);
    slots_.erase(oldest);
    return true;
  }

  void add_slot() { slots_.push_back({Tensor<D, std::byte>(dev_, static_cast<Index>(largest_))}); }

  Slot* slot_of(Index layer) {
    for (Slot& slot : slots_)
      if (slot.layer == layer) return &slot;
    return nullptr;
  }

  // The slot that has the layer, or will have it once its copy is done; null where all are in use.
  Slot* slot_with(D& dev, Index layer) {
    if (Slot* const there = slot_of(layer); there != nullptr) return there;
    Slot* slot = nullptr;
    for (Slot& other : slots_)
      if (!other.held && (slot == nullptr || other.used < slot->used)) slot = &other;
    if (slot == nullptr) return nullptr;
    // Before its first layer too: the memory may have been somebody else's.
    wait_and_release(dev, Stream::copy,
                     slot->released ? *std::exchange(slot->released, std::nullopt) : dev.record(Stream::compute));
    if (slot->copied) dev.release(*std::exchange(slot->copied, std::nullopt));
    slot->layer = -1;  // until the copy is queued
    slot->used = ++clock_;
    source_->bring(dev, layer,
                   slot->memory.view().col_slice(0, static_cast<Index>(sizes_[static_cast<std::size_t>(layer)])));
    slot->copied = dev.record(Stream::copy);
    slot->layer = layer;
    return slot;
  }

  void prefetch(D& dev, Index layer, Index next) {
    slot_with(dev, next);
    if (source_->looks_ahead() > 0) source_->expect(dev, upcoming(layer, next));
  }

  // Layers that will have to be copied after `next`, as far as one can tell: a pass goes on as it goes, and where it
  // ended last time, this one will turn round or begin again as that did.
  const std::vector<Index>& upcoming(Index layer, Index next) {
    const auto count = static_cast<Index>(places_.size());
    if (layer == count - 1 && layer > 1 && (next == layer || next == 0)) turns_ = next == layer;
    Index at = next, step = next == 0 || next > layer ? 1 : -1;
    upcoming_.clear();
    for (Index i = 0; i < 2 * count && upcoming_.size() < source_->looks_ahead(); ++i) {
      if (at == count - 1 && step > 0) {
        step = turns_ ? -1 : 1;
        at = turns_ ? at : -1;
      } else if (at == 0 && step < 0) {
        step = 1;
      }
      at += step;
      if (at < 0 || at >= count || slot_of(at) != nullptr) continue;
      if (std::find(upcoming_.begin(), upcoming_.end(), at) == upcoming_.end()) upcoming_.push_back(at);
    }
    return upcoming_;
  }

  D& dev_;
  WeightPlaces options_;
  comm::Communicator<D>* ranks_;   // that share layers out, or null
  std::vector<HostLayer> layers_;  // until `build`
  std::vector<std::size_t> sizes_;
  std::vector<std::shared_ptr<nn::WeightPlace>> places_;  // of each layer
  std::unique_ptr<LayerSource<D>> source_;
  std::size_t largest_ = 0;  // bytes of a layer, and of a slot
  std::vector<Slot> slots_;
  std::uint64_t clock_ = 0;
  bool says_narrow_ = true;
  bool turns_ = false;  // forward goes over into backward
  std::vector<Index> upcoming_;
};

}  // namespace lora::model
