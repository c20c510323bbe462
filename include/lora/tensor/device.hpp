#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/profile.hpp"
#include "lora/core/scalar.hpp"

namespace lora {

class Arena;

/// How modules cut their work on a device, and which of two equivalent ways they take. Results depend on it by
/// roundings, and so do a run's bits: a device's values must depend neither on its threads nor on other load.
struct Tiling {
  Index rows;          ///< of an output tile to which several products are added in cache
  Index head_rows;     ///< labeled rows that share a pass over the head's weight
  Index head_columns;  ///< columns of the vocabulary whose logits exist at once for those rows
  /// Where a weight must be decoded in any case, a low-rank update W + s B A can be formed there. For n rows that costs
  /// 4 O I R FLOPs, both ways together, instead of 2 n (I + O) R: fewer above 2 I O / (I + O) rows. It is done above
  /// this many times as many rows; never where it is infinite.
  double fold_ratio;
  /// Whether weights of projections that share an input are better multiplied as one, where they lie one below the
  /// other.
  bool joins_projections = false;

  bool folds_update(Index n, Index in, Index out) const {
    const double i = static_cast<double>(in), o = static_cast<double>(out);
    return static_cast<double>(n) > 2 * fold_ratio * i * o / (i + o);
  }
};

/// The queues of a device. Work of one runs in order; work of two is in no order but that of events.
enum class Stream : std::uint8_t {
  compute,  ///< kernels, and copies unless told otherwise
  copy,     ///< copies that run beside kernels
  links,    ///< what devices send each other, beside both
};

/// A device's memory, in bytes.
struct MemoryInfo {
  std::size_t total = 0;
  std::size_t free = 0;  ///< what this process can still take
};

/// How much of a device's memory is allocated, and the most that ever was.
class AllocatedBytes {
 public:
  void add(std::size_t bytes) {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  void take(std::size_t bytes) { now_ -= bytes; }
  std::size_t now() const { return now_; }
  std::size_t peak() const { return peak_; }
  /// The peak from here on.
  void restart_peak() { peak_ = now_; }

 private:
  std::size_t now_ = 0, peak_ = 0;
};

/// Where tensors live and kernels run: an object with its streams and its arena, passed first to every call. It belongs
/// to the thread that uses it.
///
/// Calls may be asynchronous: results are defined after `synchronize()`, a wait for an event behind them, or a copy to
/// the host, and until then a copy from the host may still read its source. Errors of queued work are thrown by the
/// next call that waits. Freeing is ordered after the work that was queued in Stream::compute before it. Views begin on
/// view_alignment bytes. A result without gaps may be written up to the end of its last block of as many; of one whose
/// rows lie apart, nothing but its columns.
template <class D>
concept AnyDevice = requires(D& dev, const D& same, void* memory, const void* source, std::size_t bytes, Stream stream,
                             Event event, Profile* profile) {
  { D::reads_host_memory } -> std::convertible_to<bool>;  // kernels may read mapped files in place
  { D::decodes(DType::q8_0) } -> std::same_as<bool>;      // kernels read weights stored so; else the host decodes them
  { D::splits_blocks } -> std::convertible_to<bool>;      // a row of blocks comes as all its quanta, then its scales
  requires std::floating_point<typename D::Sum>;          // of sums over many numbers: losses, squares of gradients

  { dev.allocate(bytes) } -> std::same_as<void*>;  // 64-byte aligned; throws DeviceError
  { dev.free(memory, bytes) } noexcept;
  { dev.allocate_host(bytes) } -> std::same_as<void*>;  // the host's, from which copies are fastest (page-locked)
  { dev.free_host(memory, bytes) } noexcept;            // no copy may still read it
  { same.memory() } -> std::same_as<MemoryInfo>;
  { dev.arena() } -> std::same_as<Arena&>;

  dev.copy_from_host(memory, source, bytes);
  dev.copy_from_host(memory, source, bytes, stream);
  dev.copy_to_host(memory, source, bytes);                // waits until the copy is done
  dev.start_copy_to_host(memory, source, bytes, stream);  // does not wait; memory is allocate_host's
  dev.copy_on_device(memory, source, bytes);              // in Stream::compute
  dev.copy_on_device(memory, source, bytes, stream);
  dev.synchronize();  // all streams

  { dev.record(stream) } -> std::same_as<Event>;  // behind all that was queued in the stream so far
  dev.wait(stream, event);                        // what the stream is given from now on begins after the event
  dev.wait(event);                                // the host does
  { dev.is_done(event) } -> std::same_as<bool>;
  { dev.nanoseconds(event, event) } -> std::same_as<std::int64_t>;  // between two that are done
  { dev.release(event) } noexcept;                                  // its number is asked for no more

  { same.tiling() } -> std::same_as<Tiling>;
  { same.describe() } -> std::convertible_to<std::string>;
  dev.set_profile(profile);  // records from now on, or no more where null
  { same.profile() } -> std::same_as<Profile*>;
  { dev.template state<int>() } -> std::same_as<int&>;  // see DeviceState
};

/// What the stream is given from now on begins after the event, which is released, whatever comes.
template <AnyDevice D>
void wait_and_release(D& dev, Stream stream, Event event) {
  try {
    dev.wait(stream, event);
  } catch (...) {
    dev.release(event);
    throw;
  }
  dev.release(event);
}

/// What every device carries for others: the profile that its work is recorded in, who gives memory back where it is
/// short, and what kernels and staging keep between calls.
template <class D>
class DeviceState {
 public:
  DeviceState() = default;
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;

  /// Records what kernels and modules do on this device from now on, or stops where it is null. It must live as long.
  void set_profile(Profile* profile) { profile_ = profile; }
  Profile* profile() const { return profile_; }

  /// Gives some of the device's memory back, which then is asked for once more; false where there is nothing to give.
  using Relief = std::function<bool()>;
  /// Set by an object that holds memory it can do without, and reset to an empty function when the object goes.
  void set_relief(Relief relief) { relief_ = std::move(relief); }

  /// What a kernel family keeps between calls (chosen engines, prepared products): one object of each type, made at its
  /// first use, from the device where it takes one, and gone with the device.
  template <class State>
  State& state() {
    const void* const key = &state_key<State>;
    for (const auto& [known, object] : states_)
      if (known == key) return *static_cast<State*>(object.get());
    std::shared_ptr<State> made;
    if constexpr (std::constructible_from<State, D&>) {
      made = std::make_shared<State>(static_cast<D&>(*this));
    } else {
      made = std::make_shared<State>();
    }
    states_.emplace_back(key, made);
    return *made;
  }

 protected:
  ~DeviceState() = default;
  bool relieve() { return relief_ && relief_(); }
  /// For destructors of devices, while states can still use them.
  void release_states() {
    while (!states_.empty()) states_.pop_back();
  }

 private:
  template <class State>
  static constexpr char state_key = 0;

  Profile* profile_ = nullptr;
  Relief relief_;
  std::vector<std::pair<const void*, std::shared_ptr<void>>> states_;
};

}  // namespace lora
