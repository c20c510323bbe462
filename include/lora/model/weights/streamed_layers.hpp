#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/cpu/runtime/machine.hpp"
#include "lora/model/weights/layer_source.hpp"
#include "lora/model/weights/sharded_layers.hpp"
#include "lora/nn/layer_access.hpp"
#include "lora/nn/layer_slots.hpp"
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
  bool trains_on_host = false;          ///< and the values of what trains of the model's own lie there too
  bool shares_layers = false;           ///< ranks share them out (ZeRO-3); each part is where streams_layers says
  int slots = 2;                        ///< layers that the device has room for
  int buffers = 3;                      ///< page-locked, of a layer each, where they come from files
  std::optional<From> from{};           ///< memory where nothing must be decoded and half of what is available suffices
  std::optional<std::size_t> memory{};  ///< available to this process on the host; what the machine says
  std::optional<bool> host_decodes{};   ///< GGUF's blocks; where the device can't
  int threads = 0;                      ///< of the host, to copy and decode; 0: what the machine allows
  /// Matrices that are to train, whose numbers as they are stored the device does not keep: they come from the
  /// provider, which then outlives the model, when they become parameters. One that does not comes with each use.
  std::function<bool(const TensorInfo&)> trained{};
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
/// memory (nn::LayerSlots) ahead of its use, from the host in Stream::copy, beside the kernels that work on the layer
/// before.
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
    slots_.reset();  // after which nothing is copied any more
  }

  /// A matrix of a layer, before `build`.
  nn::Weight<D> add(Index layer, HostMatrix matrix) {
    const auto i = static_cast<std::size_t>(layer);
    const StoredView<D> shape(nullptr, matrix.dtype(), matrix.rows(), matrix.cols());
    return {shape, places_[i], layers_[i].add(std::move(matrix))};
  }

  bool empty() const {
    return std::all_of(layers_.begin(), layers_.end(), [](const HostLayer& layer) { return layer.bytes() == 0; });
  }

  /// Takes the memory, once all matrices are there.
  /// Throws   ConfigError, DeviceError where the host has not enough of it
  LayerStreaming build() {
    std::size_t largest = 0;
    bool decoded = false;
    std::vector<std::size_t> sizes;
    LayerStreaming taken;
    for (const HostLayer& layer : layers_) {
      largest = std::max(largest, layer.bytes());
      taken.layers += layer.bytes();
      decoded = decoded || layer.is_decoded();
      sizes.push_back(layer.bytes());
    }
    const std::size_t available = options_.memory ? *options_.memory : cpu::available_memory();
    using From = WeightPlaces::From;
    taken.device = largest * static_cast<std::size_t>(options_.slots);
    if (ranks_ != nullptr) {
      taken.from = From::ranks;
      std::size_t own = 0;
      for (const std::size_t bytes : sizes) own += shard_size(bytes, ranks_->rank(), ranks_->size());
      (options_.streams_layers ? taken.host : taken.device) += own;
      taken.loading = largest;
    } else {
      taken.from = options_.from.value_or(!decoded && taken.layers <= available / 2 ? From::memory : From::files);
      taken.host = taken.from == From::memory ? taken.layers : largest * static_cast<std::size_t>(options_.buffers);
    }
    if (taken.host + taken.loading > available)
      fail<ConfigError>(ranks_ != nullptr ? "key zero_stage: to share out" : "key offload: to stream", " the layers ",
                        size_text(taken.host + taken.loading), " of the host's memory are needed, but ",
                        size_text(available), " are available; allowed: none or optimizer");
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
    slots_.emplace(dev_, std::move(sizes), options_.slots);
    return taken;
  }

  /// Takes more of the device's memory, `bytes` at most, for layers that then need not be copied again: where passes
  /// turn round, a slot spares a copy in each. Where it comes to be short of memory, they are given back. Between
  /// passes. Returns the bytes taken.
  std::size_t widen(std::size_t bytes) {
    std::size_t taken = 0;
    while (ranks_ == nullptr && slots_->count() < places_.size() && taken + slots_->largest() <= bytes) {
      slots_->add();
      taken += slots_->largest();
    }
    return taken;
  }

  void acquire(D& dev, Index layer, Index next) override {
    if (!slots_->has_bytes(layer)) return;  // all of it is to train
    const std::byte* const begin = slots_->acquire(
        dev, layer, next, [this](D& to_dev, Index one, View<D, std::byte> to) { source_->bring(to_dev, one, to); });
    try {
      if (next >= 0 && source_->looks_ahead() > 0) source_->expect(dev, upcoming(layer, next));
    } catch (...) {  // whoever has not got the layer does not release it
      slots_->release(dev, layer);
      throw;
    }
    places_[static_cast<std::size_t>(layer)]->begin = begin;
  }

  bool is_collective() const override { return ranks_ != nullptr; }

  void release(D& dev, Index layer) noexcept override {
    if (!slots_->has_bytes(layer)) return;
    places_[static_cast<std::size_t>(layer)]->begin = nullptr;
    slots_->release(dev, layer);
  }

 private:
  // Gives back a slot of more than a pass needs.
  bool narrow() {
    if (!slots_ || !slots_->narrow(static_cast<std::size_t>(options_.slots))) return false;
    if (std::exchange(says_narrow_, false))
      log::warn("the device is short of memory: of the layers that stayed there, some are streamed again");
    return true;
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
      if (at < 0 || at >= count || slots_->has(at) || !slots_->has_bytes(at)) continue;
      if (std::find(upcoming_.begin(), upcoming_.end(), at) == upcoming_.end()) upcoming_.push_back(at);
    }
    return upcoming_;
  }

  D& dev_;
  WeightPlaces options_;
  comm::Communicator<D>* ranks_;                          // that share layers out, or null
  std::vector<HostLayer> layers_;                         // until `build`
  std::vector<std::shared_ptr<nn::WeightPlace>> places_;  // of each layer
  std::unique_ptr<LayerSource<D>> source_;
  std::optional<nn::LayerSlots<D>> slots_;  // from `build` on
  bool says_narrow_ = true;
  bool turns_ = false;  // forward goes over into backward
  std::vector<Index> upcoming_;
};

}  // namespace lora::model
