#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "lora/tensor/page_locked.hpp"
#include "lora/tensor/view.hpp"

namespace lora::optim {

/// Brings numbers of a device to the host and others back, piece by piece through page-locked memory: while the host
/// works on one piece, the next comes down and the last goes up, in Stream::copy.
template <AnyDevice D, class A>
class Exchange {
 public:
  /// Contiguous both, and of the device; `up` may be absent.
  struct Piece {
    View<D, const A> down;
    View<D, A> up;
  };

  /// Pieces have at most so many elements.
  Exchange(D& dev, Index elements) : dev_(dev), elements_(elements) {
    const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(A);
    for (auto* buffers : {&down_, &up_})
      for (PageLocked<D>& buffer : *buffers) buffer = PageLocked<D>(dev, bytes);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() { settle(); }

  Index elements() const { return elements_; }
  static std::size_t bytes(Index elements) { return 4 * static_cast<std::size_t>(elements) * sizeof(A); }

  /// f(place, down, up) for each piece in order: `down` has what the device has, and what f leaves in `up` the device
  /// gets. What the device was given before comes before that, and what it is given later after it. The host waits for
  /// each piece to come, and for none to have gone. Where something fails, nothing travels any more when this throws.
  template <class F>
  void run(std::span<const Piece> pieces, const F& f) {
    if (pieces.empty()) return;
    try {
      order(Stream::compute, Stream::copy);
      fetch(pieces, 0);
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        if (i + 1 < pieces.size()) fetch(pieces, i + 1);
        // The last copy out of this piece's `up` was queued before the one that is waited for, in the same stream.
        dev_.wait(*coming_[i % 2]);
        dev_.release(*std::exchange(coming_[i % 2], std::nullopt));
        f(i, at(down_, i), at(up_, i));
        if (const View<D, A>& up = pieces[i].up; !up.empty())
          dev_.copy_from_host(up.data(), at(up_, i), bytes_of(up), Stream::copy);
      }
      order(Stream::copy, Stream::compute);
    } catch (...) {
      settle();
      throw;
    }
  }

 private:
  using Buffers = std::array<PageLocked<D>, 2>;

  template <class T>
  static std::size_t bytes_of(const View<D, T>& view) {
    return static_cast<std::size_t>(view.size()) * sizeof(A);
  }
  static A* at(Buffers& buffers, std::size_t piece) { return reinterpret_cast<A*>(buffers[piece % 2].data()); }

  void fetch(std::span<const Piece> pieces, std::size_t i) {
    const View<D, const A>& down = pieces[i].down;
    dev_.start_copy_to_host(at(down_, i), down.data(), bytes_of(down), Stream::copy);
    coming_[i % 2] = dev_.record(Stream::copy);
  }
  void order(Stream first, Stream second) { wait_and_release(dev_, second, dev_.record(first)); }
  // Nothing is copied any more.
  void settle() noexcept {
    try {
      dev_.synchronize();
    } catch (...) {  // reported by an earlier wait
    }
    for (std::optional<Event>& event : coming_)
      if (event) dev_.release(*std::exchange(event, std::nullopt));
  }

  D& dev_;
  Index elements_;
  Buffers down_, up_;
  std::array<std::optional<Event>, 2> coming_;  // of the pieces that are on their way down
};

}  // namespace lora::optim
