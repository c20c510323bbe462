#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/ascend/runtime/address_space.hpp"
#include "lora/ascend/runtime/device_settings.hpp"
#include "lora/ascend/runtime/environment.hpp"
#include "lora/ascend/runtime/host_copies.hpp"
#include "lora/ascend/runtime/memory_pool.hpp"
#include "lora/ascend/runtime/relay.hpp"
#include "lora/ascend/runtime/toolkit.hpp"
#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/core/precision.hpp"
#include "lora/tensor/arena.hpp"
#include "lora/tensor/device.hpp"

namespace lora::ascend {

/// An Ascend NPU: three streams, a pool of memory and an arena that grows. Kernels are the vendor's operators.
class Device : public DeviceState<Device> {
 public:
  static constexpr bool reads_host_memory = false;
  static constexpr bool splits_blocks = true;
  static constexpr bool decodes(DType stored) {
    return stored == DType::f32 || stored == DType::bf16 || stored == DType::f16 || stored == DType::q8_0;
  }
  using Sum = float;

  /// Throws   DeviceError if the toolkit, its operators or the NPU are missing, ConfigError for the environment's
  /// values
  explicit Device(const DeviceSettings& settings, Toolkit& toolkit = Toolkit::get()) : Device(toolkit, settings) {
    const MemoryInfo info = memory();
    // Without addresses that grow, half of what is free is left to weights and what trains.
    space_.emplace(runtime(), settings_.id, info.total, info.free / 2);
    arena_.emplace(space_->memory(), space_->bytes(), false, growth(), AddressSpace::unit, MemoryPool::tail);
    for (aclrtStream& stream : streams_) {
      check(runtime().aclrtCreateStream(&stream), "aclrtCreateStream");
      // Else what is queued behind a kernel that has failed would compute on, with whatever that one left.
      if (const aclError error = runtime().aclrtSetStreamFailureMode(stream, stop_on_failure); error != 0) {
        if (stops_after_faults_)
          log::warn("[ascend] NPU ", settings_.id, ": streams go on after work that has failed: ", reason_of(error));
        stops_after_faults_ = false;
      }
    }
  }
  /// The first NPU, with so many threads of the host. As tests make devices.
  explicit Device(int threads = 0) : Device(DeviceSettings{.threads = threads}) {}
  ~Device() {
    // Nobody may wait for work that frees memory. Others may wait for links that have failed: these are asked first.
    if (enter_quietly())
      for (const Stream one : {Stream::links, Stream::compute, Stream::copy})
        if (const aclrtStream stream = handle(one);
            stream != nullptr && runtime().aclrtSynchronizeStreamWithTimeout(stream, timeout_ms_) != 0)
          give_up({});
    release_states();
    relay_.release(*this);
    for (const auto& [number, event] : events_) (void)runtime().aclrtDestroyEvent(event);
    for (const aclrtEvent event : spare_events_) (void)runtime().aclrtDestroyEvent(event);
    for (const aclrtStream stream : streams_)
      if (stream != nullptr) (void)runtime().aclrtDestroyStream(stream);
  }

  void* allocate(std::size_t bytes) {
    enter();
    return allocated(bytes, [&](aclError& error) { return pool_.allocate(bytes, error); });
  }
  void free(void* memory, std::size_t bytes) noexcept {
    copies_.forget(memory, bytes);
    pool_.free(memory);
  }
  void* allocate_host(std::size_t bytes) {
    enter();
    void* memory = nullptr;
    const aclError error = runtime().aclrtMallocHost(&memory, std::max<std::size_t>(bytes, 1));
    if (is_full(error))
      fail<DeviceError>("[ascend] NPU ", settings_.id, ": the host gives no page-locked memory, ", bytes,
                        " bytes were asked for: ", reason_of(error),
                        "; end other programs that take the host's memory");
    check(error, "aclrtMallocHost");
    page_locked_[static_cast<std::byte*>(memory)] = bytes;
    return memory;
  }
  void free_host(void* memory, std::size_t) noexcept {
    page_locked_.erase(static_cast<std::byte*>(memory));
    if (enter_quietly()) (void)runtime().aclrtFreeHost(memory);
  }
  MemoryInfo memory() const {
    enter();
    std::size_t free = 0, total = 0;
    check(runtime().aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), "aclrtGetMemInfo");
    return {total, free + pool_.cached()};
  }
  Arena& arena() { return *arena_; }

