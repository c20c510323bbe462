#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "lora/nn/layer_access.hpp"
#include "lora/nn/param_store.hpp"

namespace lora::model {

/// The layers of a model of which what trains comes by layer, since ranks share it out (ZeRO-3) or it lies on the host;
/// what does not train comes as it does elsewhere.
template <AnyDevice D, class T>
class SharedLayers final : public nn::LayerAccess<D> {
 public:
  /// `stored`: has the projections that don't train, null where they are always there; `reads_stored`: of each layer,
  /// whether it has any. All outlive it.
  SharedLayers(nn::ParamStore<D, T>& params, nn::LayerAccess<D>* stored, std::vector<bool> reads_stored)
      : params_(params), stored_(stored), reads_stored_(std::move(reads_stored)) {}

  void acquire(D& dev, Index layer, Index next) override {
    params_.acquire(dev, layer, next);
    if (!reads_stored(layer)) return;
    try {
      stored_->acquire(dev, layer, reads_stored(next) ? next : -1);
    } catch (...) {  // whoever has not got the layer does not release it
      params_.release(dev, layer);
      throw;
    }
  }
  void release(D& dev, Index layer) noexcept override {
    if (reads_stored(layer)) stored_->release(dev, layer);
    params_.release(dev, layer);
  }
  bool is_collective() const override { return params_.shares_values(); }

 private:
  bool reads_stored(Index layer) const {
    return stored_ != nullptr && layer >= 0 && reads_stored_[static_cast<std::size_t>(layer)];
  }

  nn::ParamStore<D, T>& params_;
  nn::LayerAccess<D>* stored_;
  std::vector<bool> reads_stored_;
};

}  // namespace lora::model
