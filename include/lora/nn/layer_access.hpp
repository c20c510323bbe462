#pragma once

#include <utility>

#include "lora/tensor/device.hpp"

namespace lora::nn {

/// Has the weights of a layer where kernels can read them, for as long as they are needed: for weights that are
/// streamed from the host or from files, or gathered from other ranks. Stack calls it, in the order of the work; every
/// layer that is acquired is released, in forward, backward, and when single tensors are read.
template <AnyDevice D>
class LayerAccess {
 public:
  LayerAccess() = default;
  LayerAccess(const LayerAccess&) = delete;
  LayerAccess& operator=(const LayerAccess&) = delete;
  virtual ~LayerAccess() = default;

  /// Layer `layer` is read by what is queued from now on. `next` will be acquired after it: where a pass ends the layer
  /// that the following one begins with, which may be the same; −1 if unknown.
  virtual void acquire(D& dev, Index layer, Index next) = 0;
  /// What is queued from now on does not read it. What was queued before may still do.
  virtual void release(D& dev, Index layer) noexcept = 0;
  /// Whether all ranks must acquire the same layers in the same order, since they gather them from each other.
  virtual bool is_collective() const { return false; }
};

/// Is told of gradients while backward goes on: so that a layer's can be summed over ranks, or be moved, early.
template <AnyDevice D>
class GradientHook {
 public:
  GradientHook() = default;
  GradientHook(const GradientHook&) = delete;
  GradientHook& operator=(const GradientHook&) = delete;
  virtual ~GradientHook() = default;

  /// What is queued from now on in this pass adds nothing to the gradients of layer `layer`. First comes behind_layers,
  /// then layers from the last down to the lowest that trains.
  virtual void formed(D& dev, Index layer) = 0;
};

/// A layer's weights may be read while this lives. Without a LayerAccess, weights are always there.
template <AnyDevice D>
class LayerHandle {
 public:
  LayerHandle(LayerAccess<D>* access, D& dev, Index layer, Index next) : access_(access), dev_(dev), layer_(layer) {
    if (access_ != nullptr) access_->acquire(dev, layer, next);
  }
  LayerHandle(const LayerHandle&) = delete;
  LayerHandle& operator=(const LayerHandle&) = delete;
  ~LayerHandle() {
    if (access_ != nullptr) access_->release(dev_, layer_);
  }

 private:
  LayerAccess<D>* access_;
  D& dev_;
  Index layer_;
};

}  // namespace lora::nn
