#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "lora/cpu/runtime/threads.hpp"
#include "lora/model/weights/host_matrix.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/page_locked.hpp"

namespace lora::model {

/// The matrices of a layer on the host, and where each lies among the bytes that the device gets of the layer.
class HostLayer {
 public:
  /// Returns the matrix's offset.
  std::size_t add(HostMatrix matrix) {
    const std::size_t offset = bytes_;
    bytes_ += (matrix.bytes() + Arena::alignment - 1) / Arena::alignment * Arena::alignment;
    pieces_.push_back({std::move(matrix), offset});
    return offset;
  }

  std::size_t bytes() const { return bytes_; }
  bool is_decoded() const {
    return std::any_of(pieces_.begin(), pieces_.end(),
                       [](const Piece& piece) { return piece.matrix.dtype() != piece.matrix.tensor().dtype; });
  }
  void write(const cpu::Threads& threads, std::byte* to) const {
    for (const Piece& piece : pieces_) piece.matrix.write(threads, to + piece.offset);
  }

 private:
  struct Piece {
    HostMatrix matrix;
    std::size_t offset;
  };
  std::vector<Piece> pieces_;
  std::size_t bytes_ = 0;
};

/// Where layers that come to the device when they are needed come from. Called by the device's thread alone.
template <AnyDevice D>
class LayerSource {
 public:
  LayerSource() = default;
  LayerSource(const LayerSource&) = delete;
  LayerSource& operator=(const LayerSource&) = delete;
  virtual ~LayerSource() = default;

  /// Queues a layer's bytes for `to`: what is given to Stream::copy and then recorded there has them in place. The host
  /// may have to wait for them.
  virtual void bring(D& dev, Index layer, View<D, std::byte> to) = 0;
  /// How many layers ahead it wants to hear of.
  virtual std::size_t looks_ahead() const { return 0; }
  /// These will be asked for next, in this order.
  virtual void expect(D&, std::span<const Index>) {}
};

/// All layers in page-locked memory, written once: nobody waits, and nothing is done again.
template <AnyDevice D>
class ResidentLayers : public LayerSource<D> {
 public:
  ResidentLayers(D& dev, const std::vector<HostLayer>& layers, int threads) {
    const cpu::Threads team(threads);
    for (const HostLayer& layer : layers) {
      layers_.emplace_back(dev, layer.bytes());
      layer.write(team, layers_.back().data());
    }
  }
  void bring(D& dev, Index layer, View<D, std::byte> to) override {
    dev.copy_from_host(to.data(), layers_[static_cast<std::size_t>(layer)].data(), static_cast<std::size_t>(to.size()),
                       Stream::copy);
  }

 private:
  std::vector<PageLocked<D>> layers_;
};

/// A few page-locked buffers that a thread of the host fills, ahead of need, from where the layers are stored.
template <AnyDevice D>
class StagedLayers : public LayerSource<D> {
 public:
  StagedLayers(D& dev, std::vector<HostLayer> layers, int buffers, int threads)
      : dev_(dev), layers_(std::move(layers)), threads_(threads) {
    std::size_t largest = 0;
    for (const HostLayer& layer : layers_) largest = std::max(largest, layer.bytes());
    for (int i = 0; i < buffers; ++i) buffers_.push_back({PageLocked<D>(dev, largest)});
    worker_ = std::thread([this] { work(); });
  }
  /// No copy may be under way.
  ~StagedLayers() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    worker_.join();
    for (const Buffer& buffer : buffers_)
      if (buffer.copied) dev_.release(*buffer.copied);
  }

  void bring(D& dev, Index layer, View<D, std::byte> to) override {
    dev.copy_from_host(to.data(), at(dev, layer), static_cast<std::size_t>(to.size()), Stream::copy);
    Buffer& buffer = *buffer_of(layer);
    if (buffer.copied) dev.release(*std::exchange(buffer.copied, std::nullopt));
    buffer.copied = dev.record(Stream::copy);
  }

  std::size_t looks_ahead() const override { return buffers_.size(); }

  void expect(D& dev, std::span<const Index> layers) override {
    for (const Index layer : layers) {
      if (buffer_of(layer) != nullptr) continue;
      std::unique_lock lock(mutex_);
      Buffer* const buffer = oldest(layers);
      lock.unlock();
      // Not worth waiting for: whoever asks for the layer will.
      if (buffer == nullptr || (buffer->copied && !dev.is_done(*buffer->copied))) return;
      fill(dev, *buffer, layer);
    }
  }

 private:
  struct Buffer {
    PageLocked<D> memory;
    Index layer = -1;
    bool filling = false;           // shared with the worker
    std::uint64_t used = 0;         // when, for the order
    std::optional<Event> copied{};  // behind the last copy from it
  };

  // Its bytes, once they are there.
  const std::byte* at(D& dev, Index layer) {
    Buffer* buffer = buffer_of(layer);
    if (buffer == nullptr) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return oldest({}) != nullptr; });
      buffer = oldest({});
      lock.unlock();
      if (buffer->copied) dev.wait(*buffer->copied);  // before it is overwritten
      fill(dev, *buffer, layer);
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !buffer->filling; });
    if (error_) std::rethrow_exception(error_);
    buffer->used = ++clock_;
    return buffer->memory.data();
  }

  Buffer* buffer_of(Index layer) {
    for (Buffer& buffer : buffers_)
      if (buffer.layer == layer) return &buffer;
    return nullptr;
  }
  // The one that was not used for longest, of those that hold none of these layers and are not being filled.
  Buffer* oldest(std::span<const Index> kept) {
    Buffer* found = nullptr;
    for (Buffer& buffer : buffers_) {
      if (buffer.filling || std::find(kept.begin(), kept.end(), buffer.layer) != kept.end()) continue;
      if (found == nullptr || buffer.used < found->used) found = &buffer;
    }
    return found;
  }
  void fill(D& dev, Buffer& buffer, Index layer) {
    if (buffer.copied) dev.release(*std::exchange(buffer.copied, std::nullopt));
    buffer.layer = layer;
    buffer.used = ++clock_;
    const std::lock_guard lock(mutex_);
    buffer.filling = true;
    wanted_.push_back(&buffer);
    changed_.notify_all();
  }

  void work() {
    const cpu::Threads team(threads_);
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ends_ || !wanted_.empty(); });
      if (ends_) return;
      Buffer& buffer = *wanted_.front();
      wanted_.pop_front();
      const HostLayer& layer = layers_[static_cast<std::size_t>(buffer.layer)];
      lock.unlock();
      std::exception_ptr error;
      try {
        layer.write(team, buffer.memory.data());
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (!error_) error_ = error;
      buffer.filling = false;
      changed_.notify_all();
    }
  }

  D& dev_;
  std::vector<HostLayer> layers_;
  int threads_;
  std::vector<Buffer> buffers_;
  std::uint64_t clock_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Buffer*> wanted_;
  bool ends_ = false;
  std::exception_ptr error_;
  std::thread worker_;  // the last, since it uses the others
};

}  // namespace lora::model