  void copy_from_host(void* target, const void* source, std::size_t bytes, Stream stream = Stream::compute) {
    if (bytes == 0) return;
    enter();
    const auto copy = [this, stream](void* to, const void* from, std::size_t size) {
      start_copy_from_host(to, from, size, stream);
    };
    const bool page_locked = is_page_locked(source, bytes);
    if (page_locked)
      copy(target, source, bytes);
    else
      relay_.copy_from_host(*this, static_cast<std::byte*>(target), static_cast<const std::byte*>(source), bytes,
                            stream, copy);
    copies_.note(target, source, bytes, page_locked && stream == Stream::compute);
  }
  void copy_to_host(void* target, const void* source, std::size_t bytes) {
    if (bytes == 0) return;
    if (!is_page_locked(target, bytes))
      return relay_.copy_to_host(*this, static_cast<std::byte*>(target), static_cast<const std::byte*>(source), bytes);
    start_copy_to_host(target, source, bytes, Stream::compute);
    wait_for(Stream::compute);
  }
  /// The target is allocate_host's.
  void start_copy_to_host(void* target, const void* source, std::size_t bytes, Stream stream) {
    if (bytes == 0) return;
    enter();
    check(runtime().aclrtMemcpyAsync(target, bytes, source, bytes, ACL_MEMCPY_DEVICE_TO_HOST, handle(stream)),
          "a copy to the host");
  }
  void copy_on_device(void* target, const void* source, std::size_t bytes, Stream stream = Stream::compute) {
    if (bytes == 0) return;
    enter();
    check(runtime().aclrtMemcpyAsync(target, bytes, source, bytes, ACL_MEMCPY_DEVICE_TO_DEVICE, handle(stream)),
          "a copy on the device");
    copies_.forget(target, bytes);
  }
  void synchronize() {
    enter();
    for (const Stream stream : {Stream::compute, Stream::copy}) wait_for(stream);
    if (linked_) wait_for(Stream::links);
  }

