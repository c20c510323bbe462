#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "lora/nn/block.hpp"
#include "lora/nn/layer_access.hpp"
#include "lora/nn/recomputed.hpp"

namespace lora::nn {

/// All layers in order. Backward ends at the lowest layer that trains, unless dx is wanted; layers below it keep
/// nothing. A row that nobody reads behind the last layer (Pass::wanted) needs no more of it than attention's keys and
/// values: where there are enough of them (leaves_rows_out), and no dropout, whose random numbers belong to all rows,
/// the others alone are computed.
template <AnyDevice D, class T>
class Stack {
 public:
  using Layer = Recomputed<Block<D, T>>;
  struct Saved {
    struct Entry {
      std::size_t mark = 0;  ///< of the arena, before the layer's input
      View<D, T> x;          // (N, E)
      typename Layer::Saved layer;
    };
    std::vector<Entry> entries;  ///< from the lowest layer that backward reaches up
    bool wants_dx = false;
  };

  /// Of forward and, where `keep` is all, backward behind it. `wants_dx` is forward's.
  static Footprint footprint(const PassShape& pass, const StackShape& shape, Keep keep, bool wants_dx = false) {
    const Index first = keep == Keep::nothing ? shape.size() : wants_dx ? 0 : shape.first_trained();
    const Index x = pass.rows_of<T>(shape.width);
    PassShape last = pass;
    if (shape.size() > 0 && leaves_rows_out(pass.rows, pass.labeled, pass.random && shape.layers.back().drops()))
      last.wanted = pass.labeled;
    Footprint result;
    Index held = 0;  // of the low end
    for (Index i = 0; i < shape.size(); ++i) {
      const auto& layer = shape.layers[static_cast<std::size_t>(i)];
      const PassShape& own = i + 1 < shape.size() ? pass : last;
      const Footprint forward = Layer::footprint(own, layer, i < first ? Keep::nothing : keep);
      if (i >= first) held += (i == first ? x : 0) + (i + 1 < shape.size() ? x : 0);
      result.low = std::max(result.low, held + forward.low);
      result.scratch = std::max(result.scratch, forward.scratch);
      held += forward.saved;
      if (i < first) continue;
      const Footprint backward = Layer::backward_footprint(own, layer, i > first || wants_dx);
      result.low = std::max(result.low, held + backward.low);  // backward releases the layers above it first
      result.scratch = std::max(result.scratch, backward.scratch);
    }
    return result;
  }

  void push_back(Layer layer) { layers_.push_back(std::move(layer)); }
  Index size() const { return static_cast<Index>(layers_.size()); }
  Layer& layer(Index i) { return layers_[static_cast<std::size_t>(i)]; }

  /// Who has the layers' weights ready; it outlives this. Null: they are always there.
  void set_access(LayerAccess<D>* access) { access_ = access; }
  LayerAccess<D>* access() const { return access_; }

  /// The lowest layer that trains; size() if none does.
  Index first_trained() const {
    Index i = 0;
    while (i < size() && !layers_[static_cast<std::size_t>(i)].trains()) ++i;
    return i;
  }

  /// Acquires the layers as forward does, before a backward or not: for a rank without a micro-batch, where ranks
  /// gather layers from each other.
  void visit_forward(D& dev, bool trains) const {
    const ProfileScope phase(dev, Profile::Kind::phase, "forward");
    for (Index i = 0; i < size(); ++i)
      const LayerHandle<D> weights(access_, dev, i, i + 1 < size() ? i + 1 : trains ? size() - 1 : 0);
  }
  /// The same as backward does, which tells the hook of each, if it is not null.
  void visit_backward(D& dev, bool wants_dx = false, GradientHook<D>* hook = nullptr) const {
    const ProfileScope phase(dev, Profile::Kind::phase, "backward");
    const Index first = wants_dx ? 0 : first_trained();
    for (Index i = size() - 1; i >= first; --i) {
      const LayerHandle<D> weights(access_, dev, i, i > first ? i - 1 : 0);
      if (hook != nullptr) hook->formed(dev, i);
    }
  }

  /// y may be x. `keep` is nothing or all; under gradient checkpointing layers keep less than all. `wants_dx`: what x
  /// is computed from trains.
  void forward(D& dev, const Pass<D, T>& pass, View<D, const T> x, View<D, T> y, Saved& saved, Keep keep,
               bool wants_dx = false) const {
    const Index first = keep == Keep::nothing ? size() : wants_dx ? 0 : first_trained();
    saved.wants_dx = wants_dx;
    View<D, const T> input = x;
    View<D, T> next;  // a layer's output, which is the next one's saved input
    saved.entries.clear();
    const ProfileScope phase(dev, Profile::Kind::phase, "forward");
    const Index after = keep == Keep::nothing ? 0 : size() - 1;  // what the next pass, or backward, begins with
    for (Index i = 0; i < size(); ++i) {
      const ProfileScope span(dev, Profile::Kind::layer, "layer", i);
      const auto& layer = layers_[static_cast<std::size_t>(i)];
      if (keep == Keep::nothing && pass.stopped()) return;
      const LayerHandle<D> weights(access_, dev, i, i + 1 < size() ? i + 1 : after);
      if (i < first) {
        typename Layer::Saved nothing;
        layer.forward(dev, pass, input, y, nothing, Keep::nothing, wanted_rows(pass, i));
        input = y;
        continue;
      }
      auto& entry = saved.entries.emplace_back();
      entry.mark = dev.arena().mark();
      if (i == first) {
        entry.x = save<T>(dev, x.rows(), x.cols());
        kernel::convert(dev, input, entry.x);
      } else {
        entry.x = next;
      }
      // It outlives what this layer saves, so it must be saved before.
      next = i + 1 == size() ? y : save<T>(dev, x.rows(), x.cols());
      layer.forward(dev, pass, View<D, const T>(entry.x), next, entry.layer, keep, wanted_rows(pass, i));
    }
  }

  /// dy is overwritten with each layer's dx, at last with dx where forward was told that it is wanted. Releases what
  /// forward kept. `hook`, if it is not null, is told of each layer.
  void backward(D& dev, const Pass<D, T>& pass, Saved& saved, View<D, T> dy, GradientHook<D>* hook = nullptr) {
    const Index first = size() - static_cast<Index>(saved.entries.size());
    const ProfileScope phase(dev, Profile::Kind::phase, "backward");
    for (Index i = size() - 1; i >= first; --i) {
      const ProfileScope span(dev, Profile::Kind::layer, "layer", i);
      const LayerHandle<D> weights(access_, dev, i, i > first ? i - 1 : 0);
      auto& entry = saved.entries[static_cast<std::size_t>(i - first)];
      layer(i).backward(dev, pass, View<D, const T>(entry.x), entry.layer, View<D, const T>(dy),
                        i == first && !saved.wants_dx ? View<D, T>() : dy, wanted_rows(pass, i));
      dev.arena().release(entry.mark);
      if (hook != nullptr) hook->formed(dev, i);
    }
  }

 private:
  // Rows of layer i's output that are computed; empty: all.
  View<D, const std::int32_t> wanted_rows(const Pass<D, T>& pass, Index i) const {
    const View<D, const std::int32_t> wanted = pass.wanted();
    const bool drops = pass.random_key() != 0 && layers_.back().inner().drops();
    if (i + 1 < size() || !leaves_rows_out(pass.count(), wanted.size(), drops)) return {};
    return wanted;
  }

  std::vector<Layer> layers_;
  LayerAccess<D>* access_ = nullptr;
};

}  // namespace lora::nn
