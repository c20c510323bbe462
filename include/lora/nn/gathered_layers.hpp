#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lora/nn/layer_slots.hpp"
#include "lora/nn/shares.hpp"
#include "lora/tensor/tensor.hpp"

namespace lora::nn {

/// Room on a device for layers that ranks gather from each other or that come from the host, and for what belongs to
/// none.
template <AnyDevice D>
class GatheredLayers {
 public:
  /// `layers`: as gathered_layers has them.
  GatheredLayers(D& dev, std::map<Index, GatheredLayer> layers) : layers_(std::move(layers)) {
    std::vector<std::size_t> inside, apart(2);
    for (const auto& [number, layer] : layers_) {
      if (number >= std::ssize(inside)) inside.resize(static_cast<std::size_t>(number) + 1);
      (number < 0 ? apart[static_cast<std::size_t>(place_apart(number))] : inside[static_cast<std::size_t>(number)]) =
          layer.bytes;
    }
    inside_.emplace(dev, std::move(inside), gathered_slots);
    apart_.emplace(dev, std::move(apart), 1);
  }

  bool has(Index layer) const {
    const auto found = layers_.find(layer);
    return found != layers_.end() && found->second.bytes > 0;
  }
  const std::vector<GatheredPiece>& pieces(Index layer) const { return layers_.at(layer).pieces; }
  std::size_t bytes() const { return room_for_gathered(layers_); }

  /// As LayerSlots::acquire, where `bring(dev, layer, to)` has it come.
  template <class Bring>
  std::byte* acquire(D& dev, Index layer, Index next, const Bring& bring) {
    if (layer >= 0) return inside_->acquire(dev, layer, next, bring);
    return apart_->acquire(dev, place_apart(layer), -1,
                           [&](D& to_dev, Index, View<D, std::byte> to) { bring(to_dev, layer, to); });
  }
  void release(D& dev, Index layer) noexcept {
    if (layer >= 0)
      inside_->release(dev, layer);
    else
      apart_->release(dev, place_apart(layer));
  }
  /// Invalidates all slots, because the values have changed: the next acquire of each layer brings it again.
  void forget() {
    inside_->forget();
    apart_->forget();
  }

 private:
  static constexpr Index place_apart(Index layer) { return layer == before_layers ? 0 : 1; }

  std::map<Index, GatheredLayer> layers_;
  std::optional<LayerSlots<D>> inside_, apart_;
};

}  // namespace lora::nn