  Event record(Stream stream) {
    enter();
    linked_ = linked_ || stream == Stream::links;
    aclrtEvent event = nullptr;
    if (spare_events_.empty()) {
      // Others may not be recorded again, which events that are released are.
      check(runtime().aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE),
            "aclrtCreateEventExWithFlag");
    } else {
      event = spare_events_.back();
      spare_events_.pop_back();
    }
    events_[++last_event_] = event;
    check(runtime().aclrtRecordEvent(event, handle(stream)), "aclrtRecordEvent");
    return {last_event_};
  }
  void wait(Stream stream, Event event) {
    enter();
    check(runtime().aclrtStreamWaitEvent(handle(stream), events_.at(event.number)), "aclrtStreamWaitEvent");
  }
  void wait(Event event) {
    enter();
    wait_until(
        [&](std::int32_t timeout) {
          return runtime().aclrtSynchronizeEventWithTimeout(events_.at(event.number), timeout);
        },
        ACL_ERROR_RT_EVENT_SYNC_TIMEOUT);
  }
  bool is_done(Event event) {
    enter();
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    check(runtime().aclrtQueryEventStatus(events_.at(event.number), &status), "aclrtQueryEventStatus");
    return status == ACL_EVENT_RECORDED_STATUS_COMPLETE;
  }
  std::int64_t nanoseconds(Event from, Event to) {
    enter();
    float milliseconds = 0;
    check(runtime().aclrtEventElapsedTime(&milliseconds, events_.at(from.number), events_.at(to.number)),
          "aclrtEventElapsedTime");
    return static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6);
  }
  void release(Event event) noexcept {
    const auto found = events_.find(event.number);
    if (found == events_.end()) return;
    spare_events_.push_back(found->second);
    events_.erase(found);
  }

  /// A launch costs as much as products of many rows, so that nothing is cut, and neighbors are joined. Rows of the
  /// head bound the logits, which exist at once for the whole vocabulary.
  static Tiling tiling() {
    return {.rows = Index{1} << 40,
            .head_rows = 512,
            .head_columns = Index{1} << 40,
            .fold_ratio = std::numeric_limits<double>::infinity(),
            .joins_projections = true};
  }

  /// As the key device names it.
  std::string name() const { return concat("ascend:", settings_.id); }
  /// "Ascend910B3, NPU 0"
  std::string describe() const {
    const char* const name = runtime().aclrtGetSocName();
    return concat(name != nullptr ? name : "an NPU without a name", ", NPU ", settings_.id);
  }

  /// Whether what is queued behind work that has failed is thrown away; else it is done with what that has left.
  bool stops_after_faults() const { return stops_after_faults_; }

  /// Whether the arena gets memory as it grows, by the runtime's virtual memory; else it has a fixed share.
  bool arena_grows() const { return space_->grows(); }

  // For kernels.

  Toolkit& toolkit() { return toolkit_; }
  const DeviceSettings& settings() const { return settings_; }
  aclrtStream handle(Stream stream) const { return streams_[static_cast<std::size_t>(stream)]; }
  aclrtStream compute_stream() const { return handle(Stream::compute); }
  const HostCopies& host_copies() const { return copies_; }
  /// From page-locked memory, of bytes that no kernel reads as numbers of rows: `host_copies` does not keep them.
  void copy_unseen(void* target, const void* source, std::size_t bytes) {
    enter();
    start_copy_from_host(target, source, bytes, Stream::compute);
    copies_.forget(target, bytes);
  }

  /// From now on waits end no earlier than after so many seconds.
  void wait_at_least(double seconds) {
    timeout_ms_ = std::max(timeout_ms_, static_cast<std::int32_t>(1000 * std::min(seconds, 2e6)));
  }
  /// Throws away what is queued and is not to be waited for. Nothing works any more.
  void abandon(std::string reason) noexcept {
    if (enter_quietly()) give_up(std::move(reason));
  }

  /// This thread's calls are this device's from now on; another device or library may have had it.
  void enter() const {
    if (lost_) fail<DeviceError>("[ascend] NPU ", settings_.id, " can't be used any more: ", *lost_);
    check(runtime().aclrtSetCurrentContext(opened_.context), "aclrtSetCurrentContext");
  }

  /// Throws DeviceError for what is no success.
  void check(aclError error, std::string_view what) const {
    if (error != 0) fail<DeviceError>("[ascend] NPU ", settings_.id, ": ", what, ": ", reason_of(error));
  }
  /// An error as messages tell it. Where it ends the work of the device, nobody waits for that any more.
  std::string reason_of(aclError error) const {
    std::string text = runtime().describe(error);
    if (ends_work(error)) give_up(text);
    return text;
  }

 private:
  /// With what the destructor takes back, also where the rest of the construction fails.
  Device(Toolkit& toolkit, const DeviceSettings& settings)
      : toolkit_(toolkit), settings_(settings), opened_(toolkit, settings), pool_(toolkit.runtime) {}

  /// The NPU and its context, for as long as the device lives.
  struct Opened {
    Opened(Toolkit& toolkit, const DeviceSettings& settings) : Opened(toolkit.runtime, settings.id) {
      if (!toolkit.runs())
        fail<DeviceError>(
            "[ascend] ",
            toolkit.there() ? "the toolkit can't be used: " : "there is no toolkit to run on an NPU with: ",
            toolkit.problem(), "; ", toolkit.advice(), ", or use device cpu");
      if (!toolkit.operator_problem().empty())
        fail<DeviceError>("[ascend] the toolkit has no operators: ", toolkit.operator_problem(),
                          "; install its operator packages for this kind of NPU");
      if (const std::string missing = toolkit.missing_operators(); !missing.empty())
        fail<DeviceError>("[ascend] ", toolkit.operator_names(),
                          " lacks operators that nothing stands in for: ", missing, "; ", toolkit.operators_advice());
      std::uint32_t count = 0;
      if (const aclError error = runtime.aclrtGetDeviceCount(&count); error != 0)
        fail<DeviceError>("[ascend] the runtime can't count NPUs: ", runtime.describe(error),
                          "; npu-smi info shows whether the driver works");
      if (id < 0 || static_cast<std::uint32_t>(id) >= count)
        fail<DeviceError>("[ascend] there is no NPU ", id, ": the runtime counts ", count,
                          "; npu-smi info lists what the driver sees, ASCEND_RT_VISIBLE_DEVICES may hide some");
      require(runtime.aclrtSetDevice(id), "can't be used");
      is_set = true;
      require(runtime.aclrtGetCurrentContext(&context), "has no context");
      // Versions differ in which of them operators look at, the process's or the context's.
      const std::int64_t fixed = settings.deterministic ? 1 : 0;
      require(runtime.aclrtSetSysParamOpt(ACL_OPT_DETERMINISTIC, fixed), "does not take a setting");
      require(runtime.aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC, fixed), "does not take a setting");
      // Numbers out of range become infinite, and are seen as such; they would be cut off otherwise.
      require(runtime.aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_INFNAN), "does not take a setting");
    }
    /// None yet; its destructor takes back what has been done since.
    Opened(const Runtime& of, std::int32_t number) : runtime(of), id(number) {}
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
    ~Opened() {
      if (is_set) (void)runtime.aclrtResetDevice(id);
    }

    void require(aclError error, std::string_view what) const {
      if (error != 0)
        fail<DeviceError>("[ascend] NPU ", id, " ", what, ": ", runtime.describe(error), "; ", advice_of(error));
    }

    const Runtime& runtime;
    std::int32_t id;
    bool is_set = false;
    aclrtContext context = nullptr;
  };

  const Runtime& runtime() const { return toolkit_.runtime; }
  bool is_page_locked(const void* memory, std::size_t bytes) const {
    const auto* const begin = static_cast<const std::byte*>(memory);
    const auto after = page_locked_.upper_bound(begin);
    if (after == page_locked_.begin()) return false;
    const auto& [block, size] = *std::prev(after);
    return static_cast<std::size_t>(begin - block) + bytes <= size;
  }
  void start_copy_from_host(void* target, const void* source, std::size_t bytes, Stream stream) {
    check(runtime().aclrtMemcpyAsync(target, bytes, source, bytes, ACL_MEMCPY_HOST_TO_DEVICE, handle(stream)),
          "a copy to the device");
  }
  bool enter_quietly() const noexcept { return runtime().aclrtSetCurrentContext(opened_.context) == 0; }

  /// Throws away what is queued, which has failed or may never end: memory that it uses can then be freed.
  void give_up(std::string reason) const noexcept {
    if (lost_) return;
    lost_ = std::move(reason);
    for (aclrtStream& stream : streams_)
      if (stream != nullptr) (void)runtime().aclrtDestroyStreamForce(std::exchange(stream, nullptr));
  }

  Arena::Grow growth() {
    if (!space_->grows()) return {};
    return [this](std::size_t begin, std::size_t end) {
      (void)allocated(end - begin, [&](aclError& error) -> void* {
        error = space_->grow(begin, end);
        return error == 0 ? space_->memory() : nullptr;
      });
    };
  }

  static constexpr bool is_full(aclError error) {
    return error == ACL_ERROR_RT_MEMORY_ALLOCATION || error == ACL_ERROR_RT_DEVICE_OOM;
  }

  /// take(error), again after free segments have been given back, and what others can do without. Throws DeviceError.
  template <class Take>
  void* allocated(std::size_t bytes, const Take& take) {
    aclError error = 0;
    if (void* const memory = take(error)) return memory;
    if (!is_full(error))
      fail<DeviceError>("[ascend] NPU ", settings_.id, " gives no memory, ", bytes,
                        " bytes were asked for: ", reason_of(error));
    const std::string first = reason_of(error);
    do {
      synchronize();
      pool_.release();
      if (void* const memory = take(error)) return memory;
    } while (relieve());
    std::size_t free = 0, total = 0;
    (void)runtime().aclrtGetMemInfo(ACL_HBM_MEM, &free, &total);
    fail<DeviceError>(
        "[ascend] NPU ", settings_.id, " is out of memory: ", bytes, " bytes were asked for, ", free, " of ", total,
        " are free on the card: ", first,
        "; smaller batches or a smaller cutoff_len need less, in training also gradient_checkpointing and offload; "
        "npu-smi info shows who else uses the card");
  }

  void wait_for(Stream stream) const {
    wait_until(
        [&](std::int32_t timeout) { return runtime().aclrtSynchronizeStreamWithTimeout(handle(stream), timeout); },
        ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  }
  // What is waited for may wait for links that have failed, whose events then never come, or come without what they
  // stand for: a second at a time, the links are asked about.
  template <class Wait>
  void wait_until(const Wait& wait, aclError is_late) const {
    constexpr std::int32_t second = 1000;
    aclError error = 0;
    for (std::int32_t left = timeout_ms_; left > 0; left -= second) {
      error = wait(linked_ ? std::min(left, second) : left);
      aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
      if (linked_) check_wait(runtime().aclrtStreamQuery(handle(Stream::links), &status));
      if (!linked_ || error != is_late) break;
    }
    check_wait(error);
  }
  void check_wait(aclError error) const {
    if (error == 0) return;
    const std::string text = reason_of(error);
    give_up(text);
    if (error == ACL_ERROR_RT_STREAM_SYNC_TIMEOUT || error == ACL_ERROR_RT_EVENT_SYNC_TIMEOUT)
      fail<DeviceError>("[ascend] NPU ", settings_.id, " has not ended its work within ", timeout_ms_ / 1000,
                        " s: ", text, "; LORA_ASCEND_TIMEOUT sets how many seconds are waited");
    fail<DeviceError>("[ascend] NPU ", settings_.id, ": work that was queued before has failed: ", text,
                      "; npu-smi info shows its health");
  }

  Toolkit& toolkit_;
  DeviceSettings settings_;
  std::int32_t timeout_ms_ = 1000 * longest_wait();
  Opened opened_;
  MemoryPool pool_;
  std::optional<AddressSpace> space_;
  std::optional<Arena> arena_;
  mutable std::array<aclrtStream, 3> streams_{};  // by Stream
  bool stops_after_faults_ = true;
  bool linked_ = false;  // Stream::links has been given something
  std::map<std::int64_t, aclrtEvent> events_;
  std::vector<aclrtEvent> spare_events_;
  std::map<const std::byte*, std::size_t> page_locked_;  // by allocate_host: where it begins, and its bytes
  Relay<Device> relay_;
  std::int64_t last_event_ = 0;
  HostCopies copies_;
  mutable std::optional<std::string> lost_;  // why, after an error that has ended its work or may never let it end
};

static_assert(AnyDevice<Device>);

/// For a model that is stored as `stored`: its own, bfloat16 for blocks of small integers.
inline Precision preferred_precision(Device&, DType stored) {
  if (stored == DType::f32 || stored == DType::f64) return Precision::float32;
  return stored == DType::f16 ? Precision::float16 : Precision::bfloat16;
}

/// For a program's first lines: "the operators of CANN, interface 1.13.0".
inline std::string describe_products(Device& dev) {
  const std::string version = dev.toolkit().version();
  return concat("the operators of CANN", version.empty() ? "" : ", interface " + version);
}

}  // namespace lora::ascend
